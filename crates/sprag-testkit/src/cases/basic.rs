//! Taking, trying, releasing: what every lock does.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::time::Duration;

use sprag_core::store::{Attempt, Listing};
use sprag_core::{LockState, Loss, Mode, Released, store};

use crate::harness::Harness;
use crate::support::{
    LONG, PATIENCE, let_time_pass, look, new_lease, request, spawn_acquire, timed, times, until_unused,
    until_waiters, within,
};

/// A granted lock is seen by others: who holds it, how, with which fence, for how long.
pub async fn a_granted_lock_is_seen_by_others(harness: &dyn Harness) {
    let (holder, other) = (harness.client().await, harness.client().await);
    let guard = holder.lock("report").ttl(LONG).reason("to see it").acquire().await.unwrap();
    assert_eq!(guard.state(), LockState::Held);
    assert!(guard.is_valid() && guard.time_remaining() <= LONG);

    let view = other.inspect("report").await.unwrap();
    assert_eq!((view.holders.len(), view.waiters.len()), (1, 0));
    let seen = &view.holders[0];
    assert_eq!((seen.lease, seen.fence), (guard.lease(), guard.fence()));
    assert_eq!((seen.mode, view.fence), (Mode::Exclusive, guard.fence()));
    assert_eq!(seen.holder.reason.as_deref(), Some("to see it"));
    assert!(seen.holder.since_unix_ms.is_some() && !seen.detached && !seen.upgrading);

    let listed = other.list(&Listing::default()).await.unwrap();
    assert_eq!(listed.locks.iter().map(|lock| lock.name.as_str()).collect::<Vec<_>>(), ["report"]);
    guard.release().await.unwrap();
    assert!(other.list(&Listing::default()).await.unwrap().locks.is_empty());
}

/// A second try reports that the lock is held, to another session and to another task of the
/// same one; held is an answer, not an error of the store.
pub async fn a_second_try_reports_held(harness: &dyn Harness) {
    let (holder, other) = (harness.client().await, harness.client().await);
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    for client in [&other, &holder] {
        assert!(client.lock("report").try_acquire().await.unwrap().is_none());
        let error = client.lock("report").no_wait().acquire().await.unwrap_err();
        assert!(error.is_held() && !error.is_timeout() && !error.is_unavailable(), "{error:?}");
        assert!(error.to_string().contains(&guard.fence().to_string()), "{error} names no holder");
    }
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    assert!(other.lock("report").try_acquire().await.unwrap().is_some());
}

/// A release that was answered has freed the lock: the next try of another session gets it.
pub async fn a_released_lock_is_free_at_once(harness: &dyn Harness) {
    let clients = [harness.client().await, harness.client().await];
    for round in 0..20 {
        let guard = clients[round % 2].lock("report").ttl(LONG).try_acquire().await.unwrap();
        let guard = guard.expect("free after the release was answered");
        assert_eq!(guard.release().await.unwrap(), Released::Freed);
    }
}

/// Release is idempotent: a second one of the same lease changes nothing and says so.
pub async fn a_second_release_changes_nothing(harness: &dyn Harness) {
    let store = harness.store().await;
    let first = request("report");
    assert!(matches!(store.try_acquire(&first).await.unwrap(), Attempt::Granted(_)));
    let answer = store.release(&first.name, first.lease).await.unwrap();
    assert_eq!(answer, store::Released::Freed);
    let second = request("report");
    assert!(matches!(store.try_acquire(&second).await.unwrap(), Attempt::Granted(_)));
    let answer = store.release(&first.name, first.lease).await.unwrap();
    assert_eq!(answer, store::Released::AlreadyGone(Loss::Released));
    assert_eq!(look(&store, "report").await.holders[0].lease, second.lease);
}

/// FAULTS 3: acquire is idempotent by lease id. Asked again it gives the same fence, and a lease
/// that is over is not granted a second time.
pub async fn an_acquire_is_recognised_by_its_lease(harness: &dyn Harness) {
    let store = harness.store().await;
    let asked = request("report");
    let first = store.try_acquire(&asked).await.unwrap();
    assert!(matches!(first, Attempt::Granted(_)));
    assert_eq!(store.try_acquire(&asked).await.unwrap(), first);
    assert_eq!(look(&store, "report").await.holders.len(), 1);
    store.release(&asked.name, asked.lease).await.unwrap();
    assert_eq!(store.try_acquire(&asked).await.unwrap(), Attempt::Gone(Loss::Released));
    until_unused(&store, "report").await;
}

