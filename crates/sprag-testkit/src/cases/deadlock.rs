//! Waiting in a circle, across processes.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use sprag_core::entropy::OsEntropy;
use sprag_core::record::Expiry;
use sprag_core::{Client, LockGuard, PartyId, Result};
use tokio::sync::Barrier;
use tokio::task::JoinHandle;

use super::queue::has_queue;
use super::rw::has_readers;
use crate::harness::Harness;
use crate::support::{
    LONG, let_time_pass, now, spawn_acquire, until_unused, until_waiters, within,
};

/// How long no victim may be chosen where there is no deadlock: past the first search.
const PAST_THE_FIRST_SEARCH: Duration = Duration::from_millis(1700);
/// When a deadlock is found at the latest where looking is cheap: in 1 to 2 s, but for a machine
/// that is busy with many tests.
pub(crate) const FOUND_WITHIN: Duration = Duration::from_millis(3500);

/// Holds `first` and waits for `second`, in a task of its own; asks for the second only when all
/// have their first.
fn hold_and_wait(
    client: &Client,
    first: &'static str,
    second: &'static str,
    all_have_one: &Arc<Barrier>,
) -> JoinHandle<Result<[LockGuard; 2]>> {
    let (client, all_have_one) = (client.clone(), Arc::clone(all_have_one));
    tokio::spawn(async move {
        let first = client.lock(first).ttl(LONG).acquire().await?;
        all_have_one.wait().await;
        let second = client.lock(second).ttl(LONG).acquire().await?;
        Ok([first, second])
    })
}

/// F19: two sessions that take two locks in opposite order: exactly one of them is told that it
/// is a deadlock, and the other one goes on.
pub async fn a_circle_of_two_has_one_victim(harness: &dyn Harness) {
    let (one, two) = (harness.client().await, harness.client().await);
    if !has_queue(&one).await {
        return;
    }
    let start = Arc::new(Barrier::new(2));
    let tasks = [
        hold_and_wait(&one, "ring-a", "ring-b", &start),
        hold_and_wait(&two, "ring-b", "ring-a", &start),
    ];
    let mut victims = 0;
    for task in tasks {
        match within("the deadlock is found", task).await.unwrap() {
            Ok(guards) => drop(guards),
            Err(error) => {
                assert!(error.is_deadlock() && !error.is_already_held_here(), "{error:?}");
                let text = error.to_string();
                assert!(text.contains("ring-a") && text.contains("ring-b"), "{text}");
                victims += 1;
            }
        }
    }
    assert_eq!(victims, 1);
    until_unused(one.store(), "ring-a").await;
    until_unused(one.store(), "ring-b").await;
}

/// F19: the same where the victim, by its priority, has waited for long when the circle is closed:
/// it goes on looking, and is told no later than one who came last.
pub async fn a_victim_that_came_first_is_told_as_soon(harness: &dyn Harness) {
    let (one, two) = (harness.client().await, harness.client().await);
    if !has_queue(&one).await {
        return;
    }
    let second = two.lock("ring-b").ttl(LONG).acquire().await.unwrap();
    let first = tokio::spawn(async move {
        let first = one.lock("ring-a").ttl(LONG).acquire().await.unwrap();
        let error = one.lock("ring-b").ttl(LONG).priority(-1).acquire().await.unwrap_err();
        let told = now();
        first.release().await.unwrap();
        (error, told)
    });
    until_waiters(two.store(), "ring-b", 1).await;
    let_time_pass(Duration::from_secs(2)).await;
    let closed = now();
    let guard = within("granted", two.lock("ring-a").ttl(LONG).acquire()).await.unwrap();
    let (error, told) = within("the victim is told", first).await.unwrap();
    assert!(error.is_deadlock() && !error.is_already_held_here(), "{error:?}");
    if two.capability().expiry == Expiry::Clock {
        let took = told.since(closed);
        assert!(took < FOUND_WITHIN, "told after {took:?}");
    }
    guard.release().await.unwrap();
    second.release().await.unwrap();
}

