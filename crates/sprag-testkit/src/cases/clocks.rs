//! A machine that sleeps, and a time of day that jumps.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::Arc;

use sprag_core::clock::Clock as _;
use sprag_core::{Client, LockState, Loss, Released, Store};

use crate::bent_clock::BentClock;
use crate::fault::{Fault, FaultStore, Gate, Op};
use crate::harness::Harness;
use crate::support::{LONG, let_time_pass, now, spawn_acquire, until_unused, until_waiters, within};

fn bent(store: Arc<dyn Store>) -> (Client, Arc<BentClock>) {
    let clock = Arc::new(BentClock::default());
    let client = Client::builder(store).clock(Arc::clone(&clock) as _).build().unwrap();
    (client, clock)
}

/// F71: whoever sleeps past its lease has lost the lock when it wakes up: the first question says
/// so, nothing more is done under it, and what was being done is stopped.
pub async fn a_guard_is_lost_as_soon_as_its_machine_wakes_up(harness: &dyn Harness) {
    let store = harness.store().await;
    let (client, clock) = bent(Arc::clone(&store));
    let guard = client.lock("report").ttl(LONG).acquire().await.unwrap();
    let busy = client.lock("busy").ttl(LONG).acquire().await.unwrap();
    let work = tokio::spawn(async move {
        let stopped = busy.run(std::future::pending::<()>()).await;
        (busy, stopped)
    });
    assert!(guard.is_valid());
    clock.sleep(LONG);
    assert_eq!(guard.state(), LockState::Lost(Loss::Expired));
    assert_eq!(guard.ensure_valid().unwrap_err().loss(), Some(&Loss::Expired));
    assert!(guard.time_remaining().is_zero());
    let mut done = false;
    let error = guard.run(async { done = true }).await.unwrap_err();
    assert!(error.is_lost() && !done, "something was done under a lost lock");
    assert_eq!(within("the loss is told", guard.lost()).await, Loss::Expired);
    let (busy, stopped) = within("the work is stopped", work).await.unwrap();
    assert_eq!(stopped.unwrap_err().loss(), Some(&Loss::Expired));
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost(Loss::Expired));
    drop(busy);
    until_unused(&store, "report").await;
    until_unused(&store, "busy").await;
}

/// F71: an answer from before the sleep counts from before the sleep. A grant is confirmed by the
/// store before it is entered, and a renewal brings nothing back.
pub async fn an_answer_that_was_slept_over_counts_from_its_request(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (client, clock) = bent(Arc::clone(&faults) as _);
    let gate = Gate::new();
    faults.once(Op::TryAcquire, Fault::DelayReply(gate.clone()));
    let asking = spawn_acquire(client.lock("report").ttl(LONG));
    within("the store has granted it", gate.reached()).await;
    clock.sleep(LONG);
    gate.open();
    let guard = within("granted", asking).await.unwrap().unwrap();
    assert!(guard.is_valid() && guard.valid_until() > clock.now());
    let asked = faults.count(Op::Renew) + faults.count(Op::TryAcquire);
    assert!(asked > 1, "entered by an answer from before the sleep");
    guard.release().await.unwrap();

    let (ttl, gate) = (harness.ttl() * 5, Gate::new());
    faults.once(Op::Renew, Fault::DelayReply(gate.clone()));
    let guard = client.lock("report").ttl(ttl).acquire().await.unwrap();
    within("the store has renewed it", gate.reached()).await;
    clock.sleep(ttl);
    let lost = LockState::Lost(Loss::Expired);
    assert_eq!(guard.state(), lost);
    gate.open();
    let_time_pass(harness.ttl()).await;
    assert_eq!(guard.state(), lost, "a renewal from before the sleep brought it back");
}

/// FAULTS 23: the time of day jumps by hours, forward and back, for the holder and for the waiter:
/// no lease ends early, and none lasts longer.
pub async fn the_time_of_day_decides_nothing(harness: &dyn Harness) {
    let ((holder, here), (waiter, there)) =
        (bent(harness.store().await), bent(harness.store().await));
    let ttl = harness.ttl() * 2;
    let guard = holder.lock("report").ttl(ttl).acquire().await.unwrap();
    let waiting = spawn_acquire(waiter.lock("report").ttl(LONG));
    until_waiters(holder.store(), "report", 1).await;
    for hours in [1, -1, 24, 0] {
        here.set(hours);
        there.set(-hours);
        let_time_pass(ttl / 2).await;
        assert!(guard.is_valid() && !waiting.is_finished(), "decided by a clock that was set");
    }
    here.set(-1);
    let fence = guard.fence();
    guard.release().await.unwrap();
    let next = within("handed over", waiting).await.unwrap().unwrap();
    assert!(next.fence() > fence);
    next.release().await.unwrap();

    let fixed = holder.lock("report").ttl(ttl).no_renewal().acquire().await.unwrap();
    there.set(1);
    let next = within("its lease is over", waiter.lock("report").ttl(LONG).acquire()).await;
    assert!(now() >= fixed.valid_until(), "ended early");
    assert!(next.unwrap().fence() > fixed.fence() && !fixed.is_valid());
}
