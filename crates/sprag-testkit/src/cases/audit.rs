//! The audit trail: what happened to whom, in order, and never in anybody's way.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::Arc;

use sprag_core::audit::TRAIL_LENGTH;
use sprag_core::{
    AuditEntry, AuditKind, AuditQuery, Client, Fence, Holder, LockGuard, Store, Strategy,
};

use crate::fault::{Fault, FaultStore, Op};
use crate::harness::Harness;
use crate::support::{
    LONG, eventually, let_time_pass, name, new_lease, spawn_acquire, timed, until_waiters, within,
};

/// Whether the store keeps a trail; if not, checks that it says so.
async fn keeps_one(client: &Client) -> bool {
    if client.capability().audit {
        return true;
    }
    let store = client.store();
    let refused = [
        client.audit(&AuditQuery::default()).await.unwrap_err(),
        store.audit(&AuditQuery::default()).await.unwrap_err(),
        store.note(&[]).await.unwrap_err(),
    ];
    assert!(refused.iter().all(|error| error.is_unsupported()), "{refused:?}");
    false
}

async fn named(harness: &dyn Harness, worker: &str) -> Client {
    let store = harness.store().await;
    let builder = Client::builder(store).allow_force(true);
    builder.holder(Holder::new(worker, "here")).build().unwrap()
}

/// The trail of one lock.
async fn trail(store: &Arc<dyn Store>, lock: &str) -> Vec<AuditEntry> {
    let query = AuditQuery { name: Some(name(lock)), ..AuditQuery::default() };
    store.audit(&query).await.unwrap()
}

async fn count(store: &Arc<dyn Store>, lock: &str, kind: AuditKind) -> usize {
    trail(store, lock).await.iter().filter(|entry| entry.kind == kind).count()
}

/// The only entry of this kind about this lease.
async fn the_one(store: &Arc<dyn Store>, guard: &LockGuard, kind: AuditKind) -> AuditEntry {
    let mut entries = trail(store, guard.name().as_str()).await;
    entries.retain(|entry| entry.kind == kind && entry.lease == guard.lease());
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.remove(0)
}

/// Acquired, with the time it waited, and released: with lock, lease, fence and holder.
pub async fn an_ordinary_tenure_is_told(harness: &dyn Harness) {
    let (first, second) = (named(harness, "first").await, named(harness, "second").await);
    if !keeps_one(&first).await {
        return;
    }
    let guard = first.lock("report").ttl(LONG).reason("weekly").acquire().await.unwrap();
    let (lease, fence) = (guard.lease(), guard.fence());
    let waiting = spawn_acquire(second.lock("report").ttl(LONG));
    until_waiters(first.store(), "report", 1).await;
    let_time_pass(harness.ttl()).await;
    guard.release().await.unwrap();
    let next = within("handed over", waiting).await.unwrap().unwrap();
    let told = trail(first.store(), "report").await;
    let kinds: Vec<_> = told.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [AuditKind::Acquired, AuditKind::Released, AuditKind::Acquired]);
    for entry in &told[..2] {
        assert_eq!((entry.lease, entry.fence, &entry.name), (lease, fence, &name("report")));
        assert_eq!(entry.holder.worker_id, "first");
        assert_eq!(entry.holder.reason.as_deref(), Some("weekly"));
    }
    assert_eq!(told[0].detail.as_deref(), Some("waited 0s"));
    assert_eq!((told[2].lease, told[2].fence), (next.lease(), next.fence()));
    let waited = told[2].detail.as_deref().unwrap();
    // Without a queue the store does not know for how long it was wanted.
    let known = first.capability().queue;
    assert!(waited.starts_with("waited ") && (waited != "waited 0s" || !known), "{waited}");
}

/// A broken lock is told with who broke it and why.
pub async fn a_break_is_told(harness: &dyn Harness) {
    let (holder, operator) = (named(harness, "holder").await, named(harness, "operator").await);
    if !keeps_one(&holder).await {
        return;
    }
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    operator.evict("report", guard.fence(), "it hangs").await.unwrap();
    let told = the_one(holder.store(), &guard, AuditKind::Broken).await;
    assert_eq!((told.fence, told.holder.worker_id.as_str()), (guard.fence(), "holder"));
    let why = told.detail.unwrap();
    assert!(why.contains("operator") && why.contains("it hangs"), "{why}");
}

/// A lease that ran out is told, with how long nothing was heard of its holder.
pub async fn an_expiry_is_told(harness: &dyn Harness) {
    let (silent, next) = (harness.client().await, harness.client().await);
    if !keeps_one(&silent).await {
        return;
    }
    let guard = silent.lock("report").ttl(harness.ttl()).no_renewal().acquire().await.unwrap();
    drop(within("expired", next.lock("report").ttl(LONG).acquire()).await.unwrap());
    let mut told = trail(next.store(), "report").await;
    told.retain(|entry| entry.kind == AuditKind::Lost);
    let details: Vec<_> = told.iter().map(|entry| entry.detail.as_deref().unwrap()).collect();
    assert!(details.iter().any(|detail| detail.contains("no renewal for")), "{details:?}");
    assert!(told.iter().all(|told| told.lease == guard.lease() && told.fence == guard.fence()));
}

