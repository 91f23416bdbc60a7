//! From reading to writing and back.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use sprag_core::Mode;

use super::rw::has_readers;
use crate::fault::{Fault, FaultStore, Op};
use crate::harness::Harness;
use crate::support::{LONG, eventually, look, spawn_acquire, until_unused, until_waiters, within};

/// F63, FAULTS 22: two readers that want to write at once do not wait for each other for ever:
/// neither may wait, and the last one left is upgraded with a new fence.
pub async fn two_readers_that_upgrade_do_not_hang(harness: &dyn Harness) {
    let (one, two) = (harness.client().await, harness.client().await);
    if !has_readers(&one).await {
        return;
    }
    let mut first = one.lock("config").shared().ttl(LONG).acquire().await.unwrap();
    let mut second = two.lock("config").shared().ttl(LONG).acquire().await.unwrap();
    let upgrades = async { tokio::join!(first.upgrade(), second.upgrade()) };
    let (a, b) = within("both are answered", upgrades).await;
    assert!(a.unwrap_err().is_deadlock() && b.unwrap_err().is_deadlock());
    assert!(!first.try_upgrade().await.unwrap());
    assert!(first.is_valid() && second.is_valid());
    assert_eq!((first.mode(), second.mode()), (Mode::Shared, Mode::Shared));
    first.release().await.unwrap();
    let before = second.fence();
    assert!(second.try_upgrade().await.unwrap());
    assert_eq!(second.mode(), Mode::Exclusive);
    assert!(second.fence() > before);
    assert!(one.lock("config").shared().try_acquire().await.unwrap().is_none());
}

/// FAULTS 22: an upgradable reader reads beside plain readers, never beside another upgradable
/// one; its upgrade waits until they have left, keeps new ones out, and takes a new fence.
pub async fn an_upgrade_waits_for_the_readers(harness: &dyn Harness) {
    let (one, two) = (harness.client().await, harness.client().await);
    if !has_readers(&one).await {
        return;
    }
    let reader = two.lock("config").shared().ttl(LONG).acquire().await.unwrap();
    let mut guard = one.lock("config").upgradable().ttl(LONG).acquire().await.unwrap();
    assert!(two.lock("config").upgradable().try_acquire().await.unwrap().is_none());
    let before = guard.fence();
    assert!(!guard.try_upgrade().await.unwrap(), "upgraded beside a reader");
    let upgrading = tokio::spawn(async move {
        guard.upgrade().await.unwrap();
        guard
    });
    let pending = || async { look(two.store(), "config").await.holders.iter().any(|h| h.upgrading) };
    eventually("the upgrade is pending", pending).await;
    let late = two.lock("config").shared().try_acquire().await.unwrap();
    assert!(late.is_none(), "a reader overtook the upgrade");
    assert!(!upgrading.is_finished());
    reader.release().await.unwrap();
    let guard = within("upgraded", upgrading).await.unwrap();
    assert_eq!(guard.mode(), Mode::Exclusive);
    assert!(guard.fence() > before);
    let view = look(two.store(), "config").await;
    assert_eq!((view.holders.len(), view.holders[0].fence), (1, guard.fence()));
}

/// F04: an upgrade that is given up leaves a reader as it was, and lets other readers in again.
pub async fn a_cancelled_upgrade_lets_readers_in(harness: &dyn Harness) {
    let (one, two) = (harness.client().await, harness.client().await);
    if !has_readers(&one).await {
        return;
    }
    let reader = two.lock("config").shared().ttl(LONG).acquire().await.unwrap();
    let mut guard = one.lock("config").upgradable().ttl(LONG).acquire().await.unwrap();
    let pending = || async { look(two.store(), "config").await.holders.iter().any(|h| h.upgrading) };
    tokio::select! {
        answer = guard.upgrade() => panic!("upgraded beside a reader: {answer:?}"),
        () = eventually("the upgrade is pending", pending) => {}
    }
    let late = spawn_acquire(two.lock("config").shared().ttl(LONG));
    let late = within("readers are let in", late).await.unwrap().unwrap();
    assert_eq!(guard.mode(), Mode::Upgradable);
    assert!(guard.is_valid() && reader.is_valid() && late.is_valid());
}

