//! Leases that outlive their process, and tickets that carry them to another.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::Arc;

use sprag_core::record::Expiry;
use sprag_core::{Client, Loss, Released, Store, Ticket};

use crate::fault::{Fault, FaultStore, Op};
use crate::harness::Harness;
use crate::support::{
    LONG, able, eventually, is_unused, let_time_pass, look, until_unused, within,
};

/// Whether the store has detached leases; if not, they and tickets are refused.
async fn has_detached(client: &Client) -> bool {
    if able(client, |able| able.detached, |client| client.lock("any").detached()).await {
        return true;
    }
    let guard = client.lock("any").acquire().await.unwrap();
    assert!(guard.into_ticket().await.unwrap_err().is_unsupported());
    false
}

/// A detached lease lives by its TTL alone: the death of its process does not end it.
pub async fn a_detached_lease_outlives_its_process(harness: &dyn Harness) {
    let (client, session) = (harness.client().await, harness.session().await);
    if !has_detached(&client).await {
        return;
    }
    let doomed = Client::new(Arc::clone(&session) as Arc<dyn Store>);
    let ttl = harness.ttl() * 2;
    let guard = doomed.lock("report").ttl(ttl).no_renewal().detached().acquire().await.unwrap();
    assert!(look(client.store(), "report").await.holders[0].detached);
    session.kill();
    assert!(client.lock("report").try_acquire().await.unwrap().is_none() || !guard.is_valid());
    let_time_pass(ttl).await;
    let next = within("free after its TTL", client.lock("report").acquire()).await.unwrap();
    assert!(next.fence() > guard.fence());
}

/// A ticket carries a held lock to another process, as text: the same fence, never
/// free in between, renewed there and ending with that process.
pub async fn a_ticket_carries_a_lock_over(harness: &dyn Harness) {
    let (here, session) = (harness.client().await, harness.session().await);
    if !has_detached(&here).await {
        return;
    }
    let there = Client::new(Arc::clone(&session) as Arc<dyn Store>);
    let guard = here.lock("report").ttl(LONG).acquire().await.unwrap();
    let fence = guard.fence();
    let ticket = guard.into_ticket().await.unwrap();
    assert_eq!((ticket.fence(), ticket.name().as_str()), (fence, "report"));
    let view = look(here.store(), "report").await;
    assert!(view.holders[0].detached && view.holders[0].fence == fence);
    assert!(here.lock("report").try_acquire().await.unwrap().is_none(), "free in between");

    let text = serde_json::to_string(&ticket).unwrap();
    let guard = there.adopt(serde_json::from_str::<Ticket>(&text).unwrap()).await.unwrap();
    assert_eq!((guard.fence(), guard.is_valid()), (fence, true));
    assert!(!look(here.store(), "report").await.holders[0].detached);
    if harness.sees_death() {
        session.kill();
        drop(within("free after the death", here.lock("report").acquire()).await.unwrap());
    } else {
        assert_eq!(guard.release().await.unwrap(), Released::Freed);
    }
}

/// An adopted lease is renewed by its new owner, also in a shared mode.
pub async fn an_adopted_lease_is_renewed(harness: &dyn Harness) {
    let (here, there) = (harness.client().await, harness.client().await);
    if !has_detached(&here).await {
        return;
    }
    let ttl = harness.ttl() * 2;
    let ticket = here.lock("report").ttl(ttl).acquire().await.unwrap().into_ticket().await;
    let guard = there.adopt(ticket.unwrap()).await.unwrap();
    let adopted = guard.valid_until();
    eventually("renewed", || async { guard.valid_until() > adopted }).await;
    assert_eq!(guard.release().await.unwrap(), Released::Freed);
    assert!(is_unused(here.store(), "report").await);
}

