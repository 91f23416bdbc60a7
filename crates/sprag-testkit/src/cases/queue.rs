//! The queue: its order, its hand-over, and what becomes of those who leave it.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sprag_core::store::Attempt;
use sprag_core::{Client, Loss};

use crate::fault::{Fault, FaultStore, Gate, Op};
use crate::harness::Harness;
use crate::support::{
    LONG, PATIENCE, able, is_unused, let_time_pass, look, now, request, spawn_acquire,
    times, until_unused, until_waiters, within,
};

/// Whether the store keeps a queue; if not, priorities are refused.
pub(super) async fn has_queue(client: &Client) -> bool {
    able(client, |able| able.queue, |client| client.lock("any").priority(1)).await
}

/// F20: waiters are granted in the order in which they came, from whichever session.
pub async fn waiters_are_granted_in_order(harness: &dyn Harness) {
    let clients = [harness.client().await, harness.client().await, harness.client().await];
    if !has_queue(&clients[0]).await {
        return;
    }
    let guard = clients[0].lock("report").ttl(LONG).acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..9_usize {
        let (request, order) = (clients[number % 3].lock("report").ttl(LONG), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        until_waiters(clients[0].store(), "report", number + 1).await;
    }
    guard.release().await.unwrap();
    for waiter in waiting {
        within("granted", waiter).await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..9).collect::<Vec<_>>());
}

/// F20: a release hands the lock to the first waiter in the same step: nobody can slip in
/// between, and the waiter need not ask for it.
pub async fn a_release_hands_over(harness: &dyn Harness) {
    let (client, store) = (harness.client().await, harness.store().await);
    if !has_queue(&client).await {
        return;
    }
    let held = request("report");
    let mut first = request("report");
    let mut second = request("report");
    (first.queue, second.queue) = (true, true);
    store.try_acquire(&held).await.unwrap();
    let answers =
        [store.try_acquire(&first).await.unwrap(), store.try_acquire(&second).await.unwrap()];
    for (ahead, answer) in answers.iter().enumerate() {
        let Attempt::Queued(contention) = answer else { panic!("{answer:?} is not queued") };
        assert_eq!((contention.ahead, contention.holders[0].lease), (ahead, held.lease));
    }
    store.release(&held.name, held.lease).await.unwrap();
    assert!(client.lock("report").try_acquire().await.unwrap().is_none(), "somebody slipped in");
    let view = look(&store, "report").await;
    assert_eq!(view.holders[0].lease, first.lease);
    assert_eq!(view.waiters[0].lease, second.lease);
    let answer = store.try_acquire(&first).await.unwrap();
    let Attempt::Granted(grant) = answer else { panic!("{answer:?} is not granted") };
    assert_eq!(grant.fence, view.fence);
}

/// A waiter that leaves frees nothing but its own place.
pub async fn a_withdrawn_waiter_leaves_only_its_place(harness: &dyn Harness) {
    let (client, store) = (harness.client().await, harness.store().await);
    if !has_queue(&client).await {
        return;
    }
    let (held, mut waiting) = (request("report"), request("report"));
    waiting.queue = true;
    store.try_acquire(&held).await.unwrap();
    store.try_acquire(&waiting).await.unwrap();
    store.withdraw(&held.name, held.lease).await.unwrap();
    assert_eq!(look(&store, "report").await.holders[0].lease, held.lease, "a holder keeps it");
    store.withdraw(&waiting.name, waiting.lease).await.unwrap();
    assert!(look(&store, "report").await.waiters.is_empty());
    assert!(matches!(store.try_acquire(&waiting).await.unwrap(), Attempt::Gone(Loss::Released)));
    store.release(&held.name, held.lease).await.unwrap();
    assert!(is_unused(&store, "report").await);
}

