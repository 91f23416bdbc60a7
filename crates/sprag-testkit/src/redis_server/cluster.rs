//! [`RedisCluster`]: three masters and three replicas that share the slots.

use futures_util::future::join_all;

use super::server::RedisServer;
use super::setup::RedisSetup;
use super::shifted_clock::ShiftedClock;
use crate::support::eventually;

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// A Redis Cluster of six nodes. The first three begin as masters, each of the others repeats one.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts it and waits until all slots are served and all replicas are in step.
    ///
    /// # Panics
    ///
    /// If there is no `redis-server`.
    pub async fn start() -> Self {
        Self::of(|_| RedisSetup::new().tcp().cluster()).await
    }

    /// As [`RedisCluster::start`], with one node that lives by a clock of its own.
    ///
    /// # Panics
    ///
    /// If there is no `redis-server`.
    pub async fn start_with_clock(node: usize, clock: &ShiftedClock) -> Self {
        let setup = RedisSetup::new().tcp().cluster();
        Self::of(|index| if index == node { setup.clone().clock(clock) } else { setup.clone() })
            .await
    }

    /// Starts one in which no master is given up, however busy this machine is.
    pub(super) async fn steady() -> Self {
        let setup = RedisSetup::new().tcp().cluster();
        let setup = setup.set("cluster-node-timeout", "60000");
        Self::of(|_| setup.clone()).await
    }

    async fn of(setup: impl Fn(usize) -> RedisSetup) -> Self {
        let starting = (0..2 * MASTERS).map(|index| setup(index).start());
        let cluster = Self { nodes: join_all(starting).await };
        // By hand: `redis-cli --cluster create` takes seconds longer.
        for (index, node) in cluster.nodes.iter().enumerate() {
            order(node, &["SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            if index < MASTERS {
                let first = (SLOTS * index / MASTERS).to_string();
                let last = (SLOTS * (index + 1) / MASTERS - 1).to_string();
                order(node, &["ADDSLOTSRANGE", &first, &last]);
            }
            if index > 0 {
                let (port, bus) = (node.port().to_string(), node.bus_port().to_string());
                order(&cluster.nodes[0], &["MEET", "127.0.0.1", &port, &bus]);
            }
        }
        let all_know_all = |cluster: &Self| {
            let knows = |node: &RedisServer| lines(node).len() == cluster.nodes.len();
            cluster.nodes.iter().all(knows)
        };
        eventually("the nodes know each other", || async { all_know_all(&cluster) }).await;
        for (index, node) in cluster.nodes.iter().enumerate().skip(MASTERS) {
            order(node, &["REPLICATE", &id(&cluster.nodes[index - MASTERS])]);
        }
        join_all(cluster.nodes[MASTERS..].iter().map(RedisServer::until_linked)).await;
        cluster.until_whole().await;
        cluster
    }

    /// Waits until all nodes that run serve all slots and know the replicas.
    pub async fn until_whole(&self) {
        let whole = |node: &RedisServer| {
            let replicas = lines(node).iter().filter(|line| line.contains("slave")).count();
            let info = node.ask(&["CLUSTER", "INFO"]);
            replicas == self.nodes.len() - MASTERS && info.contains("cluster_state:ok")
        };
        let all = || async { self.nodes.iter().filter(|node| node.is_running()).all(whole) };
        eventually("the cluster is whole", all).await;
    }

    /// The nodes.
    pub fn nodes(&mut self) -> &mut [RedisServer] {
        &mut self.nodes
    }

    /// How it is opened.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.nodes.iter().map(RedisServer::address).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// The slot of a key.
    ///
    /// # Panics
    ///
    /// If no node runs.
    pub fn slot(&self, key: &str) -> u16 {
        let node = self.nodes.iter().find(|node| node.is_running()).expect("a node runs");
        node.ask(&["CLUSTER", "KEYSLOT", key]).parse().expect("a slot is a number")
    }

    /// Which node serves a slot, by its own account; none while there is no master for it.
    pub fn owner(&self, slot: u16) -> Option<usize> {
        self.nodes.iter().position(|node| {
            let mine = |line: &String| line.contains("myself,master") && serves(line, slot);
            node.is_running() && lines(node).iter().any(mine)
        })
    }

    /// Waits until another node than `old` serves a slot, and gives back which.
    ///
    /// # Panics
    ///
    /// If none does.
    pub async fn until_moved(&self, slot: u16, old: usize) -> usize {
        let moved = || async { self.owner(slot).is_some_and(|owner| owner != old) };
        eventually("another node serves the slot", moved).await;
        self.owner(slot).expect("somebody serves the slot")
    }

    /// Begins to move a slot: keys that are still there are served by the old node, for the others
    /// it says `ASK`.
    ///
    /// # Panics
    ///
    /// If nobody serves the slot.
    pub fn begin_move(&self, slot: u16, to: usize) {
        let from = self.owner(slot).expect("somebody serves the slot");
        let slot = slot.to_string();
        order(&self.nodes[to], &["SETSLOT", &slot, "IMPORTING", &id(&self.nodes[from])]);
        order(&self.nodes[from], &["SETSLOT", &slot, "MIGRATING", &id(&self.nodes[to])]);
    }

    /// Moves the keys of a slot.
    ///
    /// # Panics
    ///
    /// If nobody serves the slot, or a key cannot be moved.
    pub fn move_keys(&self, slot: u16, to: usize) {
        let from = &self.nodes[self.owner(slot).expect("somebody serves the slot")];
        let keys = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1000"]);
        keys.lines().for_each(|key| self.migrate(from, key, to));
    }

    /// Moves one key of a slot.
    ///
    /// # Panics
    ///
    /// If nobody serves the slot, or the key cannot be moved.
    pub fn move_key(&self, key: &str, to: usize) {
        let from = self.owner(self.slot(key)).expect("somebody serves the slot");
        self.migrate(&self.nodes[from], key, to);
    }

    fn migrate(&self, from: &RedisServer, key: &str, to: usize) {
        let port = self.nodes[to].port().to_string();
        let answer = from.ask(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        assert!(answer == "OK" || answer == "NOKEY", "{key:?}: {answer}");
    }

    /// Ends the move of a slot: from now on the old node says `MOVED`.
    pub fn end_move(&self, slot: u16, to: usize) {
        let owner = id(&self.nodes[to]);
        // First the new one, so that the slot is never without a node.
        let others = (0..MASTERS).filter(|index| *index != to);
        for index in std::iter::once(to).chain(others) {
            order(&self.nodes[index], &["SETSLOT", &slot.to_string(), "NODE", &owner]);
        }
    }
}

fn order(node: &RedisServer, words: &[&str]) {
    let answer = node.ask(&[&["CLUSTER"], words].concat());
    assert_eq!(answer, "OK", "{words:?}");
}

fn id(node: &RedisServer) -> String {
    node.ask(&["CLUSTER", "MYID"])
}

/// The nodes that a node knows, without those it only heard of.
fn lines(node: &RedisServer) -> Vec<String> {
    let text = node.ask(&["CLUSTER", "NODES"]);
    text.lines().filter(|line| !line.contains("handshake")).map(str::to_owned).collect()
}

/// Whether a line of `CLUSTER NODES` names a slot. The slots are behind the eighth word.
fn serves(line: &str, slot: u16) -> bool {
    line.split_whitespace().skip(8).any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<u16>(), last.parse::<u16>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&slot),
            // `[slot->-node]`: on the move.
            _ => false,
        }
    })
}
