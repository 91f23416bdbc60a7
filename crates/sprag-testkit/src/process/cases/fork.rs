//! A process that forks without exec.

use super::Scene;
use crate::harness::Harness;
use crate::process::{Answer, Ask, Command};
use crate::support::{LONG, name, until_unused};

/// F72: a forked child has copies of the guard, the client and the store. The guard says that it
/// is lost, the store refuses everything, and releasing, dropping and ending change nothing: the
/// parent has the lock and goes on.
pub async fn a_forked_child_has_nothing_and_breaks_nothing(scene: &Scene<impl Harness>) {
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
    assert_eq!(other.release(&lock).await, None);
    until_unused(&scene.store, "report").await;
}
