//! Giving up everything at once.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::time::Duration;

use sprag_core::{Loss, Released};

use crate::fault::{Fault, FaultStore, Op};
use crate::harness::Harness;
use crate::support::{
    LONG, PATIENCE, is_unused, let_time_pass, spawn_acquire, timed, until_waiters, within,
};

/// Guards are lost, waiters return, locks are free, and nothing more can be acquired.
pub async fn a_shutdown_gives_up_everything(harness: &dyn Harness) {
    let (client, other) = (harness.client().await, harness.client().await);
    let taken = other.lock("taken").ttl(LONG).acquire().await.unwrap();
    let one = client.lock("one").ttl(LONG).acquire().await.unwrap();
    let two = client.lock("two").ttl(LONG).acquire().await.unwrap();
    let waiting = spawn_acquire(client.lock("taken").ttl(LONG));
    until_waiters(other.store(), "taken", 1).await;
    let left = within("shut down", client.shutdown(PATIENCE)).await;
    assert!(left.is_empty(), "{left:?} was not released");
    for lock in ["one", "two"] {
        assert!(is_unused(other.store(), lock).await);
    }
    assert_eq!(within("the guard is told", one.lost()).await, Loss::ShutDown);
    assert_eq!(two.ensure_valid().unwrap_err().loss(), Some(&Loss::ShutDown));
    assert_eq!(two.release().await.unwrap(), Released::AlreadyLost(Loss::ShutDown));
    let error = within("the waiter returns", waiting).await.unwrap().unwrap_err();
    assert!(error.is_shut_down(), "{error:?}");
    until_waiters(other.store(), "taken", 0).await;
    assert!(client.lock("more").acquire().await.unwrap_err().is_shut_down());
    assert!(client.shutdown(PATIENCE).await.is_empty(), "a second one has nothing to do");
    assert!(taken.is_valid());
}

/// What could not be released in time is reported by name, and the time is kept.
pub async fn a_shutdown_reports_what_is_left(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    let guard = client.lock("stuck").ttl(LONG).acquire().await.unwrap();
    let freed = client.lock("freed").ttl(LONG).acquire().await.unwrap();
    freed.release().await.unwrap();
    faults.always(Op::Release, Fault::LoseRequest);
    let limit = Duration::from_millis(300);
    let (left, took) = timed(client.shutdown(limit)).await;
    assert_eq!(left.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["stuck"]);
    assert!(took >= limit && took < limit + PATIENCE, "{took:?}");
    assert!(!guard.is_valid(), "given up all the same");
}

/// A lock that could not be released is not reported any more once the store has freed it.
pub async fn what_the_store_has_freed_is_not_reported(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (client, ttl) = (faults.client(), harness.ttl());
    let guard = client.lock("stuck").ttl(ttl).acquire().await.unwrap();
    faults.always(Op::Release, Fault::LoseRequest);
    drop(guard);
    // It tries for one TTL, and the store needs another at most.
    let_time_pass(ttl * 3).await;
    let left = within("shut down", client.shutdown(LONG)).await;
    assert!(left.is_empty(), "{left:?} is long free");
}
