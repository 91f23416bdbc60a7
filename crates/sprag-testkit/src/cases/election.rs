//! One leader among many candidates.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fault::{Fault, FaultStore};
use crate::harness::Harness;
use crate::support::{LONG, now, until_unused, until_waiters, within};

/// There is one leader at a time; when it resigns the next candidate leads, with a larger epoch.
pub async fn one_leads_until_it_resigns(harness: &dyn Harness) {
    let (one, two) = (harness.client().await, harness.client().await);
    let elect = |client: &sprag_core::Client| client.election("leader").unwrap().ttl(LONG);
    let first = elect(&one).campaign().await.unwrap();
    assert!(first.is_leader());
    assert!(elect(&two).try_campaign().await.unwrap().is_none());
    assert_eq!(elect(&two).leader().await.unwrap().unwrap().1, first.epoch());
    let next = tokio::spawn(async move { elect(&two).campaign().await });
    until_waiters(one.store(), "leader", 1).await;
    let epoch = first.epoch();
    first.resign().await.unwrap();
    let second = within("the next one leads", next).await.unwrap().unwrap();
    assert!(second.is_leader() && second.epoch() > epoch);
    drop(second);
    until_unused(one.store(), "leader").await;
    assert!(one.election("leader").unwrap().leader().await.unwrap().is_none());
}

/// F76: a leader that is paused knows that it leads no more before another one does, does no
/// further step of its work, and stays deposed when it wakes up.
pub async fn a_paused_leader_is_deposed_first(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (paused, next) = (faults.client(), harness.client().await);
    let ttl = harness.ttl();
    let old = paused.election("leader").unwrap().ttl(ttl).campaign().await.unwrap();
    let old = Arc::new(old);
    let ticks = Arc::new(AtomicUsize::new(0));
    let work = tokio::spawn({
        let (old, ticks) = (Arc::clone(&old), Arc::clone(&ticks));
        async move {
            let tick = async {
                loop {
                    ticks.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(ttl / 20).await;
                }
            };
            old.lead(tick).await.map(|()| unreachable!("the work has no end"))
        }
    });
    faults.everything(Fault::Hang);
    let new = next.election("leader").unwrap().ttl(LONG);
    let new = within("another one leads", new.campaign()).await.unwrap();
    assert!(!old.is_leader(), "two leaders");
    let error: sprag_core::Result<()> = within("the work is stopped", work).await.unwrap();
    assert!(error.unwrap_err().is_lost());
    let done = ticks.load(Ordering::SeqCst);
    assert!(new.is_leader() && new.epoch() > old.epoch());
    // It wakes up, and everything that hung arrives.
    faults.heal();
    let woken = now();
    within("the loss stays told", old.lost()).await;
    assert!(!old.is_leader() && now() >= woken);
    assert!(old.lead(async {}).await.unwrap_err().is_lost(), "no further step");
    assert_eq!(ticks.load(Ordering::SeqCst), done);
    assert!(new.is_leader());
}
