//! One holder at a time, whatever the other processes do.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::time::Duration;

use sprag_core::LockName;

use super::Scene;
use crate::history::Rules;
use crate::process::{Answer, Ask, Churn, Command, GuardedFile};
use crate::support::{LONG, let_time_pass, name, times, until_unused};
use crate::torture::settle;

/// Two processes exclude each other; a release in one is a grant in the other, with a larger
/// fence. Both together count without losing a step, although the counter asks for no fence.
pub async fn two_processes_exclude_each_other(scene: &Scene) {
    let (mut one, mut two) = (scene.taker("one").await, scene.taker("two").await);
    let lock = name("report");
    let first = one.acquire(Ask::new(lock.clone(), LONG)).await;
    let other = two.ask(Command::Try(Ask::new(lock.clone(), LONG))).await;
    assert_eq!(other, Answer::Held);
    assert_eq!(one.ask(Command::State(lock.clone())).await, Answer::Held);
    assert_eq!(one.release(&lock).await, None);
    let second = two.acquire(Ask::new(lock.clone(), LONG)).await;
    assert!(second.fence > first.fence, "{second:?} after {first:?}");
    assert_eq!(two.release(&lock).await, None);

    let rounds = rounds(scene);
    count_together(scene, [std::slice::from_ref(&lock); 2], rounds).await;
}

/// FAULTS 25: two processes that take the same two locks in opposite orders, over and over,
/// never wait for each other, and both locks together exclude.
pub async fn opposite_orders_never_deadlock(scene: &Scene) {
    let [a, b] = ["a", "b"].map(name);
    let orders = [&[a.clone(), b.clone()][..], &[b, a]];
    count_together(scene, orders, rounds(scene)).await;
}

/// How often each of two processes takes the lock.
fn rounds(scene: &Scene) -> u32 {
    let few = u32::try_from(scene.harness.times(200)).unwrap();
    times(few, few * 50)
}

/// Two processes take the locks and add to one counter, so many times each.
async fn count_together(scene: &Scene, locks: [&[LockName]; 2], rounds: u32) {
    let file = scene.file("counter");
    let (mut one, mut two) = (scene.taker("one").await, scene.taker("two").await);
    let [first, second] = locks.map(|locks| {
        let (locks, file) = (locks.to_vec(), file.clone());
        Command::Rounds { locks, rounds, file }
    });
    let (first, second) = (one.start(first), two.start(second));
    let done = Answer::Count(rounds.into());
    assert_eq!(one.finish_slowly(first).await, done);
    assert_eq!(two.finish_slowly(second).await, done);
    let counted = GuardedFile::open(file).unwrap().read(None).unwrap();
    assert_eq!(counted, Some(2 * u64::from(rounds)), "an update was lost");
    for lock in locks[0] {
        until_unused(&scene.store, lock.as_str()).await;
    }
}

/// F20: eight processes fight over three locks, hold them for a millisecond, give up, try, drop
/// and release; the history of all of them keeps every rule. In full, 64 over one for ten minutes.
pub async fn many_processes_in_a_hurry_keep_every_rule(scene: &Scene) {
    let history = scene.file("history.jsonl");
    let ttl = Duration::from_secs(5).max(scene.harness.ttl());
    let folder = scene.folder().to_owned();
    let locks = usize::try_from(times(3, 1)).unwrap();
    let plan = Churn { locks, folder, ttl, checked: true, seed: 0 };
    let mut takers = Vec::new();
    for number in 0..times(8, 64).into() {
        let config = scene.config().name(format!("p{number}")).history(&history);
        takers.push(config.churn(Churn { seed: number, ..plan.clone() }).spawn().await);
    }
    let_time_pass(Duration::from_secs(3) * times(1, 200)).await;
    takers.iter_mut().for_each(|taker| taker.close());
    let mut grants = 0;
    for taker in &mut takers {
        let tally = taker.last_words().await.expect("a process tells what it did");
        assert_eq!((tally.lost, tally.rejected), (0, 0), "{}: {tally:?}", taker.name());
        grants += tally.grants;
        assert!(taker.ended().await.success(), "{} failed", taker.name());
    }
    // A handful would pass the checks and prove nothing.
    assert!(grants > scene.harness.times(40) as u64, "only {grants} grants in 3 s");
    let rules = Rules { sections: true, ..Rules::default() };
    let judgement = settle(&scene.store, &plan, &history, &rules).await;
    assert!(judgement.found.is_empty(), "{}", judgement.found.join("\n"));
    assert_eq!(judgement.grants, grants, "the history has holes");
}
