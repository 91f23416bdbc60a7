//! Fences: numbers that only grow, and what they stop.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sprag_core::{Client, Fence, Level, Loss, Released, Strategy};

use crate::fault::{Fault, FaultStore};
use crate::harness::Harness;
use crate::support::{LONG, able, let_time_pass, now, until_unused, within};

/// FAULTS 15, F01: fences strictly grow over release, expiry, death, drop and eviction.
pub async fn fences_grow_over_every_kind_of_end(harness: &dyn Harness) {
    let client = harness.client().await;
    let ttl = harness.ttl();
    let mut last = Fence::ZERO;
    let mut grew = |fence: Fence, after: &str| {
        assert!(fence > last, "fence {fence} after {after} does not exceed {last}");
        last = fence;
    };
    let next = |ttl| within("granted", client.lock("report").ttl(ttl).no_renewal().acquire());

    let guard = next(LONG).await.unwrap();
    grew(guard.fence(), "nothing");
    guard.release().await.unwrap();
    let guard = next(LONG).await.unwrap();
    grew(guard.fence(), "a release");
    drop(guard);
    let expiring = next(ttl).await.unwrap();
    grew(expiring.fence(), "a drop");
    let_time_pass(ttl).await;
    let guard = next(LONG).await.unwrap();
    grew(guard.fence(), "an expiry");
    client.evict("report", guard.fence(), "for the case").await.unwrap();
    let evicted = guard;
    let guard = next(LONG).await.unwrap();
    grew(guard.fence(), "an eviction");
    guard.release().await.unwrap();
    drop((evicted, expiring));

    let session = harness.session().await;
    let doomed = Client::new(Arc::clone(&session) as _);
    let guard = within("granted", doomed.lock("report").ttl(ttl).acquire()).await.unwrap();
    grew(guard.fence(), "a release by another session");
    session.kill();
    let guard = next(LONG).await.unwrap();
    grew(guard.fence(), "a death");
    guard.release().await.unwrap();
    until_unused(client.store(), "report").await;
}

/// FAULTS 15: a stolen lock has a larger fence than the one it was stolen from.
pub async fn a_stolen_lock_has_a_larger_fence(harness: &dyn Harness) {
    let holder = harness.client().await;
    let thief = Client::builder(harness.store().await).allow_force(true).build().unwrap();
    let force = |client: &Client| client.lock("report").strategy(Strategy::ForceAcquire);
    if !able(&thief, |able| able.steal, force).await {
        return;
    }
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    let stolen = force(&thief).ttl(LONG).acquire().await.unwrap();
    assert!(stolen.fence() > guard.fence());
}

/// FAULTS 15: each grant of a semaphore has a fence of its own; readers carry the last writer's,
/// and the next writer's is larger.
pub async fn fences_of_readers_and_permits(harness: &dyn Harness) {
    let client = harness.client().await;
    if able(&client, |able| able.permits, |client| client.lock("builds").permits(1, 3)).await {
        let mut guards = Vec::new();
        for _ in 0..3 {
            guards.push(client.lock("builds").permits(1, 3).ttl(LONG).acquire().await.unwrap());
        }
        assert!(guards.windows(2).all(|pair| pair[0].fence() < pair[1].fence()), "{guards:?}");
    }
    if able(&client, |able| able.shared, |client| client.lock("config").shared()).await {
        let writer = client.lock("config").ttl(LONG).acquire().await.unwrap();
        let written = writer.fence();
        writer.release().await.unwrap();
        let one = client.lock("config").shared().ttl(LONG).acquire().await.unwrap();
        let two = client.lock("config").shared().ttl(LONG).acquire().await.unwrap();
        assert_eq!((one.fence(), two.fence()), (written, written));
        one.release().await.unwrap();
        two.release().await.unwrap();
        let writer = client.lock("config").ttl(LONG).acquire().await.unwrap();
        assert!(writer.fence() > written);
    }
}

/// What a lock protects: it takes a write only with a fence that is not smaller than the last.
#[derive(Debug, Default)]
struct Resource(AtomicU64);

impl Resource {
    fn write(&self, fence: Fence) -> bool {
        self.0.fetch_max(fence.get(), Ordering::SeqCst) <= fence.get()
    }
}

/// F60, F01: a holder that was paused past its lease and writes on is told that it has lost the
/// lock if it asks, and refused by a resource that checks fences if it does not.
pub async fn a_paused_holder_is_stopped_by_the_fence(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (paused, next) = (faults.client(), harness.client().await);
    let resource = Resource::default();
    let old = paused.lock("report").ttl(harness.ttl()).acquire().await.unwrap();
    assert!(resource.write(old.fence()));
    // To the store, a process that is paused and one whose requests do not arrive are the same.
    faults.everything(Fault::Hang);
    let new = within("taken over", next.lock("report").ttl(LONG).acquire()).await.unwrap();
    assert!(now() >= old.valid_until(), "granted to another while the old one believed in it");
    assert!(old.ensure_valid().unwrap_err().is_lost());
    if next.capability().level >= Level::Fenced {
        assert!(resource.write(new.fence()));
        assert!(!resource.write(old.fence()), "the late write got through");
        assert!(resource.write(new.fence()));
    }
    faults.heal();
    let answer = old.release().await.unwrap();
    assert!(matches!(answer, Released::AlreadyLost(Loss::Expired | Loss::Unreachable)));
    assert!(new.is_valid());
    assert_eq!(next.inspect("report").await.unwrap().holders[0].lease, new.lease());
}
