//! The death of a process, as others see it.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use sprag_core::store::Attempt;
use sprag_core::{Client, Loss, Store};

use super::queue::has_queue;
use crate::harness::Harness;
use crate::support::{
    LONG, is_unused, let_time_pass, look, request, spawn_acquire, until_waiters, within,
};

/// F02: when a holder's process dies, a waiter is granted, long before the TTL where the store
/// notices deaths; the fence grows and nothing is left.
pub async fn a_dead_holder_is_succeeded(harness: &dyn Harness) {
    let client = harness.client().await;
    for _ in 0..3 {
        let session = harness.session().await;
        let doomed = Client::new(Arc::clone(&session) as Arc<dyn Store>);
        let ttl = if harness.sees_death() { LONG * 10 } else { harness.ttl() };
        let held = doomed.lock("report").ttl(ttl).acquire().await.unwrap();
        let waiting = spawn_acquire(client.lock("report").ttl(LONG));
        until_waiters(client.store(), "report", 1).await;
        session.kill();
        let next = within("granted after the death", waiting).await.unwrap().unwrap();
        assert!(next.fence() > held.fence());
        next.release().await.unwrap();
        assert!(is_unused(client.store(), "report").await);
        drop(held);
    }
}

/// F02: a session that died with many locks frees all of them, and one that lives none.
pub async fn a_death_frees_all_of_one_session_only(harness: &dyn Harness) {
    let (living, session) = (harness.client().await, harness.session().await);
    let doomed = Client::new(Arc::clone(&session) as Arc<dyn Store>);
    let ttl = if harness.sees_death() { LONG * 10 } else { harness.ttl() };
    let mut held = Vec::new();
    for number in 0..10 {
        held.push(doomed.lock(format!("doomed-{number}")).ttl(ttl).acquire().await.unwrap());
    }
    let kept = living.lock("kept").ttl(LONG).acquire().await.unwrap();
    session.kill();
    for number in 0..10 {
        let request = living.lock(format!("doomed-{number}")).ttl(LONG);
        within("free after the death", request.acquire()).await.unwrap().release().await.unwrap();
    }
    assert!(kept.is_valid());
    assert_eq!(look(living.store(), "kept").await.holders[0].lease, kept.lease());
}

/// F03, FAULTS 13: a hundred dead waiters ahead, at the head and in the middle of the queue, are
/// skipped and do not stall the living one by one.
pub async fn dead_waiters_are_skipped(harness: &dyn Harness) {
    let client = harness.client().await;
    if !has_queue(&client).await {
        return;
    }
    let (holder, session) = (harness.store().await, harness.session().await);
    let dead = harness.times(100);
    // Where only time tells, the first must not be over before the last has come.
    let arrivals = Duration::from_millis(30) * u32::try_from(dead).unwrap();
    let ttl = if harness.sees_death() { LONG * 10 } else { harness.ttl() * 3 + arrivals };
    let held = request("report");
    holder.try_acquire(&held).await.unwrap();
    let mut living = Vec::new();
    for number in 0..=dead {
        if number == dead / 2 {
            living.push(spawn_acquire(client.lock("report").ttl(LONG)));
        } else {
            let mut dying = request("report");
            (dying.queue, dying.ttl) = (true, ttl);
            let answer = session.try_acquire(&dying).await.unwrap();
            assert!(matches!(answer, Attempt::Queued(_)), "{answer:?}");
        }
        until_waiters(&holder, "report", number + 1).await;
    }
    living.push(spawn_acquire(client.lock("report").ttl(LONG)));
    until_waiters(&holder, "report", dead + 2).await;
    session.kill();
    holder.release(&held.name, held.lease).await.unwrap();
    for waiter in living {
        let guard = within("the living are granted", waiter).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
    assert!(is_unused(&holder, "report").await);
}

/// FAULTS 12: a waiter whose place is gone, because it gave no sign of life for a TTL, is told so
/// when it asks; it is never granted the lock afterwards and blocks nobody.
pub async fn a_waiter_that_was_given_up_is_told(harness: &dyn Harness) {
    let client = harness.client().await;
    if !has_queue(&client).await {
        return;
    }
    let store = harness.store().await;
    let (held, mut silent) = (request("report"), request("report"));
    (silent.queue, silent.ttl) = (true, harness.ttl());
    store.try_acquire(&held).await.unwrap();
    assert!(matches!(store.try_acquire(&silent).await.unwrap(), Attempt::Queued(_)));
    let living = spawn_acquire(client.lock("report").ttl(LONG));
    until_waiters(&store, "report", 2).await;
    let_time_pass(harness.ttl()).await;
    store.release(&held.name, held.lease).await.unwrap();
    let guard = within("the living is granted", living).await.unwrap().unwrap();
    assert_eq!(store.try_acquire(&silent).await.unwrap(), Attempt::Gone(Loss::Expired));
    assert_eq!(look(&store, "report").await.holders[0].lease, guard.lease());
}

/// FAULTS 12: a waiter whose session is dead to the others returns with an error; it does not
/// become the owner of a lock that nobody would free.
pub async fn a_waiter_without_a_session_never_owns(harness: &dyn Harness) {
    let (holder, session) = (harness.client().await, harness.session().await);
    let doomed = Client::new(Arc::clone(&session) as Arc<dyn Store>);
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    let waiting = spawn_acquire(doomed.lock("report").ttl(harness.ttl() * 3));
    until_waiters(holder.store(), "report", 1).await;
    session.kill();
    let error = within("the waiter returns", waiting).await.unwrap().unwrap_err();
    assert!(error.is_lost() || error.is_unavailable(), "{error:?}");
    guard.release().await.unwrap();
    let next = within("nobody is in the way", holder.lock("report").acquire()).await.unwrap();
    next.release().await.unwrap();
    assert!(is_unused(holder.store(), "report").await);
}
