//! Extending a lease by hand.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use sprag_core::store::{Bind, Renewal, Renewed};
use sprag_core::Loss;

use crate::fault::{Fault, FaultStore, Op};
use crate::harness::Harness;
use crate::support::{LONG, is_unused, let_time_pass, look, request, until_unused};

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
    let before = guard.valid_until();
    guard.extend(ttl).await.unwrap();
    assert_eq!((guard.ttl(), guard.valid_until()), (ttl, before), "it only moves forward");
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

/// FAULTS 9: an extension to a *shorter* lease ends it no earlier, answered or not: it may arrive
/// when a longer one was answered.
pub async fn a_shorter_extension_never_ends_it_earlier(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (client, store) = (faults.client(), harness.store().await);
    let ttl = harness.ttl();
    let mut guard = client.lock("report").ttl(LONG).no_renewal().acquire().await.unwrap();
    let before = guard.valid_until();
    for fault in [Some(Fault::LoseReply), Some(Fault::HangReply), None] {
        let answered = fault.is_none();
        if let Some(fault) = fault {
            faults.once(Op::Renew, fault);
        }
        // Unanswered, given up by the caller, or answered.
        let extended = tokio::time::timeout(ttl / 2, guard.extend(ttl)).await;
        assert_eq!(extended.is_ok_and(|extended| extended.is_ok()), answered);
        assert!(guard.is_valid() && guard.valid_until() == before);
    }
    let_time_pass(ttl).await;
    assert!(guard.is_valid());
    assert_eq!(look(&store, "report").await.holders[0].lease, guard.lease(), "it has ended");
    let tried = harness.client().await.lock("report").try_acquire().await.unwrap();
    assert!(tried.is_none(), "two believe to hold it");
    guard.release().await.unwrap();
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
