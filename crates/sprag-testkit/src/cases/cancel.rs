//! Futures that are dropped half-way.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::fault::{Fault, FaultStore, Gate, Op};
use crate::harness::Harness;
use crate::support::{LONG, eventually_within, is_unused, look, now, until_waiters, within};

/// How soon nothing may be left of a cancelled request: long before any TTL.
const CLEANED_UP: Duration = Duration::from_secs(5);

/// Polls `future` at most `polls` times and drops it; `Some` if it was done before.
async fn poll_at_most<T: Send>(polls: usize, future: impl Future<Output = T> + Send) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// F04, FAULTS 2: an acquire dropped at any await point leaves no holder and no waiter.
pub async fn an_acquire_dropped_anywhere_leaves_nothing(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    faults.give_way(4);
    let client = faults.client();
    let mut acquired = None;
    for polls in 1..60 {
        let attempt = poll_at_most(polls, client.lock("report").ttl(LONG).acquire()).await;
        if let Some(guard) = attempt {
            acquired = Some(guard.unwrap());
            break;
        }
        let what = format!("nothing is left after {polls} polls");
        eventually_within(CLEANED_UP, &what, || is_unused(faults.inner(), "report")).await;
    }
    let guard = acquired.expect("with enough polls it is acquired");
    assert_eq!(look(faults.inner(), "report").await.holders[0].lease, guard.lease());
}

/// F04: the same while it waits behind a holder, and when it is handed the lock meanwhile.
pub async fn a_waiter_dropped_anywhere_leaves_nothing(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    faults.give_way(3);
    let (holder, client) = (harness.client().await, faults.client());
    for polls in 1..30 {
        let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
        let waiting = client.lock("report").ttl(LONG).wait(Duration::from_millis(40)).acquire();
        let outcome = poll_at_most(polls, waiting).await;
        assert!(!matches!(outcome, Some(Ok(_))), "granted beside a holder");
        let what = format!("only the holder is left after {polls} polls");
        let alone = || async { look(faults.inner(), "report").await.waiters.is_empty() };
        eventually_within(CLEANED_UP, &what, alone).await;
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
    for polls in 1..30 {
        let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
        let waiting = poll_at_most(polls, client.lock("report").ttl(LONG).acquire());
        let (waited, _) = tokio::join!(waiting, guard.release());
        drop(waited);
        let what = format!("nothing is left after {polls} polls and a hand-over");
        eventually_within(CLEANED_UP, &what, || is_unused(faults.inner(), "report")).await;
    }
}

/// FAULTS 2: cancelled after the store has granted the lock and before the answer came: the lock
/// is free at once and not after its TTL.
pub async fn cancelled_between_grant_and_reply(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (client, other) = (faults.client(), harness.client().await);
    let gate = Gate::new();
    faults.once(Op::TryAcquire, Fault::DelayReply(gate.clone()));
    let acquiring = tokio::spawn(client.lock("report").ttl(LONG).acquire());
    within("granted", gate.reached()).await;
    assert!(look(other.store(), "report").await.is_locked());
    acquiring.abort();
    let freed = now();
    drop(within("free again", other.lock("report").acquire()).await.unwrap());
    assert!(now().since(freed) < LONG / 2);
}

/// F04: a release dropped half-way is finished all the same.
pub async fn a_release_dropped_anywhere_is_finished(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    faults.give_way(3);
    let client = faults.client();
    for polls in 1..10 {
        let guard = client.lock("report").ttl(LONG).acquire().await.unwrap();
        drop(poll_at_most(polls, guard.release()).await);
        eventually_within(CLEANED_UP, "released", || is_unused(faults.inner(), "report")).await;
    }
}

/// F04: an extension dropped half-way leaves the lock valid and renewable.
pub async fn an_extension_dropped_anywhere_leaves_the_lock(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    faults.give_way(3);
    let client = faults.client();
    let mut guard = client.lock("report").ttl(LONG).acquire().await.unwrap();
    for polls in 1..10 {
        drop(poll_at_most(polls, guard.extend(LONG * 2)).await);
        assert!(guard.is_valid());
    }
    within("extended", guard.extend(LONG * 2)).await.unwrap();
    assert_eq!(look(faults.inner(), "report").await.holders[0].lease, guard.lease());
}

/// F77: several locks, cancelled anywhere: all that were taken are free again.
pub async fn several_locks_dropped_anywhere_leave_nothing(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    faults.give_way(2);
    let (holder, client) = (harness.client().await, faults.client());
    let guard = holder.lock("c").ttl(LONG).acquire().await.unwrap();
    for polls in 1..24 {
        let many = client.acquire_many(["a", "b", "c"], |lock| lock.ttl(LONG));
        let outcome = tokio::time::timeout(Duration::from_millis(50), poll_at_most(polls, many));
        assert!(!matches!(outcome.await, Ok(Some(_))), "granted beside a holder");
        for lock in ["a", "b"] {
            let what = format!("{lock} is free after {polls} polls");
            eventually_within(CLEANED_UP, &what, || is_unused(faults.inner(), lock)).await;
        }
        until_waiters(faults.inner(), "c", 0).await;
    }
    assert!(guard.is_valid());
}