/// F19: the same where the waiters run inside of the holders, as other processes: they are other
/// parties, and the holders themselves wait for nothing.
pub async fn a_circle_through_nested_processes_has_one_victim(harness: &dyn Harness) {
    let outer = [harness.client().await, harness.client().await];
    if !has_queue(&outer[0]).await {
        return;
    }
    let hold = async |client: &Client, name: &str, party| {
        client.lock(name).ttl(LONG).party(party).acquire().await.unwrap()
    };
    let parties = [PartyId::outermost(&OsEntropy), PartyId::outermost(&OsEntropy)];
    let around = [
        hold(&outer[0], "ring-a", parties[0]).await,
        hold(&outer[1], "ring-b", parties[1]).await,
    ];
    let mut tasks = Vec::new();
    for (around, wanted) in around.into_iter().zip(["ring-b", "ring-a"]) {
        let inner = harness.client().await;
        let party = parties[tasks.len()].inner(&OsEntropy).unwrap();
        tasks.push(tokio::spawn(async move {
            let guard = inner.lock(wanted).ttl(LONG).party(party).acquire().await;
            // The end of a command ends what is around it.
            around.release().await.unwrap();
            guard.map(drop)
        }));
    }
    let mut victims = 0;
    for task in tasks {
        if let Err(error) = within("the deadlock is found", task).await.unwrap() {
            assert!(error.deadlock().is_some(), "{error:?}");
            victims += 1;
        }
    }
    assert_eq!(victims, 1);
    until_unused(outer[0].store(), "ring-a").await;
    until_unused(outer[0].store(), "ring-b").await;
}

/// F19: who works beside a waiter, inside of the same process, is not stuck with it.
pub async fn what_runs_beside_a_nested_waiter_is_no_circle(harness: &dyn Harness) {
    let clients =
        [harness.client().await, harness.client().await, harness.client().await];
    if !has_queue(&clients[0]).await {
        return;
    }
    let outer = PartyId::outermost(&OsEntropy);
    let inner = || outer.inner(&OsEntropy).unwrap();
    let ask = |client: &Client, name: &str| client.lock(name).ttl(LONG);
    let beside = ask(&clients[0], "beside").party(inner()).acquire().await.unwrap();
    let other = PartyId::random(&OsEntropy);
    let wanted = ask(&clients[1], "wanted").party(other).acquire().await.unwrap();
    let waiter = spawn_acquire(ask(&clients[2], "wanted").party(inner()));
    let last = spawn_acquire(ask(&clients[1], "beside").party(other));
    until_waiters(clients[0].store(), "wanted", 1).await;
    until_waiters(clients[0].store(), "beside", 1).await;
    let_time_pass(PAST_THE_FIRST_SEARCH).await;
    assert!(!waiter.is_finished() && !last.is_finished(), "a victim without a deadlock");
    beside.release().await.unwrap();
    drop(within("granted", last).await.unwrap().unwrap());
    wanted.release().await.unwrap();
    drop(within("granted", waiter).await.unwrap().unwrap());
}

/// F19: a chain of waiters is no deadlock, and nobody in it is told so.
pub async fn a_chain_has_no_victim(harness: &dyn Harness) {
    let clients = [harness.client().await, harness.client().await, harness.client().await];
    if !has_queue(&clients[0]).await {
        return;
    }
    let last = clients[2].lock("ring-c").ttl(LONG).acquire().await.unwrap();
    let start = Arc::new(Barrier::new(2));
    let tasks = [
        hold_and_wait(&clients[0], "ring-a", "ring-b", &start),
        hold_and_wait(&clients[1], "ring-b", "ring-c", &start),
    ];
    until_waiters(clients[0].store(), "ring-b", 1).await;
    until_waiters(clients[0].store(), "ring-c", 1).await;
    let_time_pass(PAST_THE_FIRST_SEARCH).await;
    assert!(tasks.iter().all(|task| !task.is_finished()), "a victim without a deadlock");
    last.release().await.unwrap();
    let [first, second] = tasks;
    drop(within("the second goes on", second).await.unwrap().unwrap());
    drop(within("the first goes on", first).await.unwrap().unwrap());
}

