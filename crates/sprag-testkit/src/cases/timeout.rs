//! Waiting: not at all, for so long, for ever.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::time::Duration;

use crate::harness::Harness;
use crate::support::{
    LONG, PATIENCE, now, spawn_acquire, timed, times, until_unused, until_waiters, within,
};

/// FAULTS 16: a waiting time of zero tries once.
pub async fn no_time_to_wait_means_one_try(harness: &dyn Harness) {
    let (holder, other) = (harness.client().await, harness.client().await);
    let guard = other.lock("report").wait(Duration::ZERO).acquire().await;
    guard.unwrap().release().await.unwrap();
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    let (answer, took) = timed(other.lock("report").wait(Duration::ZERO).acquire()).await;
    assert!(answer.unwrap_err().is_held());
    assert!(took < PATIENCE, "it waited {took:?}");
    assert!(guard.is_valid());
}

/// FAULTS 16: a timeout is waited out, not less and not much more, and its error is not that of
/// a store that cannot be reached.
pub async fn a_timeout_is_waited_out(harness: &dyn Harness) {
    let (holder, other) = (harness.client().await, harness.client().await);
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    let longer = (0..times(0, 20)).map(|_| Duration::from_secs(5));
    for wait in [1, 300].map(Duration::from_millis).into_iter().chain(longer) {
        let (answer, took) = timed(other.lock("report").wait(wait).acquire()).await;
        let error = answer.unwrap_err();
        assert!(error.is_timeout() && !error.is_held() && !error.is_unavailable(), "{error:?}");
        assert!(took >= wait, "gave up after {took:?} of {wait:?}");
        assert!(took < wait + PATIENCE, "took {took:?} for {wait:?}");
    }
    assert_eq!(other.inspect("report").await.unwrap().waiters.len(), 0);
    assert!(guard.is_valid());
}

/// FAULTS 16: a lock that is freed while the time is not over yet is acquired then.
pub async fn a_lock_freed_in_time_is_acquired(harness: &dyn Harness) {
    let (holder, other) = (harness.client().await, harness.client().await);
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    let waiting = spawn_acquire(other.lock("report").ttl(LONG).wait(LONG));
    until_waiters(holder.store(), "report", 1).await;
    let freed = now();
    guard.release().await.unwrap();
    let next = within("granted after the release", waiting).await.unwrap().unwrap();
    assert!(now().since(freed) < PATIENCE);
    assert!(next.is_valid());
}

/// FAULTS 16: without a limit it waits until the lock is free, however long the holder renews.
pub async fn without_a_limit_it_waits(harness: &dyn Harness) {
    let (holder, other) = (harness.client().await, harness.client().await);
    let ttl = Duration::from_secs(1).max(2 * harness.ttl());
    let guard = holder.lock("report").ttl(ttl).acquire().await.unwrap();
    let mut waiting = spawn_acquire(other.lock("report").ttl(ttl).wait_forever());
    let early = tokio::time::timeout(ttl.mul_f64(1.5), &mut waiting).await;
    assert!(early.is_err(), "it did not wait: {early:?}");
    assert!(guard.is_valid(), "the holder renews");
    guard.release().await.unwrap();
    drop(within("granted after the release", waiting).await.unwrap().unwrap());
}

/// FAULTS 18: a limit beyond all time is a limit like any other.
pub async fn an_endless_limit_does_not_overflow(harness: &dyn Harness) {
    let (holder, other) = (harness.client().await, harness.client().await);
    let guard = holder.lock("report").ttl(LONG).wait(Duration::MAX).acquire().await.unwrap();
    let waiting = spawn_acquire(other.lock("report").wait(Duration::MAX).max_hold(Duration::MAX));
    until_waiters(holder.store(), "report", 1).await;
    guard.release().await.unwrap();
    let next = within("granted after the release", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
    until_unused(holder.store(), "report").await;
}
