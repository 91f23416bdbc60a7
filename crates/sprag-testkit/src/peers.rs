//! Other libraries for the same Redis locks, each in a process of its own: the first to ask has the
//! lock, and nobody else.
//!
//! A peer is a program that is called with `MODE HOST PORTS KEY [FOLDER]`. In the mode `try` it says
//! `granted` or `held`; in `hold` it says `granted`, waits for the end of its input, and says
//! `released`; in `rounds` it counts in the folder until there is a file `enough`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::redis_server::{RedisServer, RedisSetup};
use crate::support::{LONG, eventually, look, within};
use sprag::{LockRequest, Locks};

/// How often each of ours is inside while others are.
const VISITS: u64 = 20;

/// How another library is started.
pub type Start = fn() -> Option<Command>;

/// A process that uses another library. Killed when dropped.
struct Peer {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn start(command: Command, place: &Place, words: &[&str]) -> Self {
        let ports: Vec<_> = place.servers.iter().map(|server| server.port().to_string()).collect();
        let ports = ports.join(",");
        let (mode, rest) = words.split_first().expect("a mode");
        let words = [&[*mode, "127.0.0.1", &ports, "sprag:report"], rest].concat();
        let mut command = command;
        let mut child = command
            .args(&words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let output = BufReader::new(child.stdout.take().expect("the output is piped"));
        Self { child, output }
    }

    /// Waits for its next word.
    fn word(&mut self) -> String {
        let mut line = String::new();
        let count = self.output.read_line(&mut line).expect("it speaks text");
        assert_ne!(count, 0, "it ended without a word");
        line.trim().to_owned()
    }

    /// Lets it go on, and waits for its last word and its end.
    fn finish(mut self) -> String {
        drop(self.child.stdin.take());
        let word = self.word();
        let status = self.child.wait().expect("nobody else waited for it");
        assert!(status.success(), "it said {word:?} and failed: {status}");
        word
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What both sides guard by the lock: a counter, and a mark of who is inside.
#[derive(Clone, Debug)]
pub struct Section(PathBuf);

impl Section {
    /// The section whose files are in `folder`.
    pub fn at(folder: impl AsRef<Path>) -> Self {
        Self(folder.as_ref().to_owned())
    }

    /// One of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn count(&self) -> u64 {
        let text = std::fs::read_to_string(self.file("counter")).expect("the counter is there");
        text.trim().parse().expect("the counter is a number")
    }

    /// Adds one to the counter.
    ///
    /// # Panics
    ///
    /// If another process is inside.
    pub async fn visit(&self) {
        std::fs::create_dir(self.file("inside")).expect("somebody else is inside");
        let count = self.count();
        tokio::time::sleep(Duration::from_millis(1)).await;
        std::fs::write(self.file("counter"), (count + 1).to_string()).expect("it can be written");
        std::fs::remove_dir(self.file("inside")).expect("somebody else was inside");
    }
}

/// Where the locks are: on one server, or on a majority of several.
struct Place {
    servers: Vec<RedisServer>,
}

impl Place {
    fn url(&self) -> String {
        if let [server] = &self.servers[..] {
            return server.url();
        }
        let nodes: Vec<_> = self.servers.iter().map(RedisServer::address).collect();
        // For the sake of machines that are busy.
        format!("redlock://{}?node_timeout_ms=500", nodes.join(","))
    }

    fn locks(&self) -> Locks {
        Locks::open(&self.url()).expect("the servers are there")
    }
}

/// Runs the peer and our client against each other, on one server or on a majority of several.
///
/// # Panics
///
/// If both are inside at once, or either of them loses an update.
pub async fn exclude_each_other(start: Start, servers: usize) {
    if RedisServer::skipped() {
        return;
    }
    let Some(_) = start() else { return };
    let servers = RedisServer::several(servers, &RedisSetup::new().tcp()).await;
    let place = Place { servers };
    one_by_one(start, &place).await;
    all_at_once(start, &place).await;
}

fn launch(start: Start, place: &Place, words: &[&str]) -> Peer {
    Peer::start(start().expect("it was there a moment ago"), place, words)
}

/// Whoever has it keeps the other out, and lets the other in when it is done.
async fn one_by_one(start: Start, place: &Place) {
    let locks = place.locks();
    let able = locks.store().capability();
    let (shared, queue) = (able.shared, able.queue);
    let tries = || tokio::task::block_in_place(|| launch(start, place, &["try"]).finish());
    assert_eq!(tries(), "granted", "nobody has it");
    let kinds: [fn(LockRequest) -> LockRequest; 2] = [|request| request, LockRequest::shared];
    for request in &kinds[..if shared { 2 } else { 1 }] {
        let guard = request(locks.lock("report").ttl(LONG)).acquire().await.expect("it is free");
        assert_eq!(tries(), "held", "we have it");
        guard.release().await.expect("it is ours");
    }
    assert_eq!(tries(), "granted", "we gave it back");

    let mut peer = launch(start, place, &["hold"]);
    assert_eq!(tokio::task::block_in_place(|| peer.word()), "granted");
    let tried = locks.lock("report").try_acquire().await.expect("the server answers");
    assert!(tried.is_none(), "the other one has it");
    let waiting = tokio::spawn(locks.lock("report").ttl(LONG).acquire());
    let store = sprag::open(&place.url()).expect("the servers are there");
    // Nodes of which a majority decides do not know who waits.
    let waits = || async { !queue || look(&store, "report").await.waiters.len() == 1 };
    eventually("we wait", waits).await;
    assert!(!waiting.is_finished(), "the other one has it");
    assert_eq!(tokio::task::block_in_place(|| peer.finish()), "released");
    let guard = within("it is granted", waiting).await.expect("it ends").expect("it is free");
    guard.release().await.expect("it is ours");
}

/// Two of ours and two of theirs count together, and nobody loses a step.
async fn all_at_once(start: Start, place: &Place) {
    let folder = tempfile::tempdir().expect("there is room for temporary files");
    let section = Section::at(&folder);
    std::fs::write(section.file("counter"), "0").expect("a file can be written");
    let path = folder.path().display().to_string();
    let mut theirs = [(); 2].map(|()| launch(start, place, &["rounds", &path]));
    for peer in &mut theirs {
        assert_eq!(tokio::task::block_in_place(|| peer.word()), "ready");
    }
    let ours = [(); 2].map(|()| {
        let locks = place.locks();
        let section = section.clone();
        tokio::spawn(async move {
            for _ in 0..VISITS {
                let guard = locks.lock("report").ttl(LONG).acquire().await.expect("it is granted");
                section.visit().await;
                assert!(guard.is_valid());
                guard.release().await.expect("it is ours");
                // Others get their turn.
                tokio::time::sleep(Duration::from_millis(fastrand::u64(..8))).await;
            }
        })
    });
    for task in ours {
        task.await.expect("nobody else was inside");
    }
    std::fs::write(section.file("enough"), "").expect("a file can be written");
    let mut visits = 2 * VISITS;
    for peer in theirs {
        let word = tokio::task::block_in_place(|| peer.finish());
        let rounds = word.strip_prefix("done ").and_then(|rounds| rounds.parse::<u64>().ok());
        visits += rounds.unwrap_or_else(|| panic!("{word:?} is no number of rounds"));
    }
    assert!(visits > 2 * VISITS + 4, "the others were hardly there: {visits} visits in all");
    assert!(!section.file("overlap").exists(), "two were inside at once");
    assert_eq!(section.count(), visits, "an update was lost");
}
