//! [`RedisServer`]: a private `redis-server`, gone with the test that started it.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use futures_util::future::join_all;

use super::setup::RedisSetup;
use super::talk::Talk;
use crate::keeper::Keeper;
use crate::support::eventually;

/// A Redis server in a temporary folder. It can be killed, started again, halted and asked.
#[derive(Debug)]
pub struct RedisServer {
    keeper: Keeper,
    setup: RedisSetup,
}

impl RedisServer {
    /// Whether tests with a Redis server were declined: `SPRAG_SKIP=redis`.
    pub fn skipped() -> bool {
        std::env::var("SPRAG_SKIP").is_ok_and(|list| list.split(',').any(|name| name == "redis"))
    }

    /// Starts a server with these options beside its own, on a Unix socket alone.
    ///
    /// # Panics
    ///
    /// If there is none to start.
    pub async fn start(options: &[&str]) -> Self {
        RedisSetup::new().options(options).start().await
    }

    /// Starts several servers that know nothing of each other.
    pub async fn several(count: usize, setup: &RedisSetup) -> Vec<Self> {
        join_all((0..count).map(|_| setup.clone().start())).await
    }

    pub(super) async fn launch(mut setup: RedisSetup) -> Self {
        let mut version = Command::new("redis-server");
        version.arg("--version").stdout(Stdio::null());
        assert!(
            version.status().is_ok_and(|status| status.success()),
            "`redis-server` is missing; please type:\n  sudo apt-get install -y redis-server\n\
             or leave out its tests with SPRAG_SKIP=redis"
        );
        loop {
            setup.choose_ports();
            let mut keeper = Keeper::new(|folder| setup.command(folder));
            keeper.start();
            let server = Self { keeper, setup };
            if server.until(|answer| !answer.starts_with("LOADING")).await {
                return server;
            }
            // Somebody else may have been faster at the port.
            let output = server.keeper.output();
            setup = server.setup.clone();
            assert!(setup.any_port && output.contains("already in use"), "{output}");
        }
    }

    /// Waits until it answers so; not if it has ended. One that wants a password answers, too.
    async fn until(&self, good: impl Fn(String) -> bool + Send + Sync) -> bool {
        let ping = || Talk::open(&self.socket()).and_then(|mut talk| talk.ask(&["PING"]));
        let answers = || async { self.keeper.has_ended() || ping().is_ok_and(&good) };
        eventually("the server answers", answers).await;
        !self.keeper.has_ended()
    }

    /// Kills it, if it runs, as a crash would. What it wrote to its files stays.
    pub fn kill(&mut self) {
        self.keeper.kill();
    }

    /// Kills it, if it runs, and starts it again where it was: empty, unless it has a log.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn restart(&mut self) {
        self.restart_loading().await;
        let ready = self.until(|answer| !answer.starts_with("LOADING")).await;
        assert!(ready, "{}", self.keeper.output());
    }

    /// The same, but it may still be loading its log.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn restart_loading(&mut self) {
        self.keeper.kill();
        self.keeper.start();
        assert!(self.until(|_| true).await, "{}", self.keeper.output());
    }

    /// Kills it, if it runs, and starts it again without what it had.
    ///
    /// # Panics
    ///
    /// If its files cannot be removed.
    pub async fn restart_empty(&mut self) {
        self.keeper.kill();
        for file in std::fs::read_dir(self.keeper.folder()).expect("its folder is there") {
            let path = file.expect("its folder can be read").path();
            let removed = if path.is_dir() {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
            removed.unwrap_or_else(|e| panic!("cannot remove {}: {e}", path.display()));
        }
        self.restart().await;
    }

    /// Halts it: SIGSTOP. Connections stay, and nothing is answered.
    pub async fn stop(&self) {
        self.keeper.stop().await;
    }

    /// Lets it go on: SIGCONT.
    pub fn go_on(&self) {
        self.keeper.go_on();
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.keeper.folder().join("redis.sock")
    }

    /// Its port.
    ///
    /// # Panics
    ///
    /// If it has none.
    pub fn port(&self) -> u16 {
        self.setup.port.expect("the server was given a port")
    }

    /// The port on which it speaks with the other nodes of its cluster.
    pub(super) fn bus_port(&self) -> u16 {
        self.setup.bus_port.expect("the server is a node of a cluster")
    }

    /// Whether it was not killed.
    pub fn is_running(&self) -> bool {
        !self.keeper.has_ended()
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// How it is opened: by its port if it has one, else by its socket. Without the password.
    pub fn url(&self) -> String {
        match self.setup.port {
            Some(port) if self.setup.tls.is_some() => format!("rediss://127.0.0.1:{port}"),
            Some(port) => format!("redis://127.0.0.1:{port}"),
            None => format!("redis+unix://{}", self.socket().display()),
        }
    }

    /// A connection of its own, with the password given.
    ///
    /// # Panics
    ///
    /// If nobody listens.
    pub fn talk(&self) -> Talk {
        self.try_talk().expect("the server is there")
    }

    fn try_talk(&self) -> io::Result<Talk> {
        let mut talk = Talk::open(&self.socket())?;
        if let Some(password) = &self.setup.password {
            let answer = talk.ask(&["AUTH", password])?;
            assert_eq!(answer, "OK");
        }
        Ok(talk)
    }

    /// Sends one command on a connection of its own, as any other program would, and gives back
    /// the answer as text: nothing for nil, a line for each element of an array.
    ///
    /// # Panics
    ///
    /// If there is no answer.
    pub fn ask(&self, words: &[&str]) -> String {
        self.try_ask(words).expect("the server answers")
    }

    /// The same for whoever can ask again: a server that is told to become a master, or to repeat
    /// another, disconnects its clients.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub fn try_ask(&self, words: &[&str]) -> io::Result<String> {
        self.try_talk()?.ask(words)
    }

    /// One line of what it says about itself.
    ///
    /// # Panics
    ///
    /// If there is no answer.
    pub fn info(&self, name: &str) -> String {
        line_of(&self.ask(&["INFO"]), name)
    }

    /// Whether it says this about itself. Not if it does not answer.
    pub fn says(&self, name: &str, value: &str) -> bool {
        self.try_ask(&["INFO"]).is_ok_and(|text| line_of(&text, name) == value)
    }

    /// Waits until it is in step with its master.
    pub async fn until_linked(&self) {
        let linked = || async { self.says("master_link_status", "up") };
        eventually("the replica is linked", linked).await;
    }
}

fn line_of(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_default().trim_end().to_owned()
}