/// F19: a pending upgrade counts as waiting: who holds what it waits for and waits for it in turn
/// is told.
pub async fn a_circle_through_an_upgrade_has_one_victim(harness: &dyn Harness) {
    let (one, two) = (harness.client().await, harness.client().await);
    if !has_queue(&one).await || !has_readers(&one).await {
        return;
    }
    // Both hold what the other one wants before they want it.
    let ready = Arc::new(Barrier::new(2));
    let upgrader = tokio::spawn({
        let (one, ready) = (one.clone(), Arc::clone(&ready));
        async move {
            let other = one.lock("other").ttl(LONG).acquire().await?;
            let mut guard = one.lock("config").upgradable().ttl(LONG).acquire().await?;
            ready.wait().await;
            until_waiters(one.store(), "other", 1).await;
            guard.upgrade().await?;
            Ok::<_, sprag_core::Error>((other, guard))
        }
    });
    let reader = tokio::spawn(async move {
        let reader = two.lock("config").shared().ttl(LONG).acquire().await?;
        ready.wait().await;
        let other = two.lock("other").ttl(LONG).acquire().await?;
        Ok::<_, sprag_core::Error>((reader, other))
    });
    let error = within("the reader is told", reader).await.unwrap().unwrap_err();
    assert!(error.is_deadlock(), "{error:?}");
    drop(within("the upgrade goes on", upgrader).await.unwrap().unwrap());
}

/// F19: two upgraders, each of which reads what the other one wants to write: one gives up.
pub async fn a_circle_of_upgrades_has_one_victim(harness: &dyn Harness) {
    let clients = [harness.client().await, harness.client().await];
    if !has_queue(&clients[0]).await || !has_readers(&clients[0]).await {
        return;
    }
    let start = Arc::new(Barrier::new(2));
    let upgrade = |client: &Client, mine: &'static str, other: &'static str| {
        let (client, start) = (client.clone(), Arc::clone(&start));
        tokio::spawn(async move {
            let mut mine = client.lock(mine).upgradable().ttl(LONG).acquire().await?;
            let other = client.lock(other).shared().ttl(LONG).acquire().await?;
            start.wait().await;
            mine.upgrade().await.map(|()| drop((mine, other)))
        })
    };
    let one = upgrade(&clients[0], "ring-a", "ring-b");
    let two = upgrade(&clients[1], "ring-b", "ring-a");
    let both = within("the deadlock is found", async { tokio::join!(one, two) }).await;
    let answers = [both.0.unwrap(), both.1.unwrap()];
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    let error = answers.into_iter().find_map(Result::err).unwrap();
    assert!(error.is_deadlock(), "{error:?}");
    until_unused(clients[0].store(), "ring-a").await;
    until_unused(clients[0].store(), "ring-b").await;
}

/// F19: tasks of one process may wait for each other's locks without harm as long as they do not
/// wait in a circle.
pub async fn tasks_of_one_process_are_told_apart(harness: &dyn Harness) {
    let client = harness.client().await;
    if !has_queue(&client).await {
        return;
    }
    let guard = client.lock("a").ttl(LONG).acquire().await.unwrap();
    let waiting = spawn_acquire(client.lock("a").ttl(LONG));
    until_waiters(client.store(), "a", 1).await;
    let other = client.lock("b").ttl(LONG).acquire().await.unwrap();
    let also = spawn_acquire(client.lock("b").ttl(LONG));
    until_waiters(client.store(), "b", 1).await;
    let_time_pass(PAST_THE_FIRST_SEARCH).await;
    assert!(!waiting.is_finished() && !also.is_finished(), "a victim without a deadlock");
    guard.release().await.unwrap();
    other.release().await.unwrap();
    drop(within("granted", waiting).await.unwrap().unwrap());
    drop(within("granted", also).await.unwrap().unwrap());
}
