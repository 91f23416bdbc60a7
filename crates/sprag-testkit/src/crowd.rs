//! Crowds that wait for one lock: thousands of tasks of one process, and many processes.
//!
//! For stores with a queue. The lock of the holder is good for a few seconds only: it lives through
//! the arrival of the crowd if its renewals do not stand behind the waiters.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sprag_core::{Client, ErrorKind, LockGuard, Released, Store};

use crate::harness::Harness;
use crate::process::cases::Scene;
use crate::process::{Answer, Ask, Command, Taker};
use crate::support::{LONG, eventually_within, let_time_pass, look, name, within};

/// As many waiters as a lock may have.
pub const WAITERS: usize = 4096;
/// How long the lock of the holder is good for.
const TTL: Duration = Duration::from_secs(3);
/// How long a crowd may take to come or to go. It is seconds, and longer on a busy machine.
const LIMIT: Duration = Duration::from_secs(100);
/// How often a waiting process may run, each second and on average: its first ones look four times
/// a second, the others hardly ever.
const RUNS: usize = 12;

/// `count` tasks of one process wait for a lock, and enter one after the other. If the store takes no
/// more than that, one more is refused.
///
/// # Panics
///
/// If two enter together, the holder loses its lock, or it takes too long.
pub async fn tasks_of_one_process_drain(harness: &dyn Harness, count: usize) {
    let (holder, waiter) = (harness.client().await, harness.client().await);
    let guard = hold(&holder).await;
    let (inside, fences) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let mut tasks = Vec::with_capacity(count);
    for _ in 0..count {
        let (request, inside, fences) =
            (waiter.lock("report").ttl(LONG), Arc::clone(&inside), Arc::clone(&fences));
        tasks.push(tokio::spawn(async move {
            let guard = request.acquire().await.expect("the waiter is granted the lock");
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            fences.lock().unwrap_or_else(PoisonError::into_inner).push(guard.fence());
            inside.fetch_sub(1, Ordering::SeqCst);
            let released = guard.release().await.expect("the store answers");
            assert_eq!(released, Released::Freed);
        }));
    }
    until_all_wait(holder.store(), count).await;
    if count == waiter.capability().max_waiters {
        let refused = within("answered", waiter.lock("report").ttl(LONG).acquire()).await;
        let error = refused.expect_err("no more are taken");
        assert_eq!(*error.kind(), ErrorKind::QueueFull);
        assert!(error.to_string().contains(&format!("{count} waiters are queued")), "{error}");
    }
    let before = guard.fence();
    give_back(guard).await;
    let drained = async {
        for task in tasks {
            task.await.expect("the task is done");
        }
    };
    assert!(tokio::time::timeout(LIMIT, drained).await.is_ok(), "not drained within {LIMIT:?}");
    let fences = fences.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(fences.len(), count);
    assert!(fences.is_sorted_by(|a, b| a < b) && fences[0] > before, "fences do not grow");
}

/// `count` processes wait for a lock without doing much, and enter one after the other.
///
/// # Panics
///
/// If two enter together, the holder loses its lock, or they are busy while they wait.
pub async fn processes_drain(scene: &Scene, count: usize) {
    let holder = Client::new(scene.harness.store().await);
    let guard = hold(&holder).await;
    let lock = name("report");
    let mut crowd = Vec::with_capacity(count);
    for number in 0..count {
        let mut taker = scene.taker(&format!("waiter {number}")).await;
        let ask = Ask { wait_ms: None, ..Ask::new(lock.clone(), LONG) };
        let waiting = taker.start(Command::Acquire(ask));
        crowd.push((taker, waiting));
    }
    until_all_wait(&scene.store, count).await;
    // What it costs to wait is seen over some time only.
    let before = runs(&crowd);
    let_time_pass(Duration::from_secs(1)).await;
    let ran = runs(&crowd).saturating_sub(before);
    assert!(ran <= RUNS * count, "{count} waiting processes ran {ran} times within a second");
    let before = guard.fence();
    give_back(guard).await;
    let mut leaving = Vec::with_capacity(count);
    for (mut taker, waiting) in crowd {
        let lock = lock.clone();
        leaving.push(tokio::spawn(async move {
            let answer = taker.finish_slowly(waiting).await;
            let Answer::Granted(granted) = answer else { panic!("not granted: {answer:?}") };
            assert_eq!(taker.release(&lock).await, None);
            granted.fence
        }));
    }
    let drained = async {
        let mut fences = BTreeSet::from([before]);
        for process in leaving {
            fences.insert(process.await.expect("the process has left"));
        }
        fences
    };
    let fences = tokio::time::timeout(LIMIT, drained).await;
    let fences = fences.unwrap_or_else(|_| panic!("not drained within {LIMIT:?}"));
    assert_eq!((fences.len(), fences.first()), (count + 1, Some(&before)), "fences do not grow");
}

async fn hold(holder: &Client) -> LockGuard {
    let guard = holder.lock("report").ttl(TTL).acquire().await;
    guard.expect("the lock is free")
}

async fn give_back(guard: LockGuard) {
    assert!(guard.is_valid(), "the holder lost its lock while others came");
    let released = within("released", guard.release()).await.expect("the store answers");
    assert_eq!(released, Released::Freed);
}

async fn until_all_wait(store: &Arc<dyn Store>, count: usize) {
    let all_wait = || async {
        // A look reads the whole queue.
        let_time_pass(Duration::from_millis(100)).await;
        look(store, "report").await.waiters.len() == count
    };
    eventually_within(LIMIT, "all of them wait", all_wait).await;
}

/// How often the threads of the processes went to sleep so far.
fn runs<T>(crowd: &[(Taker, T)]) -> usize {
    crowd.iter().map(|(taker, _)| runs_of(taker.own_id())).sum()
}

fn runs_of(process: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let statuses =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let switches = |status: String| {
        let count =
            status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        count.trim().parse::<usize>().ok()
    };
    statuses.filter_map(switches).sum()
}