/// FAULTS 22: whoever does not know the lease frees nothing, from whichever session.
pub async fn a_stranger_frees_nothing(harness: &dyn Harness) {
    let (store, other) = (harness.store().await, harness.store().await);
    let held = request("report");
    assert!(matches!(store.try_acquire(&held).await.unwrap(), Attempt::Granted(_)));
    for store in [&store, &other] {
        let answer = store.release(&held.name, new_lease()).await.unwrap();
        assert!(matches!(answer, store::Released::AlreadyGone(_)), "{answer:?}");
    }
    assert_eq!(look(&store, "report").await.holders[0].lease, held.lease);
}

/// F18: the task that holds a lock and asks for it again is told at once, instead of waiting for
/// itself for ever.
pub async fn a_task_that_holds_it_is_told_at_once(harness: &dyn Harness) {
    let client = harness.client().await;
    let guard = client.lock("report").ttl(LONG).acquire().await.unwrap();
    let (answer, took) = timed(client.lock("report").ttl(LONG).acquire()).await;
    let error = answer.unwrap_err();
    assert!(error.is_already_held_here() && error.is_deadlock(), "{error:?}");
    assert!(took < PATIENCE, "not at once: {took:?}");
    // A try is answered with held: it does not wait, so it does not wait for itself.
    assert!(client.lock("report").try_acquire().await.unwrap().is_none());
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    until_unused(client.store(), "report").await;
}

/// F18: another task of the same process waits for it like anybody else, and so does a future
/// with a party of its own.
pub async fn another_task_waits_for_it(harness: &dyn Harness) {
    let client = harness.client().await;
    let guard = client.lock("report").ttl(LONG).acquire().await.unwrap();
    let fence = guard.fence();
    let waiting = spawn_acquire(client.lock("report").ttl(LONG));
    until_waiters(client.store(), "report", 1).await;
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    let next = within("the other task is granted", waiting).await.unwrap().unwrap();
    assert!(next.fence() > fence);

    let own = client.lock("report").ttl(LONG).own_party().acquire();
    let free = async {
        until_waiters(client.store(), "report", 1).await;
        next.release().await.unwrap();
    };
    let (own, ()) = within("its own party is granted", async { tokio::join!(own, free) }).await;
    own.unwrap().release().await.unwrap();
}

/// FAULTS 5: a guard whose lease expired, released or dropped after the same client has acquired
/// the lock again, has no effect on the new hold.
pub async fn a_stale_guard_never_frees_its_successor(harness: &dyn Harness) {
    let client = harness.client().await;
    let ttl = harness.ttl();
    let stale = client.lock("report").ttl(ttl).no_renewal().acquire().await.unwrap();
    let dropped = client.lock("report").ttl(ttl).no_renewal();
    let_time_pass(ttl).await;
    let dropped = within("free after the TTL", dropped.acquire()).await.unwrap();
    let_time_pass(ttl).await;
    let current = within("free after the TTL", client.lock("report").ttl(LONG).acquire());
    let current = current.await.unwrap();
    assert_eq!(stale.release().await.unwrap(), Released::AlreadyLost(Loss::Expired));
    drop(dropped);
    // The keeper works in order: when this one is gone, the drop was served too.
    drop(client.lock("marker").acquire().await.unwrap());
    until_unused(client.store(), "marker").await;
    let view = look(client.store(), "report").await;
    assert_eq!(view.holders[0].lease, current.lease());
    assert!(current.is_valid());
}

/// FAULTS 7: a healthy lock is never reported lost, and the end by release is told as such.
pub async fn a_healthy_lock_is_not_lost(harness: &dyn Harness) {
    let client = harness.client().await;
    let ttl = Duration::from_millis(1500).max(harness.ttl());
    let guard = client.lock("report").ttl(ttl).acquire().await.unwrap();
    let mut lost = std::pin::pin!(guard.lost());
    // In full, for ten minutes.
    let long = ttl.mul_f64(1.5) * times(1, 270);
    let early = tokio::time::timeout(long, &mut lost).await;
    assert!(early.is_err(), "lost although healthy: {early:?}");
    assert_eq!(guard.state(), LockState::Held);
    guard.release().await.unwrap();
    assert_eq!(within("the release is told", lost).await, Loss::Released);
}
