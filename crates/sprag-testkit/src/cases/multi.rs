//! Several locks at once, all or nothing.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use sprag_core::{Client, Store};

use crate::fault::{Call, FaultStore, Op};
use crate::harness::Harness;
use crate::support::{LONG, eventually, is_unused, look, until_unused, within};

/// FAULTS 25: two processes that take {a, b} and {b, a} many times never wait for each other for
/// ever, and neither is ever told that it is a deadlock.
pub async fn opposite_orders_never_deadlock(harness: &dyn Harness) {
    let times = harness.times(100);
    let tasks = [["a", "b"], ["b", "a"]].map(|names| {
        let client = harness.client();
        async move {
            let client = client.await;
            for _ in 0..times {
                let both = client.acquire_many(names, |lock| lock.ttl(LONG)).await.unwrap();
                both.ensure_valid().unwrap();
                both.release().await.unwrap();
            }
        }
    });
    let [one, two] = tasks;
    within("both are done", async { tokio::join!(one, two) }).await;
    let store = harness.store().await;
    until_unused(&store, "a").await;
    until_unused(&store, "b").await;
}

/// FAULTS 25: locks are taken in one order whatever order they are named in, a name given twice
/// is taken once, and they are released the other way round.
pub async fn they_are_taken_in_order_and_released_in_reverse(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let client = faults.client();
    let names = ["b", "c", "a", "b", "a"];
    let all = client.acquire_many(names, |lock| lock.ttl(LONG)).await.unwrap();
    assert_eq!(all.guards().len(), 3);
    assert!(all.time_remaining() > Duration::ZERO);
    assert_eq!(all.release().await.unwrap().len(), 3);
    let all = client.acquire_many(names, |lock| lock.ttl(LONG)).await.unwrap();
    drop(all);
    for lock in ["a", "b", "c"] {
        until_unused(client.store(), lock).await;
    }
    let names_of = |op: Op| -> String {
        let name = |call: &Call| match call {
            Call::TryAcquire(request) => Some(request.name.as_str().to_owned()),
            Call::Release(name, _) => Some(name.as_str().to_owned()),
            _ => None,
        };
        faults.calls().iter().filter(|call| call.op() == op).filter_map(name).collect()
    };
    assert_eq!(names_of(Op::TryAcquire), "abcabc");
    assert_eq!(names_of(Op::Release), "cbacba");
    let none = client.acquire_many(Vec::<String>::new(), |lock| lock).await.unwrap();
    assert!(none.guards().is_empty() && none.ensure_valid().is_ok());
    assert_eq!(none.time_remaining(), Duration::MAX);
    assert!(none.lost().now_or_never().is_none(), "what is not held cannot be lost");
}

/// F77, FAULTS 25: when the third of five cannot be had, the two taken before are free again.
pub async fn all_or_nothing(harness: &dyn Harness) {
    let (holder, client) = (harness.client().await, harness.client().await);
    let guard = holder.lock("c").ttl(LONG).acquire().await.unwrap();
    let wait = Duration::from_millis(200);
    let names = ["a", "b", "c", "d", "e"];
    let error = client.acquire_many(names, |lock| lock.ttl(LONG).wait(wait)).await.unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    assert_eq!(error.lock().map(|name| name.as_str()), Some("c"));
    for lock in ["a", "b", "d", "e"] {
        until_unused(client.store(), lock).await;
    }
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    let all = client.acquire_many(names, |lock| lock.ttl(LONG).wait(wait)).await.unwrap();
    all.release().await.unwrap();
}

/// F77: a process that dies after the third of five leaves none of them held.
pub async fn a_death_half_way_frees_all(harness: &dyn Harness) {
    let (client, session) = (harness.client().await, harness.session().await);
    let doomed = Client::new(Arc::clone(&session) as Arc<dyn Store>);
    let guard = client.lock("d").ttl(LONG).acquire().await.unwrap();
    let ttl = if harness.sees_death() { LONG * 10 } else { harness.ttl() };
    let names = ["a", "b", "c", "d", "e"];
    let taking = tokio::spawn(async move {
        doomed.acquire_many(names, |lock| lock.ttl(ttl)).await.map(drop)
    });
    let has_c = || async { look(client.store(), "c").await.is_locked() };
    eventually("it has the first three", has_c).await;
    session.kill();
    guard.release().await.unwrap();
    for lock in names {
        drop(within("free after the death", client.lock(lock).acquire()).await.unwrap());
    }
    assert!(within("it returns", taking).await.unwrap().is_err());
}

/// FAULTS 25: the loss of one of them is the loss of the group.
pub async fn the_loss_of_one_is_told(harness: &dyn Harness) {
    let client = harness.client().await;
    let ttl = harness.ttl() * 3;
    let all = client.acquire_many(["a", "b", "c"], |lock| lock.ttl(ttl)).await.unwrap();
    let fence = all.guards()[1].fence();
    client.evict("b", fence, "for the case").await.unwrap();
    let (lost, _) = within("the loss is told", all.lost()).await;
    assert_eq!(lost.as_str(), "b");
    assert!(all.ensure_valid().unwrap_err().is_lost());
    assert_eq!(all.time_remaining(), Duration::ZERO);
    all.release().await.unwrap();
    for lock in ["a", "b", "c"] {
        assert!(is_unused(client.store(), lock).await);
    }
}