/// Who was pushed aside is told, with who did it.
pub async fn a_take_over_is_told(harness: &dyn Harness) {
    let (holder, thief) = (named(harness, "holder").await, named(harness, "thief").await);
    if !keeps_one(&holder).await || !holder.capability().steal {
        return;
    }
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    let force = thief.lock("report").strategy(Strategy::ForceAcquire).ttl(LONG);
    let taken = force.acquire().await.unwrap();
    let told = the_one(thief.store(), &guard, AuditKind::TakenOver).await;
    assert_eq!(told.holder.worker_id, "holder");
    assert!(told.detail.as_deref().unwrap().contains("thief"), "{told:?}");
    let got = the_one(thief.store(), &taken, AuditKind::Acquired).await;
    let next = AuditQuery { after: told.sequence, limit: 1, ..AuditQuery::default() };
    assert_eq!(thief.audit(&next).await.unwrap(), [got]);
}

/// Who gave up waiting is told, with whom for; who only tried is not.
pub async fn a_refusal_is_told(harness: &dyn Harness) {
    let (holder, other) = (named(harness, "holder").await, named(harness, "other").await);
    if !keeps_one(&holder).await {
        return;
    }
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    assert!(other.lock("report").try_acquire().await.unwrap().is_none());
    let error = other.lock("report").wait(harness.ttl()).acquire().await.unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    // Written down by the time a shutdown is over.
    other.shutdown(LONG).await;
    let mut told = trail(holder.store(), "report").await;
    told.retain(|entry| entry.kind == AuditKind::Refused);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].fence, told[0].holder.worker_id.as_str()), (Fence::ZERO, "other"));
    assert!(told[0].detail.as_deref().unwrap().contains("held by holder"), "{told:?}");
    assert!(guard.is_valid());
}

/// A renewal that came through, but late, is told: soon one will not.
pub async fn a_late_renewal_is_told(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    if !keeps_one(&client).await {
        return;
    }
    let guard = client.lock("report").ttl(harness.ttl() * 12).acquire().await.unwrap();
    // One every third of the TTL, then one every twelfth: the seventh is late, and not too late.
    faults.times(6, Op::Renew, Fault::LoseRequest);
    let late = AuditKind::RenewedLate;
    eventually("renewed late", || async { count(client.store(), "report", late).await == 1 }).await;
    assert!(guard.is_valid(), "the machine is too slow for this case");
    let told = the_one(client.store(), &guard, late).await;
    assert_eq!(told.fence, guard.fence());
}

/// What the trail cannot take costs nobody time: neither who is refused nor who holds.
pub async fn a_note_is_in_nobodys_way(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (holder, client) = (harness.client().await, faults.client());
    if !keeps_one(&client).await {
        return;
    }
    faults.always(Op::Note, Fault::Hang);
    let other = holder.lock("other").ttl(LONG).acquire().await.unwrap();
    let guard = client.lock("report").ttl(harness.ttl()).acquire().await.unwrap();
    for _ in 0..harness.times(300) {
        let refused = client.lock("other").no_wait().acquire();
        let (refused, took) = timed(refused).await;
        assert!(refused.unwrap_err().is_held() && took < LONG / 4, "it took {took:?}");
    }
    let before = guard.valid_until();
    let renewed = || async { guard.valid_until() > before };
    eventually("renewed meanwhile", renewed).await;
    guard.release().await.unwrap();
    assert!(other.is_valid());
}

/// The sequence only grows; reading goes on after what was seen; the oldest are forgotten.
pub async fn the_trail_is_bounded_and_in_order(harness: &dyn Harness) {
    let client = harness.client().await;
    if !keeps_one(&client).await {
        return;
    }
    let store = client.store();
    let entry = |number: usize| {
        let (unix_ms, lease) = (number as u64, new_lease());
        let lock = name(if number.is_multiple_of(2) { "even" } else { "odd" });
        AuditEntry::new(unix_ms, lock, AuditKind::Lost, Fence::ZERO, lease, Holder::default())
            .detail(format!("note {number}"))
    };
    let all = TRAIL_LENGTH + 500;
    for start in (0..all).step_by(500) {
        let batch: Vec<_> = (start..start + 500).map(entry).collect();
        store.note(&batch).await.unwrap();
    }
    let newest = store.audit(&AuditQuery { limit: 3, ..AuditQuery::default() }).await.unwrap();
    let told: Vec<_> = newest.iter().map(|entry| entry.at_unix_ms).collect();
    assert_eq!(told, [all - 3, all - 2, all - 1].map(|number| number as u64));
    let mut read: Vec<AuditEntry> = Vec::new();
    loop {
        let after = read.last().map_or(1, |entry| entry.sequence);
        let query = AuditQuery { after, limit: 700, ..AuditQuery::default() };
        let page = store.audit(&query).await.unwrap();
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 700);
        read.extend(page);
    }
    assert!(read.windows(2).all(|pair| pair[0].sequence < pair[1].sequence));
    assert!(read.windows(2).all(|pair| pair[0].at_unix_ms + 1 == pair[1].at_unix_ms));
    assert!((1000..=TRAIL_LENGTH).contains(&read.len()), "{} are kept", read.len());
    assert_eq!(read.last(), newest.last());
    let odd = AuditQuery { name: Some(name("odd")), after: newest[0].sequence - 5, limit: 2 };
    let odd = store.audit(&odd).await.unwrap();
    assert!(odd.len() == 2 && odd.iter().all(|entry| entry.name == name("odd")), "{odd:?}");
}
