//! Values at and beyond their limits.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::time::Duration;

use sprag_core::record::{Hold, Record, Wait};
use sprag_core::store::{Attempt, Request};
use sprag_core::{Fence, Holder, LockRequest, PartyId};

use super::permits::has_permits;
use super::queue::has_queue;
use crate::fault::FaultStore;
use crate::harness::Harness;
use crate::support::{LONG, is_unused, look, new_lease, now, request, until_unused};

/// The request is refused as bad input that names `what`, and the store is not asked.
async fn refused(faults: &FaultStore, request: LockRequest, what: &str) {
    let before = faults.calls().len();
    let error = request.acquire().await.unwrap_err();
    assert!(error.is_bad_input() && !error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains(what), "{error} does not name {what}");
    assert_eq!(faults.calls().len(), before, "the store was asked");
}

/// F73, FAULTS 18: a TTL of 0, of 1 ms or of all time is refused, in acquire and in extend; the
/// shortest and the longest that are allowed work.
pub async fn a_ttl_out_of_range_is_refused(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    let (min, max) = (client.capability().min_ttl, client.capability().max_ttl);
    let out_of_range = [
        Duration::ZERO,
        Duration::from_nanos(1),
        min - Duration::from_nanos(1),
        max + Duration::from_nanos(1),
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ];
    for ttl in out_of_range {
        refused(&faults, client.lock("report").ttl(ttl), &format!("{ttl:?}")).await;
    }
    let mut guard = client.lock("report").ttl(max).acquire().await.unwrap();
    assert!(guard.is_valid() && guard.time_remaining() > max / 2);
    for ttl in out_of_range {
        let error = guard.extend(ttl).await.unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains(&format!("{ttl:?}")));
    }
    assert!(guard.is_valid() && guard.time_remaining() > max / 2, "a refused extension changed it");
    guard.release().await.unwrap();
    let guard = client.lock("report").ttl(min).acquire().await.unwrap();
    guard.release().await.unwrap();
    until_unused(client.store(), "report").await;
}

/// FAULTS 18: no permits, more permits than there are, and a `max_hold` of nothing are refused.
pub async fn impossible_permits_are_refused(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    if !has_permits(&client).await {
        return;
    }
    for (count, of) in [(0, 3), (4, 3), (1, 0), (0, 0), (u32::MAX, u32::MAX - 1)] {
        let what = format!("{count} of {of}");
        refused(&faults, client.lock("report").permits(count, of), &what).await;
    }
    refused(&faults, client.lock("report").max_hold(Duration::ZERO), "max_hold").await;
    assert!(is_unused(faults.inner(), "report").await);
    // The most there can be is no overflow.
    let all = client.lock("report").permits(u32::MAX, u32::MAX).ttl(LONG).acquire().await.unwrap();
    assert!(client.lock("report").permits(1, u32::MAX).try_acquire().await.unwrap().is_none());
    all.release().await.unwrap();
}

/// FAULTS 18: a priority out of range is refused; the extremes work.
pub async fn a_priority_out_of_range_is_refused(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    if !has_queue(&client).await {
        return;
    }
    for priority in [-9, 9, i8::MIN, i8::MAX] {
        let what = format!("{priority}");
        refused(&faults, client.lock("report").priority(priority), &what).await;
    }
    for priority in [-8, 8] {
        let guard = client.lock("report").priority(priority).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
}

/// FAULTS 18: more text than fits is refused; as much as fits comes back unchanged.
pub async fn too_much_text_is_refused(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    let room = client.capability().max_holder_bytes;
    let worker = Holder::new("worker \u{1f512}\n\"'", "node");
    let reason = "r".repeat(room - worker.size());
    let holder = worker.clone().reason(&reason);
    let too_much = worker.reason(reason + "r");
    refused(&faults, client.lock("report").holder(too_much), &(room + 1).to_string()).await;
    let guard = client.lock("report").ttl(LONG).holder(holder.clone()).acquire().await.unwrap();
    let mut seen = look(faults.inner(), "report").await.holders[0].holder.clone();
    seen.since_unix_ms = None;
    assert_eq!(seen, holder);
    guard.release().await.unwrap();
}

/// A record with one holder and `most` waiters, all of which live by their TTL alone.
fn full_record(held: &Request, fence: Fence, most: usize) -> Record {
    let now_ms = now().as_millis();
    let ttl_ms = u64::try_from(held.ttl.as_millis()).unwrap();
    let hold = Hold {
        lease: held.lease,
        session: None,
        party: held.party,
        mode: held.mode,
        fence,
        ttl_ms,
        renewed_ms: now_ms,
        upgrading: false,
        fixed: true,
        took_over: false,
        holder: held.holder.clone(),
    };
    let wait = |ticket| Wait {
        lease: new_lease(),
        session: None,
        party: PartyId::from_u128(u128::from(ticket)),
        mode: held.mode,
        ttl_ms,
        renewed_ms: now_ms,
        arrived_ms: now_ms,
        priority: 0,
        ticket,
        fixed: true,
        holder: held.holder.clone(),
    };
    let tickets = u64::try_from(most).unwrap();
    let waiters = (0..tickets).map(wait).collect();
    Record { version: 9, fence, tickets, holders: vec![hold], waiters, ..Record::default() }
}

/// FAULTS 18: the queue has an end, and who comes after it is told so; those in it stay.
pub async fn a_full_queue_refuses(harness: &dyn Harness) {
    let (client, store) = (harness.client().await, harness.store().await);
    if !has_queue(&client).await {
        return;
    }
    let (held, most) = (request("report"), client.capability().max_waiters);
    store.try_acquire(&held).await.unwrap();
    let full = full_record(&held, look(&store, "report").await.fence, most);
    // Where the record cannot be written as a whole, one by one.
    if !harness.write_record(&held.name, &full.to_json()).await {
        for _ in 0..most {
            let mut waiting = request("report");
            waiting.queue = true;
            let answer = store.try_acquire(&waiting).await.unwrap();
            assert!(matches!(answer, Attempt::Queued(_)), "{answer:?}");
        }
    }
    let error = client.lock("report").acquire().await.unwrap_err();
    assert!(error.is_queue_full() && error.is_retryable(), "{error:?}");
    assert!(client.lock("report").try_acquire().await.unwrap().is_none(), "a try needs no place");
    assert_eq!(look(&store, "report").await.waiters.len(), most);
    store.release(&held.name, held.lease).await.unwrap();
    let view = look(&store, "report").await;
    assert_eq!((view.holders.len(), view.waiters.len()), (1, most - 1));
}