/// FAULTS 10: a ticket whose lease is over is refused as lost and brings nothing back.
pub async fn a_ticket_that_is_over_is_refused(harness: &dyn Harness) {
    let (here, there) = (harness.client().await, harness.client().await);
    if !has_detached(&here).await {
        return;
    }
    let ttl = harness.ttl();
    let ticket = here.lock("report").ttl(ttl).acquire().await.unwrap().into_ticket().await.unwrap();
    let_time_pass(ttl).await;
    if here.capability().expiry == Expiry::Clock {
        let error = there.adopt(ticket).await.unwrap_err();
        assert_eq!(error.loss(), Some(&Loss::Expired), "{error:?}");
    } else {
        // Nobody has watched it, so to nobody it is over; and who watches it sees that it is.
        let ended = within("seen to be over", here.lock("report").ttl(LONG).acquire()).await;
        ended.unwrap().release().await.unwrap();
        let error = there.adopt(ticket).await.unwrap_err();
        assert_eq!(error.loss(), Some(&Loss::Expired), "{error:?}");
    }
    assert!(is_unused(here.store(), "report").await);
    let ticket = here.lock("report").ttl(LONG).acquire().await.unwrap().into_ticket().await;
    let ticket = ticket.unwrap();
    there.adopt(ticket.clone()).await.unwrap().release().await.unwrap();
    assert!(here.adopt(ticket).await.unwrap_err().is_lost(), "used twice after its release");
    until_unused(here.store(), "report").await;
}

/// FAULTS 4: a ticket that could not be made leaves no lock behind that nobody owns.
pub async fn a_failed_ticket_leaves_nothing(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    if !has_detached(&client).await {
        return;
    }
    for fault in [Fault::LoseRequest, Fault::LoseReply] {
        let guard = client.lock("report").ttl(LONG).acquire().await.unwrap();
        faults.once(Op::Renew, fault);
        assert!(guard.into_ticket().await.unwrap_err().is_unavailable());
        until_unused(client.store(), "report").await;
    }
}

/// FAULTS 4: of two who adopt a ticket one holds the lock. The other is told, and neither renews nor
/// releases what is not its own; not even one that shares the process.
pub async fn a_ticket_is_good_for_one(harness: &dyn Harness) {
    let (here, there) = (harness.client().await, harness.client().await);
    if !has_detached(&here).await {
        return;
    }
    let other = harness.client().await;
    let ticket = here.lock("report").ttl(LONG).acquire().await.unwrap().into_ticket().await;
    let ticket = ticket.unwrap();
    let guard = there.adopt(ticket.clone()).await.unwrap();
    for late in [&other, &here, &there] {
        let error = late.adopt(ticket.clone()).await.unwrap_err();
        assert_eq!(error.loss(), Some(&Loss::Adopted), "{error:?}");
    }
    // What an adopter that was refused has left to do is done before its client is gone.
    assert_eq!(other.shutdown(LONG).await, []);
    let view = look(here.store(), "report").await;
    assert_eq!((view.holders.len(), view.holders[0].lease), (1, ticket.lease()));
    assert!(guard.is_valid());
    // It goes on from one to the next.
    let next = here.adopt(guard.into_ticket().await.unwrap()).await.unwrap();
    assert_eq!(there.adopt(ticket).await.unwrap_err().loss(), Some(&Loss::Adopted));
    assert_eq!(next.release().await.unwrap(), Released::Freed);
    until_unused(here.store(), "report").await;
}

/// FAULTS 3: an adopter that was not answered may ask again, and whatever became of its request, it
/// takes nothing from another.
pub async fn an_adoption_that_is_not_answered_is_tried_again(harness: &dyn Harness) {
    let (here, faults) = (harness.client().await, FaultStore::new(harness.store().await));
    let there = faults.client();
    if !has_detached(&here).await {
        return;
    }
    for fault in [Fault::LoseRequest, Fault::LoseReply] {
        let ticket = here.lock("report").ttl(LONG).acquire().await.unwrap().into_ticket().await;
        let ticket = ticket.unwrap();
        faults.once(Op::Renew, fault);
        assert!(there.adopt(ticket.clone()).await.unwrap_err().is_unavailable());
        let guard = there.adopt(ticket.clone()).await.unwrap();
        assert!(here.adopt(ticket).await.unwrap_err().is_lost());
        assert_eq!(guard.release().await.unwrap(), Released::Freed);
    }
    // The first one was not answered, and meanwhile another has the lock.
    let ticket = here.lock("report").ttl(LONG).acquire().await.unwrap().into_ticket().await;
    let ticket = ticket.unwrap();
    faults.once(Op::Renew, Fault::LoseRequest);
    assert!(there.adopt(ticket.clone()).await.unwrap_err().is_unavailable());
    let guard = here.adopt(ticket).await.unwrap();
    assert_eq!(there.shutdown(LONG).await, []);
    assert_eq!(guard.release().await.unwrap(), Released::Freed);
    until_unused(here.store(), "report").await;
}
