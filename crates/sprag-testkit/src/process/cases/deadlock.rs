//! Processes that wait for each other.

use std::time::Duration;

use sprag_core::record::Expiry;

use super::Scene;
use crate::cases::deadlock::FOUND_WITHIN;
use crate::process::{Answer, Ask, Command, TroubleKind};
use crate::support::{LONG, eventually, name, until_unused};

/// F19: one process holds a and wants b, the other holds b and wants a, both renew. Soon exactly
/// one of them is told to give up; when it does, the other is granted, and both finish.
pub async fn a_deadlock_between_processes_has_exactly_one_victim(scene: &Scene) {
    if !scene.has_queue().await {
        return;
    }
    let [a, b] = ["a", "b"].map(name);
    let mut takers = [scene.taker("one").await, scene.taker("two").await];
    takers[0].acquire(Ask::new(a.clone(), LONG)).await;
    takers[1].acquire(Ask::new(b.clone(), LONG)).await;
    let ask = |lock| Command::Acquire(Ask::new(lock, LONG).wait(LONG));
    let mut waiting = [takers[0].start(ask(b.clone())), takers[1].start(ask(a.clone()))].map(Some);

    let mut victim = None;
    eventually("one of them is told", || {
        victim = (0..2).find(|&number| {
            waiting[number].as_ref().is_some_and(|waits| takers[number].has_answered(waits))
        });
        std::future::ready(victim.is_some())
    })
    .await;
    let victim = victim.expect("one was told");
    let other = 1 - victim;
    let told = waiting[victim].take().expect("it was waiting");
    let trouble = takers[victim].failed(told).await;
    assert_eq!(trouble.kind, TroubleKind::Deadlock, "{trouble:?}");
    // Nobody looks before it has waited for a second: most waits are shorter.
    assert!(trouble.after_ms >= 900, "{trouble:?}");
    if scene.store.capability().expiry == Expiry::Clock {
        assert!(Duration::from_millis(trouble.after_ms) < FOUND_WITHIN, "{trouble:?}");
    }
    for lock in ["\"a\"", "\"b\""] {
        assert!(trouble.message.contains(lock), "{} does not name {lock}", trouble.message);
    }

    // The other waits on for what the victim still holds, and is not told to give up as well.
    let waits = waiting[other].take().expect("it is waiting");
    let patience = tokio::time::timeout(Duration::from_secs(2), async {
        while !takers[other].has_answered(&waits) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(patience.await.is_err(), "two victims, or a lock for two");
    let [first, second] = if victim == 0 { [a, b] } else { [b, a] };
    assert_eq!(takers[victim].release(&first).await, None);
    takers[other].granted(waits).await;
    for lock in [&first, &second] {
        assert_eq!(takers[other].release(lock).await, None);
    }
    let both = Command::Acquire(Ask::new(second.clone(), LONG));
    assert!(matches!(takers[victim].ask(both).await, Answer::Granted(_)));
    assert_eq!(takers[victim].release(&second).await, None);
    until_unused(&scene.store, "a").await;
    until_unused(&scene.store, "b").await;
}
