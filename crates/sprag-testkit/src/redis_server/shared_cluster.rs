//! [`SharedCluster`]: a Redis Cluster that all tests of this user share.
//!
//! Starting one takes seconds, and tests run in processes of their own. So it belongs to none of them:
//! each holds a shared lock on a file as long as it lives, and a process of its own ends the Cluster
//! when nobody does any more.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::cluster::RedisCluster;
use super::server::RedisServer;
use super::talk::Talk;

/// How often it is looked whether somebody still needs it.
const LOOK: Duration = Duration::from_secs(2);

/// The nodes of a Redis Cluster, which is there as long as this process is. Everybody uses keys of
/// their own.
#[derive(Debug)]
pub struct SharedCluster {
    nodes: Vec<Node>,
    /// Locked by all who use it.
    _users: File,
}

impl SharedCluster {
    /// Finds it, or has it started by the program `keeper`, which calls [`keep_shared_cluster`].
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn get(keeper: &str) -> &'static Self {
        static SHARED: OnceLock<SharedCluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            // First this one: nobody ends what somebody uses.
            let users = open("users");
            users.lock_shared().expect("files can be locked");
            let start = open("start");
            start.lock().expect("files can be locked");
            let nodes = running().unwrap_or_else(|| launch(keeper));
            Self { nodes, _users: users }
        })
    }

    /// The ports of its nodes.
    pub fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.nodes.iter().map(|node| node.port)
    }

    /// How it is opened.
    pub fn url(&self) -> String {
        let nodes: Vec<_> = self.ports().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// Sends one command to the node that has its key, as any other program would.
    ///
    /// # Panics
    ///
    /// If none has it.
    pub fn ask(&self, words: &[&str]) -> String {
        let ask = |node: &Node| Talk::open(&node.socket).and_then(|mut talk| talk.ask(words));
        let answers = self.nodes.iter().map(|node| ask(node).expect("the node answers"));
        let mut good = answers.filter(|answer| !answer.starts_with("MOVED"));
        good.next().expect("a node has the key")
    }
}

#[derive(Debug)]
struct Node {
    port: u16,
    socket: PathBuf,
}

impl Node {
    fn read(line: &str) -> Option<Self> {
        let (port, socket) = line.split_once(' ')?;
        Some(Self { port: port.parse().ok()?, socket: socket.into() })
    }

    fn answers(&self) -> bool {
        Talk::open(&self.socket).and_then(|mut talk| talk.ask(&["PING"])).is_ok()
    }
}

/// Starts the Cluster, says so, and ends it when nobody uses it any more.
///
/// # Panics
///
/// If it does not start.
pub async fn keep_shared_cluster() {
    let mut cluster = RedisCluster::steady().await;
    let line = |node: &RedisServer| format!("{} {}\n", node.port(), node.socket().display());
    let nodes: String = cluster.nodes().iter().map(line).collect();
    fs::write(file("nodes"), nodes).expect("a file can be written");
    writeln!(std::io::stdout(), "ready").expect("whoever started it listens");
    loop {
        tokio::time::sleep(LOOK).await;
        // Only together: so nobody starts what is being ended, and nobody ends what is being started.
        let (start, users) = (open("start"), open("users"));
        start.lock().expect("files can be locked");
        if users.try_lock().is_ok() {
            drop(fs::remove_file(file("nodes")));
            drop(cluster);
            return;
        }
    }
}

/// The nodes of the one that runs.
fn running() -> Option<Vec<Node>> {
    let text = fs::read_to_string(file("nodes")).ok()?;
    let nodes: Vec<_> = text.lines().map(Node::read).collect::<Option<_>>()?;
    nodes.iter().all(Node::answers).then_some(nodes)
}

#[expect(clippy::zombie_processes, reason = "it is there for others too, and outlives this one")]
fn launch(keeper: &str) -> Vec<Node> {
    let mut command = Command::new(keeper);
    // A group of its own: who kills the test with its group must leave it alone.
    command.process_group(0).stdin(Stdio::null()).stderr(Stdio::null());
    let mut started = command.stdout(Stdio::piped()).spawn().expect("the keeper can be started");
    let output = started.stdout.take().expect("the output is piped");
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).expect("the keeper speaks");
    assert_eq!(line, "ready\n", "no Redis Cluster could be started");
    running().expect("it has just been started")
}

fn file(end: &str) -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("sprag-redis-cluster-{user}.{end}"))
}

fn open(end: &str) -> File {
    File::create(file(end)).expect("a file can be made")
}
