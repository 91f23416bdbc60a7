//! Processes that end without a word, and those that end in order.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use sprag_core::Fence;

use super::Scene;
use crate::process::{Ask, Command, Taker};
use crate::support::{LONG, let_time_pass, name, now, times, until_unused, until_waiters};

/// F02: after `kill -9` of the holder the waiter is granted soon, with a larger fence, although
/// the lease is good for long.
pub async fn the_lock_of_a_killed_process_is_soon_free(scene: &Scene) {
    let mut holder = scene.taker("holder").await;
    soon_free_after(scene, &mut holder, async |holder: &mut Taker| {
        let status = holder.kill().await;
        assert_eq!(status.signal(), Some(9));
    })
    .await;
}

/// F02: the same for a process that aborts, as with `panic=abort`.
pub async fn the_lock_of_an_aborted_process_is_soon_free(scene: &Scene) {
    let mut holder = scene.taker("holder").await;
    soon_free_after(scene, &mut holder, async |holder: &mut Taker| {
        // There is no answer to that.
        drop(holder.start(Command::Abort));
        assert_eq!(holder.ended().await.signal(), Some(6));
    })
    .await;
}

async fn soon_free_after(scene: &Scene, holder: &mut Taker, end: impl AsyncFnOnce(&mut Taker)) {
    let lock = name("report");
    let ttl = scene.mortal_ttl();
    let mut waiter = scene.taker("waiter").await;
    let held = holder.acquire(Ask::new(lock.clone(), ttl)).await;
    let waiting = waiter.start(Command::Acquire(Ask::new(lock.clone(), LONG)));
    until_waiters(&scene.store, "report", 1).await;
    let died = now();
    end(holder).await;
    let granted = waiter.granted(waiting).await;
    let took = now().since(died);
    assert!(took < scene.death_is_seen_within(), "the death was seen after {took:?}");
    assert!(granted.fence > held.fence, "{granted:?} after {held:?}");
    assert_eq!(waiter.release(&lock).await, None);
    until_unused(&scene.store, "report").await;
}

/// F02: killed at any moment, while asking, waiting, holding or releasing, a process leaves
/// nothing behind: the next one is granted soon, and fences only grow.
pub async fn processes_killed_at_any_moment_leave_nothing_behind(scene: &Scene) {
    let lock = name("report");
    let ttl = scene.mortal_ttl();
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut survivor = scene.taker("survivor").await;
    let mut last = Fence::ZERO;
    for round in 0..times(30, 10_000) {
        let mut victim = scene.taker("victim").await;
        let asked = victim.start(Command::Acquire(Ask::new(lock.clone(), ttl)));
        let mut moment = || Duration::from_micros(random.u64(..3_000));
        let_time_pass(moment()).await;
        if victim.has_answered(&asked) && round % 2 == 0 {
            // Killed while it releases, or soon after.
            drop(victim.start(Command::Release(lock.clone())));
            let_time_pass(moment() / 4).await;
        }
        let died = now();
        victim.kill().await;
        let granted = survivor.acquire(Ask::new(lock.clone(), LONG)).await;
        let took = now().since(died);
        assert!(took < scene.death_is_seen_within(), "{took:?} in round {round}, seed {seed}");
        assert!(granted.fence > last, "{granted:?} after {last}, round {round}, seed {seed}");
        last = granted.fence;
        assert_eq!(survivor.release(&lock).await, None);
    }
    until_unused(&scene.store, "report").await;
}

/// A process that is asked to end by SIGTERM and does so in order gives its locks back at once,
/// also where the store would not see its death.
pub async fn a_terminated_process_gives_its_locks_back(scene: &Scene) {
    let lock = name("report");
    let (mut holder, mut waiter) = (scene.taker("holder").await, scene.taker("waiter").await);
    let held = holder.acquire(Ask::new(lock.clone(), LONG)).await;
    let waiting = waiter.start(Command::Acquire(Ask::new(lock.clone(), LONG)));
    until_waiters(&scene.store, "report", 1).await;
    let asked = now();
    holder.terminate();
    assert!(holder.ended().await.success());
    let granted = waiter.granted(waiting).await;
    let took = now().since(asked);
    assert!(took < LONG / 4, "given back after {took:?}");
    assert!(granted.fence > held.fence, "{granted:?} after {held:?}");
}
