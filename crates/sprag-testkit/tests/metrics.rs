//! The client's metrics, by their names, and what never is in their labels.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use sprag_core::{Client, MemoryStore, Strategy};
use sprag_testkit::fault::{Fault, FaultStore, Op};
use sprag_testkit::support::{LONG, let_time_pass, spawn_acquire, until_waiters, within};

/// Every name that the client promises.
const PROMISED: [&str; 13] = [
    "sprag_acquire_duration_seconds",
    "sprag_breaks_total",
    "sprag_contended_acquires_total",
    "sprag_deadlocks_total",
    "sprag_hold_duration_seconds",
    "sprag_locks_held",
    "sprag_lost_total",
    "sprag_renewal_margin_seconds",
    "sprag_renewals_total",
    "sprag_store_request_duration_seconds",
    "sprag_store_retries_total",
    "sprag_takeovers_total",
    "sprag_waiters",
];

/// What the locks and holders of this test are called; no label may contain it.
const SECRET: &str = "very-private-name";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_promised_metrics_are_there_and_name_no_lock() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    recorder.install().unwrap();

    let place = MemoryStore::new();
    let faults = FaultStore::new(Arc::new(place.connect()));
    let holder = sprag_core::Holder::new(SECRET, SECRET);
    let build = |store| Client::builder(store).holder(holder.clone()).allow_force(true).build();
    let one = build(Arc::clone(&faults) as _).unwrap();
    let two = build(Arc::new(place.connect()) as _).unwrap();
    exercise(&one, &two, &faults).await;

    let mut seen = BTreeSet::new();
    for (key, _, _, value) in snapshots.snapshot().into_vec() {
        let key = key.key();
        if key.name() == "sprag_takeovers_total" {
            assert_eq!(value, DebugValue::Counter(1), "{key}");
        }
        seen.insert(key.name().to_owned());
        for label in key.labels() {
            assert!(!label.value().contains(SECRET), "{key} names a lock or a holder");
        }
    }
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), PROMISED);
}

/// Does everything that is counted.
async fn exercise(one: &Client, two: &Client, faults: &Arc<FaultStore>) {
    let lock = |client: &Client, ttl| client.lock(SECRET).ttl(ttl);
    // Contended, waited for, released; a lost reply; renewed.
    faults.once(Op::TryAcquire, Fault::LoseReply);
    let guard = lock(one, Duration::from_millis(600)).acquire().await.unwrap();
    let waiting = spawn_acquire(lock(two, LONG));
    until_waiters(two.store(), SECRET, 1).await;
    let renewed = guard.valid_until();
    let again = || async { guard.valid_until() > renewed };
    sprag_testkit::support::eventually("renewed", again).await;
    guard.release().await.unwrap();
    let guard = within("granted", waiting).await.unwrap().unwrap();
    // Broken, stolen, expired.
    one.evict(SECRET, guard.fence(), "for the test").await.unwrap();
    drop(guard);
    let short = Duration::from_millis(600);
    let held = lock(two, LONG).acquire().await.unwrap();
    let stolen = lock(one, LONG).strategy(Strategy::ForceAcquire).acquire().await.unwrap();
    drop(held);
    stolen.release().await.unwrap();
    // Ready to steal, but the holder left by itself: not counted.
    let held = lock(two, short).no_renewal().acquire().await.unwrap();
    let steal = Strategy::StealStale { after: short / 2 };
    lock(one, LONG).strategy(steal).acquire().await.unwrap().release().await.unwrap();
    drop(held);
    let guard = lock(one, short).no_renewal().acquire().await.unwrap();
    within("lost", guard.lost()).await;
    let_time_pass(short).await;
    drop(guard);
    // A deadlock.
    let task = |client: &Client, first: String, second: String| {
        let client = client.clone();
        tokio::spawn(async move {
            let first = client.lock(first).ttl(LONG).acquire().await?;
            let_time_pass(Duration::from_millis(300)).await;
            client.lock(second).ttl(LONG).acquire().await.map(|second| drop((first, second)))
        })
    };
    let (a, b) = (format!("{SECRET}-a"), format!("{SECRET}-b"));
    let (first, second) = (task(one, a.clone(), b.clone()), task(two, b, a));
    let (first, second) = within("found", async { tokio::join!(first, second) }).await;
    assert!(first.unwrap().is_err() != second.unwrap().is_err());
}
