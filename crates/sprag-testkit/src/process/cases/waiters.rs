//! Waiters that die in the queue.

use super::Scene;
use crate::process::{Ask, Command, Started, Taker};
use crate::support::{LONG, name, now, times, until_unused, until_waiters};

/// Starts processes that wait for `report`, in this order.
async fn queue(scene: &Scene, count: usize) -> Vec<(Taker, Started)> {
    let ttl = scene.mortal_ttl();
    let mut waiters = Vec::new();
    for number in 0..count {
        let mut taker = scene.taker(&format!("waiter {number}")).await;
        let waiting = taker.start(Command::Acquire(Ask::new(name("report"), ttl)));
        until_waiters(&scene.store, "report", number + 1).await;
        waiters.push((taker, waiting));
    }
    waiters
}

/// F03: waiters killed at the head and in the middle of the queue are passed over, and hold up
/// nobody; the others are granted in their order.
pub async fn killed_waiters_are_passed_over(scene: &Scene) {
    if !scene.has_queue().await {
        return;
    }
    let lock = name("report");
    let mut holder = scene.taker("holder").await;
    let mut last = holder.acquire(Ask::new(lock.clone(), LONG)).await;
    let mut waiters = queue(scene, 5).await;
    for killed in [0, 2] {
        waiters[killed].0.kill().await;
    }
    let mut freed = now();
    assert_eq!(holder.release(&lock).await, None);
    for (number, (mut waiter, waiting)) in waiters.into_iter().enumerate() {
        if number == 0 || number == 2 {
            continue;
        }
        let granted = waiter.granted(waiting).await;
        let took = now().since(freed);
        assert!(took < scene.death_is_seen_within(), "waiter {number} after {took:?}");
        assert!(granted.fence > last.fence, "{granted:?} after {last:?}");
        last = granted;
        freed = now();
        assert_eq!(waiter.release(&lock).await, None);
    }
    until_unused(&scene.store, "report").await;
}

/// FAULTS 13: twenty dead waiters before a live one cost it next to nothing, not a timeout each.
pub async fn twenty_dead_waiters_hold_nobody_up(scene: &Scene) {
    let lock = name("report");
    let mut holder = scene.taker("holder").await;
    let held = holder.acquire(Ask::new(lock.clone(), LONG)).await;
    let few = u32::try_from(scene.harness.times(20)).expect("it is a small number");
    let dead = usize::try_from(times(few, few * 5)).expect("it is a small number");
    let mut waiters = queue(scene, dead + 1).await;
    let (mut live, waiting) = waiters.pop().expect("the last one was queued");
    for (waiter, _) in &mut waiters {
        waiter.kill().await;
    }
    let freed = now();
    assert_eq!(holder.release(&lock).await, None);
    let granted = live.granted(waiting).await;
    let took = now().since(freed);
    assert!(took < scene.death_is_seen_within(), "granted after {took:?}");
    assert!(granted.fence > held.fence, "{granted:?} after {held:?}");
    assert_eq!(live.release(&lock).await, None);
    until_unused(&scene.store, "report").await;
}
