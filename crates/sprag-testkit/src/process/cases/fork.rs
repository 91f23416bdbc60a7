//! A process that forks without exec.

use super::Scene;
use crate::process::{Answer, Ask, Command, Taker};
use crate::support::{LONG, name, until_unused, until_waiters};

/// F72: a forked child has copies of the guard, the client and the store. The guard says that it
/// is lost, the store refuses everything, and releasing, dropping and ending change nothing: the
/// parent has the lock and goes on.
pub async fn a_forked_child_has_nothing_and_breaks_nothing(scene: &Scene) {
    let lock = name("report");
    let (mut parent, mut other) = (scene.taker("parent").await, scene.taker("other").await);
    parent.acquire(Ask::new(lock.clone(), LONG)).await;
    assert_eq!(parent.ask(Command::Fork(lock.clone())).await, Answer::Count(0));
    assert_eq!(parent.ask(Command::State(lock.clone())).await, Answer::Held);
    let tried = other.ask(Command::Try(Ask::new(lock.clone(), LONG))).await;
    assert_eq!(tried, Answer::Held);
    assert_eq!(parent.ask(Command::Extend(lock.clone(), 30_000)).await, Answer::Done);
    assert_eq!(parent.release(&lock).await, None);
    other.acquire(Ask::new(lock.clone(), LONG)).await;
    if scene.store.capability().queue {
        a_forked_child_lets_nobody_in(scene, &mut other, &mut parent).await;
    } else {
        assert_eq!(other.release(&lock).await, None);
    }
    until_unused(&scene.store, "report").await;
}

/// The same for a parent that was handed the lock, and may know who comes next.
async fn a_forked_child_lets_nobody_in(scene: &Scene, holder: &mut Taker, parent: &mut Taker) {
    let lock = name("report");
    let mut last = scene.taker("last").await;
    let waits = parent.start(Command::Acquire(Ask::new(lock.clone(), LONG)));
    until_waiters(&scene.store, "report", 1).await;
    let behind = last.start(Command::Acquire(Ask::new(lock.clone(), LONG)));
    until_waiters(&scene.store, "report", 2).await;
    assert_eq!(holder.release(&lock).await, None);
    parent.granted(waits).await;
    assert_eq!(parent.ask(Command::Fork(lock.clone())).await, Answer::Count(0));
    assert_eq!(parent.ask(Command::Extend(lock.clone(), 30_000)).await, Answer::Done);
    assert!(!last.has_answered(&behind), "the child let somebody in");
    assert_eq!(parent.release(&lock).await, None);
    last.granted(behind).await;
    assert_eq!(last.release(&lock).await, None);
}
