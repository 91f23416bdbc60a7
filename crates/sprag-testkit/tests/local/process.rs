//! The cases that need several processes, on every store that this package knows.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sprag::{MemoryStore, SqliteStore};
use sprag_testkit::crowd;
use sprag_testkit::harness::{Harness, Session};
use sprag_testkit::process::cases::Scene;
use sprag_testkit::process::{Answer, Ask, Command};
use sprag_testkit::process_conformance;
use sprag_testkit::support::{LONG, name, request, sized, timed, until_unused};
use sprag_testkit::torture::Torture;

const TAKER: &str = env!("CARGO_BIN_EXE_sprag-taker");

struct Memory(MemoryStore);

#[async_trait]
impl Harness for Memory {
    async fn fresh() -> Self {
        Self(MemoryStore::new())
    }

    async fn session(&self) -> Arc<Session> {
        let store = self.0.connect();
        let process = store.clone();
        Arc::new(Session::new(Arc::new(store), move || process.kill()))
    }
}

struct Sqlite(tempfile::TempDir);

impl Sqlite {
    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("sprag.db")
    }
}

#[async_trait]
impl Harness for Sqlite {
    async fn fresh() -> Self {
        Self(tempfile::tempdir().expect("there is room for temporary files"))
    }

    async fn session(&self) -> Arc<Session> {
        let store = SqliteStore::open(self.path()).expect("a new file can be opened");
        Arc::new(Session::new(Arc::new(store), || {}))
    }

    fn url(&self) -> Option<String> {
        Some(format!("sqlite:{}", self.path().display()))
    }
}

process_conformance!(sqlite, Sqlite, TAKER);

/// A store in memory cannot be shared between processes, and says so by having no URL: there is
/// nothing for the other cases to test.
#[tokio::test]
async fn a_memory_store_ends_at_the_borders_of_its_process() {
    assert!(Scene::new::<Memory>(Path::new(TAKER)).await.is_none());
    let mut taker = sprag_testkit::process::TakerConfig::new(TAKER, "memory:report").spawn().await;
    let here = sprag::Locks::open("memory:report").unwrap();
    taker.acquire(Ask::new(name("report"), LONG)).await;
    assert!(!here.inspect("report").await.unwrap().is_locked(), "shared after all");
}

/// F22: while a process is stopped in the middle of a write, the others are told that the store
/// is busy, in about the busy timeout, and can look at locks; afterwards all goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_is_stopped_makes_the_others_busy_not_stuck() {
    let scene = Scene::new::<Sqlite>(Path::new(TAKER)).await.unwrap();
    let lock = name("report");
    let (mut holder, mut stuck) = (scene.taker("holder").await, scene.taker("stuck").await);
    let held = holder.acquire(Ask::new(lock.clone(), LONG)).await;
    // Every write is done inside the gate, so whoever has it is in the middle of a write.
    let url = scene.harness.url().unwrap();
    let gate = format!("{}.gate", url.strip_prefix("sqlite:").unwrap());
    assert_eq!(stuck.ask(Command::LockFile(gate.into())).await, Answer::Done);
    stuck.stop().await;

    let (answer, took) = timed(scene.store.try_acquire(&request("other"))).await;
    let error = answer.unwrap_err();
    assert!(error.is_busy() && error.is_retryable(), "{error:?}");
    assert!(took >= Duration::from_millis(900), "not patient: {took:?}");
    assert!(took < Duration::from_secs(10), "not in about the busy timeout: {took:?}");
    let view = scene.store.inspect(&lock).await.unwrap();
    assert_eq!(view.holders[0].lease, held.lease, "looking needs no write");
    let release = holder.start(Command::Release(lock.clone()));

    stuck.go_on();
    assert_eq!(stuck.ask(Command::UnlockFiles).await, Answer::Done);
    let released = holder.finish(release).await;
    assert_eq!(released, Answer::Released(None), "a release is repeated until it is done");
    assert!(stuck.acquire(Ask::new(lock.clone(), LONG)).await.fence > held.fence);
    assert_eq!(stuck.release(&lock).await, None);
    until_unused(&scene.store, "report").await;
    until_unused(&scene.store, "other").await;
}

/// A user may have 128 sources of the kernel's reports about files, and here they are all taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_processes_is_quiet_and_drains() {
    let watch = || rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).ok();
    let taken: Vec<_> = std::iter::from_fn(watch).take(1 << 14).collect();
    let scene = Scene::new::<Sqlite>(Path::new(TAKER)).await.unwrap();
    crowd::processes_drain(&scene, sized(16, 1000)).await;
    drop(taken);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_one_process_drains() {
    crowd::tasks_of_one_process_drain(&Sqlite::fresh().await, crowd::WAITERS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_in_memory_drains() {
    // The reference goes through the whole queue for each command.
    let count = sized(crowd::WAITERS / 4, crowd::WAITERS);
    crowd::tasks_of_one_process_drain(&Memory::fresh().await, count).await;
}

/// F20, F60 and everything else at once: eight processes under faults for a few seconds keep
/// every rule. `cargo xtask torture` does it for longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_little_torture_breaks_no_rule() {
    let folder = tempfile::tempdir().unwrap();
    let torture = Torture {
        program: TAKER.into(),
        arguments: Vec::new(),
        url: format!("sqlite:{}", folder.path().join("sprag.db").display()),
        folder: folder.path().to_owned(),
        processes: 8,
        locks: 3,
        ttl: Duration::from_secs(1),
        length: Duration::from_secs(5),
        seed: fastrand::u64(..),
    };
    let report = torture.run().await.unwrap();
    assert!(report.violations.is_empty(), "{report}");
    assert!(report.grants > 100 && report.faults.values().sum::<u64>() > 5, "{report}");
}
