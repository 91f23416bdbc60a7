//! Losing a lock: when, told how, and never before it is true.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use sprag_core::{LockState, Loss, Released};

use crate::fault::{Fault, FaultStore, Op};
use crate::harness::Harness;
use crate::support::{
    LONG, block_this_thread, eventually, is_unused, let_time_pass, now, times, until_unused, within,
};

/// How long after the deadline the task that waits for the loss may be told, on a busy machine.
const TOLD_WITHIN: Duration = Duration::from_millis(400);
/// How much later than the next holder's, where each runs when the machine lets it.
const BESIDE: Duration = Duration::from_millis(100);

/// F35: where locks end with a session, its end is the end of what is held, whatever their TTL: a
/// guard says so at once, also to who does not wait to be told.
pub async fn the_end_of_the_session_is_the_end_of_the_lock(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    let guard = client.lock("report").ttl(LONG).acquire().await.unwrap();
    assert!(guard.is_valid());
    faults.sever();
    assert!(!guard.is_valid(), "a lock without a session");
    assert_eq!(guard.ensure_valid().unwrap_err().loss(), Some(&Loss::SessionDied));
    assert_eq!(within("the loss is told", guard.lost()).await, Loss::SessionDied);
}

/// F01, FAULTS 7: without renewal the lock is lost at the holder's own deadline, which is before
/// the store frees it; the next holder has a larger fence.
pub async fn an_expired_lease_is_lost_before_it_is_free(harness: &dyn Harness) {
    let (client, other) = (harness.client().await, harness.client().await);
    let ttl = harness.ttl();
    let guard = client.lock("report").ttl(ttl).no_renewal().acquire().await.unwrap();
    let deadline = guard.valid_until();
    let guard = Arc::new(guard);
    let next = tokio::spawn({
        let guard = Arc::clone(&guard);
        async move {
            let next = other.lock("report").ttl(LONG).acquire().await.unwrap();
            (now(), guard.is_valid(), next)
        }
    });
    assert_eq!(within("the loss is told", guard.lost()).await, Loss::Expired);
    let told = now();
    let (granted, both, next) = within("free for another", next).await.unwrap();
    assert!(told >= deadline, "told before it was true");
    assert!(told < deadline.plus(TOLD_WITHIN), "told {:?} too late", told.since(deadline));
    assert!(granted >= deadline, "another was granted before the holder's deadline");
    assert!(!both, "two believed to hold it");
    assert!(told <= granted.plus(BESIDE), "told {:?} after the grant", told.since(granted));
    let guard = Arc::into_inner(guard).unwrap();
    assert_eq!(guard.state(), LockState::Lost(Loss::Expired));
    assert_eq!(guard.ensure_valid().unwrap_err().loss(), Some(&Loss::Expired));
    assert_eq!(guard.time_remaining(), Duration::ZERO);
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost(Loss::Expired));
    assert!(next.is_valid(), "the late release freed the successor's lock");
}

/// FAULTS 7: a holder that is cut off from the store knows at its own deadline that it has lost
/// the lock, without hearing from the store.
pub async fn a_holder_that_is_cut_off_knows_it_in_time(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    for (lock, fault) in [("refused", Fault::LoseRequest), ("silent", Fault::Hang)] {
        let client = faults.client();
        let guard = client.lock(lock).ttl(harness.ttl()).acquire().await.unwrap();
        faults.everything(fault);
        let loss = within("the loss is told", guard.lost()).await;
        let (told, deadline) = (now(), guard.valid_until());
        assert!(matches!(loss, Loss::Unreachable | Loss::Expired), "{loss:?}");
        assert!(told >= deadline, "lost before its time");
        assert!(told < deadline.plus(TOLD_WITHIN), "told {:?} too late", told.since(deadline));
        assert!(!guard.is_valid());
        faults.heal();
    }
}

