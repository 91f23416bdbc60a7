//! Extending a lease by hand.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use sprag_core::store::{Bind, Renewal, Renewed};
use sprag_core::{LockState, Loss};

use crate::fault::{Fault, FaultStore, Op};
use crate::harness::Harness;
use crate::support::{
    LONG, eventually, is_unused, let_time_pass, look, now, request, until_unused, within,
};

/// Extending sets the length of the lease from now on, it does not add to it.
pub async fn extending_sets_the_length(harness: &dyn Harness) {
    let client = harness.client().await;
    let ttl = harness.ttl();
    let mut guard = client.lock("report").ttl(ttl).no_renewal().acquire().await.unwrap();
    guard.extend(LONG).await.unwrap();
    assert_eq!(guard.ttl(), LONG);
    assert!(guard.time_remaining() > LONG / 2 && guard.time_remaining() <= LONG);
    let_time_pass(ttl).await;
    assert!(guard.is_valid(), "the old end still counts");
    assert_eq!(look(client.store(), "report").await.holders[0].ttl, LONG);
    guard.extend(ttl).await.unwrap();
    assert!(guard.time_remaining() <= ttl, "a shorter one shortens");
    guard.release().await.unwrap();
    until_unused(client.store(), "report").await;
}

/// FAULTS 9: an extension that fails leaves the lock as good as it was.
pub async fn a_failed_extension_leaves_the_lock_valid(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    let mut guard = client.lock("report").ttl(LONG).no_renewal().acquire().await.unwrap();
    let before = guard.valid_until();
    for fault in [Fault::LoseRequest, Fault::LoseReply] {
        faults.once(Op::Renew, fault);
        let error = guard.extend(LONG * 2).await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        assert!(guard.is_valid() && guard.valid_until() == before);
    }
    assert_eq!(faults.count(Op::Release), 0, "a failed extension must not release");
    assert_eq!(look(client.store(), "report").await.holders[0].lease, guard.lease());
    guard.extend(LONG * 2).await.unwrap();
    assert!(guard.valid_until() > before);
}

/// FAULTS 9: if the reply to an extension to a *shorter* lease is lost, the store may have
/// shortened it, and the guard must not believe in the longer one.
pub async fn an_unanswered_shorter_extension_counts(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (client, other) = (faults.client(), harness.client().await);
    let ttl = harness.ttl();
    for (lock, fault) in [("lost", Fault::LoseReply), ("silent", Fault::HangReply)] {
        let mut guard = client.lock(lock).ttl(LONG).no_renewal().acquire().await.unwrap();
        faults.once(Op::Renew, fault);
        // Unanswered, or given up by the caller.
        drop(tokio::time::timeout(ttl / 2, guard.extend(ttl)).await);
        let next = within("free when the shorter one ends", other.lock(lock).ttl(LONG).acquire());
        let next = next.await.unwrap();
        assert!(!guard.is_valid(), "two believe to hold {lock:?}");
        assert!(guard.valid_until() <= now());
        next.release().await.unwrap();
    }
    // With renewals going on, the lock is kept and has its old length.
    let ttl = ttl.max(std::time::Duration::from_secs(2));
    let mut guard = client.lock("renewed").ttl(ttl * 2).acquire().await.unwrap();
    faults.once(Op::Renew, Fault::LoseReply);
    assert!(guard.extend(ttl).await.unwrap_err().is_unavailable());
    let first = guard.valid_until();
    let renewed = || async { guard.valid_until() > first && guard.state() == LockState::Held };
    eventually("renewed in time", renewed).await;
    assert!(guard.is_valid());
}

/// FAULTS 10: a lease that has expired is reported lost and never made again, also if nobody has
/// taken the lock meanwhile.
pub async fn an_extension_never_resurrects(harness: &dyn Harness) {
    let (client, store) = (harness.client().await, harness.store().await);
    let ttl = harness.ttl();
    let mut guard = client.lock("report").ttl(ttl).no_renewal().acquire().await.unwrap();
    let_time_pass(ttl).await;
    let error = guard.extend(LONG).await.unwrap_err();
    assert_eq!(error.loss(), Some(&Loss::Expired), "{error:?}");
    assert!(guard.extend(LONG).await.unwrap_err().is_lost(), "lost is final");
    until_unused(&store, "report").await;

    // The same of the store itself, past the guard that would not even ask.
    let mut held = request("report");
    held.ttl = ttl;
    store.try_acquire(&held).await.unwrap();
    let_time_pass(ttl).await;
    let bind = Bind::Keep;
    let renewal = Renewal { name: held.name.clone(), lease: held.lease, ttl: LONG, bind };
    let answer = store.renew(std::slice::from_ref(&renewal)).await.unwrap();
    assert!(matches!(answer[..], [Renewed::Lost(_)]), "{answer:?}");
    assert!(is_unused(&store, "report").await, "resurrected");
}

/// Many leases are renewed at once and answered one by one, the lost among the held.
pub async fn renewals_are_answered_one_by_one(harness: &dyn Harness) {
    let store = harness.store().await;
    let held: Vec<_> = (0..3).map(|number| request(&format!("lock-{number}"))).collect();
    for request in &held {
        store.try_acquire(request).await.unwrap();
    }
    store.release(&held[1].name, held[1].lease).await.unwrap();
    let renewal = |request: &sprag_core::store::Request| Renewal {
        name: request.name.clone(),
        lease: request.lease,
        ttl: LONG,
        bind: Bind::Keep,
    };
    let renewals: Vec<_> = held.iter().map(renewal).collect();
    let answers = store.renew(&renewals).await.unwrap();
    assert!(
        matches!(answers[..], [Renewed::Held(_), Renewed::Lost(Loss::Released), Renewed::Held(_)]),
        "{answers:?}"
    );
    assert!(store.renew(&[]).await.unwrap().is_empty());
}
