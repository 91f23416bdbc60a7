//! The five verbs of `DistributedLock`, and `LeaderElection`, on each store.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod place;

use std::sync::Arc;
use std::time::Duration;

use place::{Place, on_each_store};
use sprag::{DistributedLock, LeaderElection, Locks, Loss, Operation, RetryConfig};

const SECOND: Duration = Duration::from_secs(1);

on_each_store! {
    basic_lock,
    concurrent_access,
    a_waiter_is_granted_when_the_holder_releases,
    the_schedule_bounds_the_wait,
    no_retry_fails_at_once,
    a_lock_ends_after_its_ttl_unless_extended,
    a_lost_lock_cannot_be_extended_nor_released,
    a_guard_of_another_client_is_refused,
    waiting_for_oneself_is_an_error,
    a_leader_leads_only_while_its_term_lasts,
    leadership_is_maintained_and_resigned,
}

async fn basic_lock(place: Place) {
    let lock = open(&place);

    let guard = lock.acquire("test", 10 * SECOND).await.unwrap();
    assert!(lock.is_locked("test").await.unwrap());

    drop(guard);
    until_free(&lock, "test").await;
}

async fn concurrent_access(place: Place) {
    let lock = Arc::new(open(&place));

    let mut handles = vec![];
    for _ in 0..10 {
        let lock = Arc::clone(&lock);
        handles.push(tokio::spawn(async move {
            lock.try_acquire("shared", 30 * SECOND).await.unwrap()
        }));
    }

    let results: Vec<_> = futures::future::join_all(handles).await;
    let acquired = results.iter().filter(|r| r.as_ref().unwrap().is_some()).count();

    assert_eq!(acquired, 1);
}

async fn a_waiter_is_granted_when_the_holder_releases(place: Place) {
    let (here, there) = (open(&place), open(&place));
    let guard = here.acquire("x", 30 * SECOND).await.unwrap();
    let first = guard.fence();
    let waiting = tokio::spawn(async move { there.acquire("x", 30 * SECOND).await });
    until(|| async { here.inspect("x").await.unwrap().is_contended() }).await;
    here.release(guard).await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.fence() > first);
    assert!(guard.time_remaining() > 20 * SECOND);
}

async fn the_schedule_bounds_the_wait(place: Place) {
    let retry = RetryConfig {
        max_attempts: 4,
        initial_delay: Duration::from_millis(50),
        max_delay: SECOND,
        backoff_multiplier: 2.0,
    };
    let (here, there) = (open(&place), open(&place).with_retry(retry));
    let guard = here.acquire("x", 30 * SECOND).await.unwrap();
    let start = there.clock().now();
    let error = there.acquire("x", SECOND).await.unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    assert!(there.clock().now().since(start) >= retry.total_wait());
    assert!(!here.inspect("x").await.unwrap().is_contended());
    drop(guard);
}

async fn no_retry_fails_at_once(place: Place) {
    let (here, there) = (open(&place), open(&place).with_retry(RetryConfig::no_retry()));
    let guard = here.acquire("x", 30 * SECOND).await.unwrap();
    assert!(there.acquire("x", SECOND).await.unwrap_err().is_held());
    assert!(there.try_acquire("x", SECOND).await.unwrap().is_none());
    drop(guard);
}

async fn a_lock_ends_after_its_ttl_unless_extended(place: Place) {
    let lock = open(&place);
    let mut extended = lock.acquire("extended", SECOND).await.unwrap();
    let left = lock.acquire("left", SECOND).await.unwrap();
    lock.extend(&mut extended, 60 * SECOND).await.unwrap();
    assert!(extended.time_remaining() > 50 * SECOND);
    assert_eq!(left.lost().await, Loss::Expired);
    assert!(extended.is_valid());
    assert_eq!(left.time_remaining(), Duration::ZERO);
}

async fn a_lost_lock_cannot_be_extended_nor_released(place: Place) {
    let (here, there) = (open(&place), open(&place));
    let mut old = here.acquire("x", Duration::from_millis(200)).await.unwrap();
    old.lost().await;
    assert!(here.extend(&mut old, SECOND).await.unwrap_err().is_lost());
    let new = there.acquire("x", 30 * SECOND).await.unwrap();
    assert!(new.fence() > old.fence());
    let error = here.release(old).await.unwrap_err();
    assert_eq!(error.loss(), Some(&Loss::Expired));
    assert_eq!(error.operation(), Operation::Release);
    let store = here.capability().store;
    assert_eq!(error.to_string(), format!("cannot release \"x\" on {store}: its lease expired"));
    assert!(new.is_valid() && there.is_locked("x").await.unwrap());
    there.release(new).await.unwrap();
}

