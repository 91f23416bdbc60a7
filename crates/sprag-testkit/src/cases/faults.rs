//! Requests and replies that get lost, late or doubled.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::time::Duration;

use sprag_core::{ErrorKind, Mode, Released};

use crate::fault::{Fault, FaultStore, Op};
use crate::harness::Harness;
use crate::support::{
    LONG, PATIENCE, eventually, is_unused, let_time_pass, look, spawn_acquire, timed,
    until_unused, until_waiters, within,
};

/// F07, FAULTS 3: an acquire whose reply was lost finds its own grant: one holder, one fence, and
/// validity counted from the first request.
pub async fn a_lost_reply_to_an_acquire_is_recovered(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    for fault in [Fault::LoseReply, Fault::LoseRequest] {
        let before = faults.count(Op::TryAcquire);
        let fence = look(faults.inner(), "report").await.fence;
        faults.once(Op::TryAcquire, fault);
        let sent = crate::support::now();
        let guard = client.lock("report").ttl(LONG).acquire().await.unwrap();
        let view = look(faults.inner(), "report").await;
        assert_eq!(view.holders.len(), 1);
        assert_eq!((view.holders[0].lease, view.fence), (guard.lease(), guard.fence()));
        assert!(guard.fence() > fence);
        assert_eq!(faults.count(Op::TryAcquire), before + 2);
        let at_most = sent.plus(LONG + Duration::from_millis(10));
        assert!(guard.valid_until() < at_most, "validity does not count from the first request");
        assert_eq!(guard.release().await.unwrap(), Released::Freed);
    }
}

/// F07: the same for a waiter that is granted the lock in the very request whose reply is lost.
pub async fn a_waiters_lost_replies_are_recovered(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (holder, client) = (harness.client().await, faults.client());
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    // Joining the queue, and the look after the hand-over.
    faults.times(2, Op::TryAcquire, Fault::LoseReply);
    let waiting = spawn_acquire(client.lock("report").ttl(LONG));
    until_waiters(holder.store(), "report", 1).await;
    eventually("asked three times", || async { faults.count(Op::TryAcquire) >= 3 }).await;
    faults.once(Op::TryAcquire, Fault::LoseReply);
    guard.release().await.unwrap();
    let guard = within("granted", waiting).await.unwrap().unwrap();
    let view = look(holder.store(), "report").await;
    assert_eq!((view.holders.len(), view.waiters.len()), (1, 0));
    assert_eq!(view.holders[0].fence, guard.fence());
}

/// F08: a release whose reply was lost is asked again and counts as done.
pub async fn a_lost_reply_to_a_release_is_recovered(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    for fault in [Fault::LoseReply, Fault::LoseRequest] {
        let before = faults.count(Op::Release);
        let guard = client.lock("report").ttl(LONG).acquire().await.unwrap();
        faults.times(2, Op::Release, fault);
        assert_eq!(guard.release().await.unwrap(), Released::Freed);
        assert_eq!(faults.count(Op::Release), before + 3);
        assert!(is_unused(faults.inner(), "report").await);
    }
    // The same when the guard is dropped.
    faults.times(2, Op::Release, Fault::LoseRequest);
    drop(client.lock("report").ttl(LONG).acquire().await.unwrap());
    until_unused(faults.inner(), "report").await;
}

/// FAULTS 4: the reply to a release is lost, the same client acquires again, and then the old
/// release arrives once more: the new hold survives.
pub async fn a_late_release_does_not_free_the_next_hold(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    let old = client.lock("report").ttl(LONG).acquire().await.unwrap();
    faults.once(Op::Release, Fault::LoseReply);
    old.release().await.unwrap();
    let mut new = client.lock("report").ttl(LONG).acquire().await.unwrap();
    for call in faults.calls().iter().filter(|call| call.op() == Op::Release) {
        faults.replay(call).await;
    }
    assert_eq!(look(faults.inner(), "report").await.holders[0].lease, new.lease());
    new.extend(LONG).await.unwrap();
}

/// F62: requests that a network delivers once more much later change nothing: the lock stays
/// free, or stays with whoever has it by then.
pub async fn late_duplicates_change_nothing(harness: &dyn Harness) {
    late_conversions_change_nothing(harness).await;
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    let mut guard = client.lock("report").ttl(LONG).acquire().await.unwrap();
    guard.extend(LONG).await.unwrap();
    guard.release().await.unwrap();
    for call in &faults.calls() {
        faults.replay(call).await;
    }
    assert!(is_unused(faults.inner(), "report").await, "a duplicate took the lock");
    let other = harness.client().await;
    let current = other.lock("report").ttl(LONG).acquire().await.unwrap();
    let before = look(faults.inner(), "report").await;
    for call in &faults.calls() {
        faults.replay(call).await;
    }
    let after = look(faults.inner(), "report").await;
    assert_eq!((after.holders.len(), after.waiters.len()), (1, 0));
    assert_eq!((after.holders[0].lease, after.fence), (current.lease(), before.fence));
}

