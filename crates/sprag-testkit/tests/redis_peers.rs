//! Other libraries and we take the same locks, each in a process of its own: whoever comes first
//! has it, and nobody else.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use sprag::{LockRequest, Locks};
use sprag_testkit::redis_server::{RedisServer, RedisSetup};
use sprag_testkit::support::{LONG, eventually, look, within};

/// Set for the process that is rslock's: its arguments.
const PEER: &str = "SPRAG_TEST_PEER";
/// How often each of ours is inside while others are.
const VISITS: u64 = 20;

/// How another library is started.
type Start = fn() -> Option<Command>;

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
        // Who reads no arguments of its own finds them here.
        command.env(PEER, words.join(" ")).args(&words);
        let mut child = command
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
        loop {
            line.clear();
            let count = self.output.read_line(&mut line).expect("it speaks text");
            assert_ne!(count, 0, "it ended without a word");
            // A test that plays a peer says other things, too.
            let text = line.trim();
            let word = text.split(' ').next().unwrap_or_default();
            if ["granted", "held", "released", "ready", "done"].contains(&word) {
                return text.to_owned();
            }
        }
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
#[derive(Clone)]
struct Section(PathBuf);

impl Section {
    fn at(folder: impl AsRef<Path>) -> Self {
        Self(folder.as_ref().to_owned())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn count(&self) -> u64 {
        let text = std::fs::read_to_string(self.file("counter")).expect("the counter is there");
        text.trim().parse().expect("the counter is a number")
    }

    /// Adds one to the counter.
    async fn visit(&self) {
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

async fn exclude_each_other(start: Start, servers: usize) {
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

/// The folder with the programs of other libraries.
fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Where `cargo xtask` installs other libraries; none if their tests were declined.
fn installed(path: &str, command: &str) -> Option<PathBuf> {
    let skip = std::env::var("SPRAG_SKIP").unwrap_or_default();
    if skip.split(',').any(|name| name == "peers") {
        return None;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
    assert!(
        folder.join(path).exists(),
        "{path} is missing in target/peers; please type, at the root of the repository:\n  \
         {command}\nor leave out the tests with other libraries with SPRAG_SKIP=peers"
    );
    Some(folder.join(path))
}

fn redis_py() -> Option<Command> {
    let install = "python3 -m pip install --target target/peers/python redis==8.1.0";
    let module = installed("python/redis", install)?;
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", module.parent()?).arg(peers().join("redis_py.py"));
    Some(command)
}

fn redlock() -> Option<Command> {
    let install = "npm install --prefix target/peers/node redlock@4.2.0 ioredis@5.11.1";
    let module = installed("node/node_modules/redlock", install)?;
    let mut command = Command::new("node");
    command.env("NODE_PATH", module.parent()?).arg(peers().join("redlock.js"));
    Some(command)
}

fn redis_cli() -> Option<Command> {
    let mut command = Command::new("sh");
    command.arg(peers().join("plain.sh"));
    Some(command)
}

/// This very test, which then plays the other side.
fn rslock() -> Option<Command> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(["--exact", "rslock_and_we_exclude_each_other", "--nocapture"]);
    Some(command)
}

/// The other side of [`rslock`].
async fn play_rslock(words: &str) {
    let words: Vec<_> = words.split(' ').collect();
    let (mode, host, ports, key) = (words[0], words[1], words[2], words[3]);
    let urls: Vec<_> = ports.split(',').map(|port| format!("redis://{host}:{port}")).collect();
    let mut manager = rslock::LockManager::new(urls);
    let ttl = Duration::from_secs(10);
    let say = |word: &str| {
        use std::io::Write as _;
        // By hand, since tests have their output captured.
        writeln!(std::io::stdout(), "{word}").expect("somebody listens");
    };
    match mode {
        "try" => {
            manager.set_retry(1, Duration::ZERO);
            match manager.lock(key, ttl).await {
                Ok(lock) => {
                    say("granted");
                    manager.unlock(&lock).await;
                }
                Err(_) => say("held"),
            }
        }
        "hold" => {
            let guard = manager.acquire(key, ttl).await.expect("it is granted");
            say("granted");
            drop(std::io::stdin().read_line(&mut String::new()));
            guard.release().await;
            say("released");
        }
        _ => {
            manager.set_retry(1, Duration::from_millis(2));
            let section = Section::at(words[4]);
            let mut rounds = 0;
            while !section.file("enough").exists() {
                let guard = manager.acquire(key, ttl).await.expect("it is granted");
                section.visit().await;
                guard.release().await;
                rounds += 1;
                if rounds == 1 {
                    say("ready");
                }
                // Others get their turn.
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            say(&format!("done {rounds}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py_and_we_exclude_each_other() {
    exclude_each_other(redis_py, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_of_npm_and_we_exclude_each_other() {
    exclude_each_other(redlock, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_cli_and_we_exclude_each_other() {
    exclude_each_other(redis_cli, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rslock_and_we_exclude_each_other() {
    match std::env::var(PEER) {
        Ok(words) => play_rslock(&words).await,
        Err(_) => exclude_each_other(rslock, 1).await,
    }
}

/// Every library asks all three servers by itself, and a majority decides for all of us.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_of_npm_and_we_exclude_each_other_by_majority() {
    exclude_each_other(redlock, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rslock_and_we_exclude_each_other_by_majority() {
    exclude_each_other(rslock, 3).await;
}