/// FAULTS 22: a downgrade lets waiting readers in, keeps the fence and keeps writers out.
pub async fn a_downgrade_lets_readers_in(harness: &dyn Harness) {
    let (one, two) = (harness.client().await, harness.client().await);
    if !has_readers(&one).await {
        return;
    }
    for to in [Mode::Shared, Mode::Upgradable] {
        let mut guard = one.lock("config").ttl(LONG).acquire().await.unwrap();
        let fence = guard.fence();
        let readers = [(); 3].map(|()| spawn_acquire(two.lock("config").shared().ttl(LONG)));
        until_waiters(one.store(), "config", 3).await;
        assert!(guard.downgrade(Mode::Exclusive).await.unwrap_err().is_bad_input());
        guard.downgrade(to).await.unwrap();
        for reader in readers {
            let reader = within("the readers are let in", reader).await.unwrap().unwrap();
            assert_eq!(reader.fence(), fence);
            reader.release().await.unwrap();
        }
        assert_eq!((guard.mode(), guard.fence()), (to, fence));
        assert!(two.lock("config").try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
    until_unused(one.store(), "config").await;
}

/// FAULTS 3: if the reply to an upgrade is lost, the guard learns by its renewals what it holds;
/// asking again gives the same grant.
pub async fn a_lost_reply_to_an_upgrade_is_recovered(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    if !has_readers(&client).await {
        return;
    }
    let mut guard = client.lock("config").upgradable().ttl(LONG).acquire().await.unwrap();
    faults.once(Op::Convert, Fault::LoseReply);
    assert!(guard.upgrade().await.unwrap_err().is_unavailable());
    assert!(guard.is_valid());
    guard.upgrade().await.unwrap();
    let view = look(client.store(), "config").await;
    assert_eq!((guard.mode(), guard.fence()), (Mode::Exclusive, view.fence));
    guard.release().await.unwrap();
    until_unused(client.store(), "config").await;
}

/// FAULTS 22: if the reply to a downgrade is lost, or nobody waits for it, the store may have let
/// readers in, and the guard must not believe to be alone.
pub async fn an_unanswered_downgrade_counts(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (client, other) = (faults.client(), harness.client().await);
    if !has_readers(&client).await {
        return;
    }
    for fault in [Fault::LoseReply, Fault::HangReply] {
        let mut guard = client.lock("config").ttl(LONG).no_renewal().acquire().await.unwrap();
        let fence = guard.fence();
        let reader = spawn_acquire(other.lock("config").shared().ttl(LONG));
        until_waiters(other.store(), "config", 1).await;
        faults.once(Op::Convert, fault);
        tokio::select! {
            answer = guard.downgrade(Mode::Shared) => assert!(answer.unwrap_err().is_unavailable()),
            () = eventually("let in", || async { reader.is_finished() }) => {}
        }
        let reader = within("let in", reader).await.unwrap().unwrap();
        assert_eq!((guard.mode(), guard.is_valid()), (Mode::Shared, true), "a writer and a reader");
        assert!(!guard.try_upgrade().await.unwrap());
        reader.release().await.unwrap();
        assert!(guard.try_upgrade().await.unwrap());
        assert!(guard.mode() == Mode::Exclusive && guard.fence() > fence);
        guard.release().await.unwrap();
    }
    // It may also arrive much later: what the guard does meanwhile does not depend on it.
    let mut guard = client.lock("config").ttl(LONG).acquire().await.unwrap();
    let fence = guard.fence();
    faults.once(Op::Convert, Fault::LoseRequest);
    assert!(guard.downgrade(Mode::Shared).await.unwrap_err().is_unavailable());
    guard.extend(LONG).await.unwrap();
    assert_eq!(guard.mode(), Mode::Shared, "the request may be on its way still");
    assert!(guard.try_upgrade().await.unwrap());
    assert!(guard.mode() == Mode::Exclusive && guard.fence() > fence);
    for call in faults.calls().iter().filter(|call| call.op() == Op::Convert) {
        faults.replay(call).await;
    }
    let view = look(other.store(), "config").await;
    assert_eq!((view.holders[0].mode, view.fence), (Mode::Exclusive, guard.fence()));
    guard.release().await.unwrap();
}