/// Conversions too: each compares the fence that its sender believed in.
async fn late_conversions_change_nothing(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    if !faults.inner().capability().shared {
        return;
    }
    let client = faults.client();
    let mut guard = client.lock("table").upgradable().ttl(LONG).acquire().await.unwrap();
    guard.upgrade().await.unwrap();
    guard.downgrade(Mode::Upgradable).await.unwrap();
    guard.upgrade().await.unwrap();
    guard.downgrade(Mode::Shared).await.unwrap();
    assert!(guard.try_upgrade().await.unwrap());
    let before = look(faults.inner(), "table").await;
    let conversions = faults.calls().into_iter().filter(|call| call.op() == Op::Convert);
    // Newest first: the old ones come after what followed them.
    for call in conversions.collect::<Vec<_>>().iter().rev() {
        faults.replay(call).await;
        let after = look(faults.inner(), "table").await;
        let [held, was] = [&after, &before].map(|view| (view.holders[0].mode, view.fence));
        assert_eq!(held, was, "{call:?}");
    }
    assert_eq!((guard.mode(), guard.fence()), (Mode::Exclusive, before.fence));
    guard.release().await.unwrap();
}

/// F62: an acquire that arrives once more after so many others that the store has forgotten it
/// may take the lock for nobody, but it breaks no exclusion and is over after its own TTL.
pub async fn a_very_late_duplicate_ends_by_itself(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (client, other) = (faults.client(), harness.client().await);
    let ttl = harness.ttl();
    client.lock("report").ttl(ttl).acquire().await.unwrap().release().await.unwrap();
    for _ in 0..20 {
        other.lock("report").ttl(LONG).acquire().await.unwrap().release().await.unwrap();
    }
    let current = other.lock("report").ttl(LONG).acquire().await.unwrap();
    let old = faults.calls().into_iter().find(|call| call.op() == Op::TryAcquire).unwrap();
    faults.replay(&old).await;
    assert_eq!(look(faults.inner(), "report").await.holders[0].lease, current.lease());
    current.release().await.unwrap();
    faults.replay(&old).await;
    let_time_pass(ttl).await;
    until_unused(faults.inner(), "report").await;
}

/// FAULTS 17: a store that is down is reported as unavailable, neither as held nor as a timeout,
/// after a bounded number of requests and no endless loop.
pub async fn a_store_that_is_down_is_reported(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    faults.everything(Fault::LoseRequest);
    for request in [client.lock("report").wait_forever(), client.lock("report").no_wait()] {
        let before = faults.calls().len();
        let (answer, took) = timed(request.acquire()).await;
        let error = answer.unwrap_err();
        assert!(error.is_unavailable() && !error.is_held() && !error.is_timeout(), "{error:?}");
        assert!(took < PATIENCE, "took {took:?}");
        assert!(faults.count(Op::TryAcquire) <= before + 10, "{:?}", faults.calls().len());
    }
    let asked = faults.calls().len();
    let_time_pass(Duration::from_millis(300)).await;
    assert!(faults.calls().len() <= asked + 30, "requests go on by themselves, and too often");
    faults.heal();
    client.lock("report").acquire().await.unwrap().release().await.unwrap();
}

/// FAULTS 17: a store that does not answer at all is reported, too.
pub async fn a_store_that_hangs_is_reported(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    faults.everything(Fault::Hang);
    let request = client.lock("report").ttl(harness.ttl());
    let error = within("answered", request.acquire()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert!(faults.count(Op::TryAcquire) <= 10);
}

/// FAULTS 17: an error that will not pass is told at once and not asked again.
pub async fn a_lasting_error_is_told_at_once(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    for kind in [ErrorKind::Corrupt, ErrorKind::Refused, ErrorKind::StoreFull] {
        let before = faults.count(Op::TryAcquire);
        faults.once(Op::TryAcquire, Fault::Refuse(kind.clone()));
        let error = client.lock("report").acquire().await.unwrap_err();
        assert_eq!(*error.kind(), kind);
        assert_eq!(faults.count(Op::TryAcquire), before + 1);
    }
}

/// FAULTS 17: a waiter gets over a store that is away for a moment and keeps its place.
pub async fn a_waiter_gets_over_a_short_outage(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (holder, client) = (harness.client().await, faults.client());
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    let waiting = spawn_acquire(client.lock("report").ttl(LONG));
    until_waiters(holder.store(), "report", 1).await;
    let asked = faults.count(Op::TryAcquire);
    faults.times(2, Op::TryAcquire, Fault::LoseRequest);
    eventually("over it", || async { faults.count(Op::TryAcquire) >= asked + 3 }).await;
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    drop(within("granted", waiting).await.unwrap().unwrap());
}

/// FAULTS 16: the time to wait is over when it is over, although the store does not answer.
pub async fn a_timeout_is_kept_in_an_outage(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (holder, client) = (harness.client().await, faults.client());
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    let wait = Duration::from_secs(3);
    let waiting = spawn_acquire(client.lock("report").ttl(LONG).wait(wait));
    until_waiters(holder.store(), "report", 1).await;
    faults.everything(Fault::LoseRequest);
    let (answer, took) = timed(within("gives up", waiting)).await;
    let error = answer.unwrap().unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert!(took < wait * 2, "it took {took:?} to wait for {wait:?}");
    assert!(guard.is_valid());
}