/// F09, FAULTS 8: renewals whose requests or replies are lost make a guard suspect, not dead;
/// when the store can be reached again in time, the lock is kept and renewed as before.
pub async fn failed_renewals_do_not_lose_the_lock(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    let ttl = Duration::from_secs(2).max(harness.ttl());
    let guard = client.lock("report").ttl(ttl).acquire().await.unwrap();
    let first = guard.valid_until();
    faults.once(Op::Renew, Fault::LoseRequest);
    faults.once(Op::Renew, Fault::LoseReply);
    eventually("the first renewal has failed", || async { guard.state() == LockState::Suspect })
        .await;
    assert!(guard.is_valid(), "suspect is still valid");
    eventually("renewed again", || async { guard.state() == LockState::Held }).await;
    assert!(guard.valid_until() > first);
    let again = guard.valid_until();
    eventually("renewed as before", || async { guard.valid_until() > again }).await;
    assert!(guard.is_valid());
    assert_eq!(guard.release().await.unwrap(), Released::Freed);

    // The next acquire is renewed, too.
    let guard = client.lock("report").ttl(ttl).acquire().await.unwrap();
    let first = guard.valid_until();
    eventually("the next one is renewed", || async { guard.valid_until() > first }).await;
}

/// F09: replies to renewals that stay lost never let a guard believe in the lock for longer than
/// the store does.
pub async fn lost_replies_to_renewals_never_stretch_the_belief(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (client, other) = (faults.client(), harness.client().await);
    let guard = client.lock("report").ttl(harness.ttl()).acquire().await.unwrap();
    let believed = guard.valid_until();
    faults.always(Op::Renew, Fault::LoseReply);
    within("the loss is told", guard.lost()).await;
    assert_eq!(guard.valid_until(), believed, "an unknown answer counted as a renewal");
    // The store has renewed it, so it is free later than the holder thinks, and only then.
    let next = within("free in the end", other.lock("report").ttl(LONG).acquire()).await.unwrap();
    assert!(next.fence() > guard.fence());
}

/// F06: `max_hold` ends the renewals of a holder that hangs.
pub async fn max_hold_gives_the_lock_up(harness: &dyn Harness) {
    let (client, other) = (harness.client().await, harness.client().await);
    let ttl = harness.ttl();
    let started = now();
    let request = client.lock("report").ttl(ttl).max_hold(ttl * 2);
    let guard = request.acquire().await.unwrap();
    let next = tokio::spawn(other.lock("report").ttl(LONG).acquire());
    let loss = within("the loss is told", guard.lost()).await;
    // A machine so busy that the lease could not be renewed in time loses it before.
    assert!(matches!(loss, Loss::MaxHold | Loss::Expired | Loss::Unreachable), "{loss:?}");
    if loss == Loss::MaxHold {
        assert!(now().since(started) >= ttl * 2, "given up too early");
    }
    drop(within("free for another", next).await.unwrap().unwrap());
}

/// FAULTS 7: `guard.run` stops the work when the lock is lost, and passes its result on when not.
pub async fn work_is_stopped_when_the_lock_is_lost(harness: &dyn Harness) {
    let client = harness.client().await;
    let guard = client.lock("report").ttl(LONG).acquire().await.unwrap();
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    guard.release().await.unwrap();

    let guard = client.lock("report").ttl(harness.ttl()).no_renewal().acquire().await.unwrap();
    let endless = guard.run(std::future::pending::<()>());
    let error = within("the work is stopped", endless).await.unwrap_err();
    assert_eq!(error.loss(), Some(&Loss::Expired), "{error:?}");
    // Work that does not start any more, and work that outlived the lease.
    assert!(guard.run(async {}).await.unwrap_err().is_lost());
    let guard = client.lock("work").ttl(harness.ttl()).no_renewal().acquire().await.unwrap();
    let ttl = harness.ttl();
    let outlived = guard.run(async move { block_this_thread(ttl) }).await;
    assert!(outlived.unwrap_err().is_lost(), "done after the lease has ended");
}

/// FAULTS 1: a renewal that is on its way when the lock is released never brings it back, nor
/// does it move the end of anybody's lease.
pub async fn a_late_renewal_never_revives(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    // The shortest lease there is renews the most often.
    let ttl = client.capability().min_ttl.max(harness.ttl() / 4);
    for cycle in 0..times(40, 10_000) {
        let guard = client.lock("report").ttl(ttl).acquire().await.unwrap();
        // Released at another moment of the renewal's life each time.
        let_time_pass(ttl.mul_f64(f64::from(cycle % 8) / 20.0)).await;
        guard.release().await.unwrap();
        assert!(is_unused(client.store(), "report").await, "held after its release");
    }
    // Every renewal that ever was, once more.
    for call in faults.calls().iter().filter(|call| call.op() == Op::Renew) {
        faults.replay(call).await;
    }
    assert!(is_unused(client.store(), "report").await, "revived");
    until_unused(client.store(), "report").await;
}
