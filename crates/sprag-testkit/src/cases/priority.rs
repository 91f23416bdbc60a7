//! Priorities: who goes first, and for how long that may go on.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sprag_core::record::PRIORITY_BOOST_MS;

use super::queue::has_queue;
use crate::harness::Harness;
use crate::support::{
    LONG, PATIENCE, let_time_pass, look, now, spawn_acquire, until_waiters, within,
};

/// A higher priority goes first, equal ones in the order of arrival.
pub async fn a_higher_priority_goes_first(harness: &dyn Harness) {
    let client = harness.client().await;
    if !has_queue(&client).await {
        return;
    }
    let guard = client.lock("report").ttl(LONG).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for (number, priority) in [0, -8, 8, 0, 1].into_iter().enumerate() {
        waiting.push(spawn_acquire(client.lock("report").ttl(LONG).priority(priority)));
        until_waiters(client.store(), "report", number + 1).await;
    }
    let view = look(client.store(), "report").await;
    let order: Vec<_> = view.waiters.iter().map(|wait| (wait.priority, wait.ticket)).collect();
    let first = view.waiters.iter().map(|wait| wait.ticket).min().unwrap();
    let order: Vec<_> = order.into_iter().map(|(priority, at)| (priority, at - first)).collect();
    assert_eq!(order, [(8, 2), (1, 4), (0, 0), (0, 3), (-8, 1)]);
    guard.release().await.unwrap();
    let urgent = within("the most urgent is granted", waiting.remove(2)).await.unwrap().unwrap();
    assert_eq!(look(client.store(), "report").await.holders[0].lease, urgent.lease());
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

/// F67: under an endless stream of higher priority a waiter is granted when its age makes up for
/// the difference, and not only when the stream ends.
pub async fn nobody_starves_under_higher_priorities(harness: &dyn Harness) {
    let (client, urgent) = (harness.client().await, harness.client().await);
    if !has_queue(&client).await {
        return;
    }
    let bound = Duration::from_millis(u64::try_from(PRIORITY_BOOST_MS).unwrap());
    let guard = client.lock("report").ttl(LONG).acquire().await.unwrap();
    let started = now();
    let patient = spawn_acquire(client.lock("report").ttl(LONG));
    until_waiters(client.store(), "report", 1).await;

    let done = Arc::new(AtomicBool::new(false));
    // Two at a time, so that one of them waits whenever the other one releases.
    let stream = [(); 2].map(|()| {
        let (urgent, done) = (urgent.clone(), Arc::clone(&done));
        tokio::spawn(async move {
            let mut grants = 0_u32;
            while !done.load(Ordering::SeqCst) {
                let request = urgent.lock("report").ttl(LONG).priority(1);
                let guard = request.acquire().await.unwrap();
                let_time_pass(Duration::from_millis(100)).await;
                guard.release().await.unwrap();
                grants += 1;
            }
            grants
        })
    });
    until_waiters(client.store(), "report", 3).await;
    guard.release().await.unwrap();
    let granted = tokio::time::timeout(bound + PATIENCE, patient).await;
    let waited = now().since(started);
    done.store(true, Ordering::SeqCst);
    granted.expect("starved").unwrap().unwrap().release().await.unwrap();
    assert!(waited >= bound / 2, "the higher priority did not count: {waited:?}");
    for urgent in stream {
        assert!(within("the stream ends", urgent).await.unwrap() > 10);
    }
}
