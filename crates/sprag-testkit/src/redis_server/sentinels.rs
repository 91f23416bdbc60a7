//! [`RedisSentinels`]: a master, its replicas, and three Sentinels that choose another master.

use futures_util::future::join_all;

use super::server::RedisServer;
use super::setup::RedisSetup;
use crate::support::eventually;

/// What the master is called.
const NAME: &str = "mymaster";

/// A master with replicas, watched by three Sentinels of which two have to agree.
#[derive(Debug)]
pub struct RedisSentinels {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl RedisSentinels {
    /// Starts a master with so many replicas, and waits until everybody knows everybody.
    ///
    /// # Panics
    ///
    /// If there is no `redis-server`.
    pub async fn start(replicas: usize) -> Self {
        Self::start_with(replicas, &RedisSetup::new()).await
    }

    /// The same with servers of a kind; the Sentinels are plain.
    ///
    /// # Panics
    ///
    /// If there is no `redis-server`.
    pub async fn start_with(replicas: usize, setup: &RedisSetup) -> Self {
        let master = setup.clone().tcp().start().await;
        let replica = setup.clone().tcp().replica_of(master.port());
        let mut servers = vec![master];
        servers.extend(RedisServer::several(replicas, &replica).await);
        join_all(servers[1..].iter().map(RedisServer::until_linked)).await;
        let sentinel = RedisSetup::new().tcp().sentinel(NAME, servers[0].port());
        let sentinels = RedisServer::several(3, &sentinel).await;
        for sentinel in &sentinels {
            // They look around every ten seconds; a test has no time for that.
            let faster = ["INFO-PERIOD", "200", "PUBLISH-PERIOD", "200", "TILT-PERIOD", "1000"];
            let answer = sentinel.ask(&[&["SENTINEL", "DEBUG"], &faster[..]].concat());
            assert_eq!(answer, "OK");
        }
        let started = Self { servers, sentinels };
        started.until_known().await;
        started
    }

    async fn until_known(&self) {
        let knows = |sentinel: &RedisServer| {
            let text = sentinel.ask(&["SENTINEL", "MASTER", NAME]);
            let lines: Vec<_> = text.lines().collect();
            let field = |name| {
                let at = lines.iter().position(|line| *line == name)?;
                lines.get(at + 1)?.parse::<usize>().ok()
            };
            field("num-slaves") == Some(self.servers.len() - 1)
                && field("num-other-sentinels") == Some(self.sentinels.len() - 1)
        };
        let all = || async { self.sentinels.iter().all(knows) };
        eventually("the Sentinels know each other", all).await;
    }

    /// What the Sentinels call the master.
    pub const fn name(&self) -> &'static str {
        NAME
    }

    /// The Sentinels.
    pub fn sentinels(&mut self) -> &mut [RedisServer] {
        &mut self.sentinels
    }

    /// The hosts and ports of the Sentinels, with commas.
    pub fn addresses(&self) -> String {
        self.sentinels.iter().map(RedisServer::address).collect::<Vec<_>>().join(",")
    }

    /// How it is opened.
    pub fn url(&self) -> String {
        format!("redis+sentinel://{}/{NAME}", self.addresses())
    }

    /// The server that the first Sentinel takes for the master.
    ///
    /// # Panics
    ///
    /// If it is none of them.
    pub fn master(&mut self) -> &mut RedisServer {
        let port = master_port(&self.sentinels[0]);
        let found = self.servers.iter_mut().find(|server| Some(server.port()) == port);
        found.expect("the master is one of the servers")
    }

    /// All servers, the first master first.
    pub fn servers(&mut self) -> &mut [RedisServer] {
        &mut self.servers
    }

    /// Kills the master and waits until all Sentinels name another.
    pub async fn fail_over(&mut self) {
        let master = self.master();
        let old = master.port();
        master.kill();
        self.until_elected(old).await;
    }

    /// Waits until all Sentinels name another master than the one on port `old`, and it is one.
    ///
    /// # Panics
    ///
    /// If they do not.
    pub async fn until_elected(&self, old: u16) {
        let elected = || async {
            let named: Vec<_> = self.sentinels.iter().map(master_port).collect();
            let agreed = named.iter().all(|port| *port == named[0] && *port != Some(old));
            let chosen = self.servers.iter().find(|server| Some(server.port()) == named[0]);
            agreed && chosen.is_some_and(|server| server.says("role", "master"))
        };
        eventually("there is another master", elected).await;
    }
}

fn master_port(sentinel: &RedisServer) -> Option<u16> {
    let address = sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
    address.lines().last()?.parse().ok()
}
