//! Real processes, killed and stopped at bad moments.
#![expect(clippy::unwrap_used, reason = "helpers of tests may")]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::*;
use futures::executor::block_on;
use rustix::process::{Pid, Signal, kill_process};
use sprag_core::Store;
use sprag_core::clock::{BootClock, Clock};
use sprag_core::store::Attempt;
use sprag_sqlite::{SqliteConfig, SqliteStore};

/// Another process, which is this test binary again; killed at the end.
struct Other(Child);

impl Other {
    /// Starts `role` on the store at `path` and waits until it is ready.
    fn start(role: &str, path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "other_process", "--nocapture"]);
        command.env("SPRAG_TEST_ROLE", role).env("SPRAG_TEST_PATH", path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        while !lines.next().unwrap().unwrap().ends_with("ready") {}
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// What the other process does; nothing when run as a test.
#[test]
fn other_process() {
    let Ok(role) = std::env::var("SPRAG_TEST_ROLE") else { return };
    let store = SqliteStore::open(std::env::var_os("SPRAG_TEST_PATH").unwrap()).unwrap();
    match role.as_str() {
        "hold" => {
            acquire(&store, &queued("job"));
            println!("ready");
        }
        "wait" => {
            assert!(matches!(attempt(&store, &queued("job")), Attempt::Queued(_)));
            println!("ready");
        }
        "hammer" => {
            println!("ready");
            loop {
                let wish = request("hammered");
                if matches!(block_on(store.try_acquire(&wish)), Ok(Attempt::Granted(_))) {
                    block_on(store.release(&wish.name, wish.lease)).ok();
                }
            }
        }
        other => panic!("no such role: {other}"),
    }
    // Stays until it is killed, or until its parent is gone.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    std::process::abort();
}

#[test]
fn a_killed_holder_is_followed_within_milliseconds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let store = SqliteStore::open(&path).unwrap();
    let mut times = Vec::new();
    for _ in 0..5 {
        let other = Other::start("hold", &path);
        let wish = queued("job");
        let Attempt::Queued(contention) = attempt(&store, &wish) else { panic!("not queued") };
        let theirs = contention.holders[0].fence;
        let start = BootClock.now();
        other.signal(Signal::KILL);
        wait_until_granted(&store, &wish);
        times.push(BootClock.now().since(start));
        assert!(acquire(&store, &wish).fence > theirs);
        release(&store, &wish);
    }
    times.sort();
    // The middle one: a loaded machine may be slow once.
    assert!(times[2] < Duration::from_millis(100), "{times:?}");
}

#[test]
fn killed_waiters_are_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let (store, last) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let (held, wish) = (queued("job"), queued("job"));
    acquire(&store, &held);
    let others = [(); 3].map(|()| Other::start("wait", &path));
    let Attempt::Queued(contention) = attempt(&last, &wish) else { panic!("not queued") };
    assert_eq!(contention.ahead, 3);
    drop(others);
    release(&store, &held);
    wait_until_granted(&last, &wish);
}

#[test]
fn a_process_stopped_in_the_middle_of_a_write_makes_others_busy_and_nothing_worse() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let config = SqliteConfig::new(&path).busy_timeout(Duration::from_millis(100));
    let store = SqliteStore::with_config(config).unwrap();
    let other = Other::start("hammer", &path);
    let mut busy = 0;
    let progress = || block_on(store.inspect(&name("hammered"))).unwrap().fence;
    for _ in 0..200 {
        // Stopped at another point each time.
        let before = progress();
        eventually("the other process goes on", || progress() != before);
        other.signal(Signal::STOP);
        let wish = request("job");
        let start = BootClock.now();
        match block_on(store.try_acquire(&wish)) {
            Ok(attempt) => assert!(matches!(attempt, Attempt::Granted(_))),
            Err(error) => {
                assert!(error.is_busy(), "{error:?}");
                busy += 1;
                // Nothing was given out, and looking still works.
                assert!(!block_on(store.inspect(&wish.name)).unwrap().is_locked());
            }
        }
        assert!(BootClock.now().since(start) < Duration::from_secs(5));
        other.signal(Signal::CONT);
        while block_on(store.release(&wish.name, wish.lease)).is_err() {}
        if busy == 3 {
            break;
        }
    }
    assert!(busy > 0, "the other process was never caught inside the gate");
    // Killed inside or outside the gate, it leaves nothing behind.
    other.signal(Signal::STOP);
    drop(other);
    eventually("the store works again", || block_on(store.try_acquire(&request("x"))).is_ok());
    acquire(&store, &request("hammered"));
}