/// FAULTS 11: a release between the answer "not yet" and the wait for a hint is not missed.
pub async fn a_release_before_the_wait_is_not_missed(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    let (holder, waiter) = (harness.client().await, faults.client());
    for _ in 0..times(20, 1000) {
        let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
        let gate = Gate::new();
        faults.once(Op::TryAcquire, Fault::DelayReply(gate.clone()));
        let waiting = spawn_acquire(waiter.lock("report").ttl(LONG));
        within("it has asked", gate.reached()).await;
        guard.release().await.unwrap();
        gate.open();
        let freed = now();
        within("granted", waiting).await.unwrap().unwrap().release().await.unwrap();
        assert!(now().since(freed) < PATIENCE, "it waited out the TTL");
    }
}

/// FAULTS 11, F10: hints that are lost cost time, not the lock: a timer is behind them.
pub async fn lost_hints_only_cost_time(harness: &dyn Harness) {
    let faults = FaultStore::new(harness.store().await);
    faults.lose_hints(true);
    let (holder, waiter) = (harness.client().await, faults.client());
    for _ in 0..2 {
        let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
        let waiting = spawn_acquire(waiter.lock("report").ttl(LONG));
        until_waiters(holder.store(), "report", 1).await;
        guard.release().await.unwrap();
        within("found by the timer", waiting).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// FAULTS 13: a waiter that waits for many TTLs is not taken for dead: the client renews it.
pub async fn a_long_waiter_keeps_its_place(harness: &dyn Harness) {
    let (holder, waiter) = (harness.client().await, harness.client().await);
    if !has_queue(&holder).await {
        return;
    }
    // A third of it is longer than the time between two looks, which are no signs of life.
    let ttl = harness.ttl().max(Duration::from_millis(1200));
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    let waiting = spawn_acquire(waiter.lock("report").ttl(ttl));
    until_waiters(holder.store(), "report", 1).await;
    let ticket = look(holder.store(), "report").await.waiters[0].ticket;
    // In full, for longer than any limit of five minutes.
    let_time_pass(ttl.mul_f64(1.6) * times(1, 180)).await;
    assert_eq!(look(holder.store(), "report").await.waiters[0].ticket, ticket);
    guard.release().await.unwrap();
    let guard = within("granted", waiting).await.unwrap().unwrap();
    assert!(guard.time_remaining() > ttl / 10, "granted with the rest of an old lease");
}

/// F66: when hundreds of waiters time out the queue is empty and the lock as good as before.
pub async fn hundreds_of_timeouts_leave_nothing(harness: &dyn Harness) {
    let (holder, waiter) = (harness.client().await, harness.client().await);
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    let wait = Duration::from_millis(500);
    let many = usize::try_from(times(300, 1000)).unwrap();
    let many = holder.capability().max_waiters.min(many);
    let requests = (0..many).map(|_| waiter.lock("report").ttl(LONG).wait(wait));
    let waiting: Vec<_> = requests.map(spawn_acquire).collect();
    for waiter in waiting {
        let error = within("timed out", waiter).await.unwrap().unwrap_err();
        assert!(error.is_timeout(), "{error:?}");
    }
    until_waiters(holder.store(), "report", 0).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    assert!(waiter.lock("report").try_acquire().await.unwrap().is_some());
}

/// FAULTS 20, F04: hundreds of cancelled waiters leave nothing behind, and the client is usable
/// at once.
pub async fn hundreds_of_cancelled_waiters_leave_nothing(harness: &dyn Harness) {
    let (holder, waiter) = (harness.client().await, harness.client().await);
    let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
    let requests = (0..200).map(|_| waiter.lock("report").ttl(LONG));
    let waiting: Vec<_> = requests.map(spawn_acquire).collect();
    until_waiters(holder.store(), "report", 200).await;
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    let other = within("usable at once", waiter.lock("other").acquire()).await.unwrap();
    other.release().await.unwrap();
    until_waiters(holder.store(), "report", 0).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    until_unused(holder.store(), "report").await;
}