async fn a_guard_of_another_client_is_refused(place: Place) {
    let (here, there) = (open(&place), open(&place));
    let mut guard = here.acquire("x", 30 * SECOND).await.unwrap();
    assert!(there.extend(&mut guard, SECOND).await.unwrap_err().is_bad_input());
    here.clone().extend(&mut guard, 60 * SECOND).await.unwrap();
    assert!(guard.time_remaining() > 50 * SECOND);
}

async fn waiting_for_oneself_is_an_error(place: Place) {
    let lock = open(&place);
    let guard = lock.acquire("x", 30 * SECOND).await.unwrap();
    assert!(lock.acquire("x", SECOND).await.unwrap_err().is_already_held_here());
    drop(guard);
}

async fn a_leader_leads_only_while_its_term_lasts(place: Place) {
    let mut old = LeaderElection::new(Arc::new(open(&place)), "c").with_ttl(SECOND);
    let mut new = LeaderElection::new(Arc::new(open(&place)), "c");
    assert!(old.epoch().is_none() && !old.is_leader());
    assert!(old.try_become_leader().await.unwrap());
    assert!(old.try_become_leader().await.unwrap());
    let epoch = old.epoch().unwrap();
    until(|| async { !old.is_leader() }).await;
    assert_eq!(old.epoch(), None);
    // The lock is free a moment later than the old leader believes, never earlier.
    while !new.try_become_leader().await.unwrap() {
        tokio::task::yield_now().await;
    }
    assert!(new.epoch().unwrap() > epoch);
    assert!(old.maintain_leadership().await.unwrap_err().is_lost());
    old.maintain_leadership().await.unwrap();
    assert!(!old.try_become_leader().await.unwrap());
}

async fn leadership_is_maintained_and_resigned(place: Place) {
    let locks = open(&place);
    let lock: Arc<dyn DistributedLock> = Arc::new(locks.clone());
    let mut one = LeaderElection::new(Arc::clone(&lock), "c").with_ttl(SECOND);
    assert!(one.try_become_leader().await.unwrap());
    let left = || async { locks.inspect("leader:c").await.unwrap().holders[0].remaining.unwrap() };
    until(|| async { left().await < SECOND / 2 }).await;
    one.maintain_leadership().await.unwrap();
    assert!(one.is_leader() && left().await > SECOND / 2);
    one.resign().await.unwrap();
    assert!(!one.is_leader() && !lock.is_locked("leader:c").await.unwrap());
    one.resign().await.unwrap();
}

#[tokio::test]
async fn a_schedule_that_makes_no_sense_is_bad_input() {
    let retry = RetryConfig { max_attempts: 0, ..RetryConfig::default() };
    let lock = Locks::open("memory:").unwrap().with_retry(retry);
    assert!(lock.acquire("x", SECOND).await.unwrap_err().is_bad_input());
    assert!(Locks::builder("memory:").retry(retry).open().unwrap_err().is_bad_input());
}

#[tokio::test]
async fn bad_names_and_ttls_are_bad_input() {
    let lock = Locks::open("memory:").unwrap();
    assert!(lock.acquire("", SECOND).await.unwrap_err().is_bad_input());
    assert!(lock.is_locked("").await.unwrap_err().is_bad_input());
    for ttl in [Duration::ZERO, Duration::from_millis(1), Duration::MAX] {
        assert!(lock.acquire("x", ttl).await.unwrap_err().is_bad_input(), "{ttl:?}");
    }
}

fn open(place: &Place) -> Locks {
    Locks::open(&place.url).unwrap()
}

async fn until_free(lock: &Locks, name: &str) {
    until(|| async { !lock.is_locked(name).await.unwrap() }).await;
}

/// Waits for a state, for at most 10 s.
async fn until<F: Future<Output = bool> + Send>(state: impl Fn() -> F + Send + Sync) {
    let wait = async {
        while !state().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(10 * SECOND, wait).await.expect("the state is reached in time");
}
