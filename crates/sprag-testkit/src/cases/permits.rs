//! Semaphores: at most so many at once.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::Arc;

use sprag_core::{Client, Loss, Store};

use crate::harness::Harness;
use crate::support::{
    LONG, able, eventually, look, spawn_acquire, until_unused, until_waiters, within,
};

/// Whether the store has semaphores; if not, they are refused.
pub(super) async fn has_permits(client: &Client) -> bool {
    able(client, |able| able.permits, |client| client.lock("any").permits(1, 2)).await
}

/// F65: no more permits are given out than there are, whatever the counts.
pub async fn no_more_permits_than_there_are(harness: &dyn Harness) {
    let (one, two) = (harness.client().await, harness.client().await);
    if !has_permits(&one).await {
        return;
    }
    let builds = two.semaphore("builds", 5).unwrap();
    let three = one.lock("builds").permits(3, 5).ttl(LONG).acquire().await.unwrap();
    let two_more = builds.permits(2).ttl(LONG).acquire().await.unwrap();
    assert_eq!(look(one.store(), "builds").await.limit, Some(5));
    assert!(builds.permits(1).try_acquire().await.unwrap().is_none());
    two_more.release().await.unwrap();
    assert!(builds.permits(3).try_acquire().await.unwrap().is_none());
    let last = builds.permits(2).ttl(LONG).try_acquire().await.unwrap();
    assert!(last.is_some());
    for other in [one.lock("builds"), two.lock("builds").shared()] {
        if let Ok(granted) = other.try_acquire().await {
            assert!(granted.is_none(), "held in another mode beside permits: {granted:?}");
        }
    }
    drop((three, last));
    until_unused(one.store(), "builds").await;
}

/// A big request at the front is not starved by small ones behind it.
pub async fn a_big_request_is_not_overtaken(harness: &dyn Harness) {
    let client = harness.client().await;
    if !has_permits(&client).await {
        return;
    }
    let ask = |count| client.lock("builds").permits(count, 3).ttl(LONG);
    let one = ask(1).acquire().await.unwrap();
    let big = spawn_acquire(ask(3));
    until_waiters(client.store(), "builds", 1).await;
    assert!(ask(1).try_acquire().await.unwrap().is_none(), "a small one overtook the big one");
    let small = [(); 2].map(|()| spawn_acquire(ask(1)));
    until_waiters(client.store(), "builds", 3).await;
    one.release().await.unwrap();
    let big = within("the big one is granted", big).await.unwrap().unwrap();
    assert!(small.iter().all(|small| !small.is_finished()));
    big.release().await.unwrap();
    for small in small {
        drop(within("the small ones are granted", small).await.unwrap().unwrap());
    }
}

/// F65: the permits of a dead process come back, once.
pub async fn a_dead_holder_returns_its_permits(harness: &dyn Harness) {
    let client = harness.client().await;
    if !has_permits(&client).await {
        return;
    }
    let session = harness.session().await;
    let doomed = Client::new(Arc::clone(&session) as Arc<dyn Store>);
    let ttl = if harness.sees_death() { LONG * 10 } else { harness.ttl() };
    let dead = doomed.lock("builds").permits(2, 3).ttl(ttl).acquire().await.unwrap();
    let ask = || client.lock("builds").permits(1, 3).ttl(LONG);
    let kept = ask().acquire().await.unwrap();
    let waiting = [(); 3].map(|()| spawn_acquire(ask()));
    until_waiters(client.store(), "builds", 3).await;
    session.kill();
    let two = || async { look(client.store(), "builds").await.waiters.len() == 1 };
    eventually("two of three are granted", two).await;
    let view = look(client.store(), "builds").await;
    assert_eq!((view.holders.len(), view.waiters.len()), (3, 1), "over-granted");
    assert!(kept.is_valid());
    kept.release().await.unwrap();
    for waiting in waiting {
        within("granted", waiting).await.unwrap().unwrap().release().await.unwrap();
    }
    drop(dead);
    until_unused(client.store(), "builds").await;
}

/// F65: when the number is lowered below what is held, nobody is pushed out and nobody is let in
/// until enough have left; a waiter that asks for more than there are now is told.
pub async fn a_lowered_number_drains(harness: &dyn Harness) {
    let client = harness.client().await;
    if !has_permits(&client).await {
        return;
    }
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(client.lock("builds").permits(1, 5).ttl(LONG).acquire().await.unwrap());
    }
    let greedy = spawn_acquire(client.lock("builds").permits(3, 5).ttl(LONG));
    until_waiters(client.store(), "builds", 1).await;
    let lowered = client.semaphore("builds", 2).unwrap().resize();
    let waiting = spawn_acquire(lowered.permits(1).ttl(LONG));
    let error = within("the greedy one is told", greedy).await.unwrap().unwrap_err();
    assert_eq!(error.loss(), Some(&Loss::LimitLowered), "{error:?}");
    until_waiters(client.store(), "builds", 1).await;
    assert!(held.iter().all(sprag_core::LockGuard::is_valid), "somebody was pushed out");
    for left in [3, 2] {
        held.pop().unwrap().release().await.unwrap();
        let view = look(client.store(), "builds").await;
        assert_eq!((view.holders.len(), view.waiters.len()), (left, 1), "over-granted");
    }
    held.pop().unwrap().release().await.unwrap();
    drop(within("granted when enough have left", waiting).await.unwrap().unwrap());
}

/// FAULTS 18: another number of permits than the one in use is refused and changes nothing; an
/// unused semaphore may come back with any.
pub async fn another_number_of_permits_is_refused(harness: &dyn Harness) {
    let (one, two) = (harness.client().await, harness.client().await);
    if !has_permits(&one).await {
        return;
    }
    let guard = one.lock("builds").permits(1, 3).ttl(LONG).acquire().await.unwrap();
    for request in [two.lock("builds").permits(1, 4), two.lock("builds").permits(1, 4).no_wait()] {
        let error = request.acquire().await.unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains('3'), "{error:?}");
    }
    assert_eq!(look(one.store(), "builds").await.limit, Some(3));
    guard.release().await.unwrap();
    two.lock("builds").permits(4, 4).acquire().await.unwrap().release().await.unwrap();
}
