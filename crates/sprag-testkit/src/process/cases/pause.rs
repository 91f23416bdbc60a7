//! Processes that are stopped while they hold a lock, and go on as if nothing had happened.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::time::Duration;

use sprag_core::{Fence, Loss};

use super::Scene;
use crate::history::{Check, Recorder, Rules, check};
use crate::process::{Answer, Ask, Command, GuardedFile, Started, Taker};
use crate::support::{LONG, let_time_pass, name, now, until_unused, until_waiters};

/// Two processes that add one to the same counter; the first is stopped in the middle for twice
/// its TTL.
struct Drama {
    paused: Taker,
    paused_fence: Fence,
    other: Taker,
    /// The first questions to the paused one, asked while it was stopped.
    state: Started,
    write: Started,
}

async fn pause_the_holder(scene: &Scene, checked: bool) -> Drama {
    let (lock, file) = (name("report"), scene.file("counter"));
    let history = scene.file("history.jsonl");
    let ttl = scene.harness.ttl().max(Duration::from_millis(500));
    let [mut paused, mut other] = [
        scene.config().name("paused").history(&history).spawn().await,
        scene.config().name("other").history(&history).spawn().await,
    ];
    let read = || Command::Read { lock: lock.clone(), file: file.clone(), checked };
    let write = || Command::Write { lock: lock.clone(), file: file.clone(), checked };

    let held = paused.acquire(Ask::new(lock.clone(), ttl)).await;
    assert_eq!(paused.ask(read()).await, Answer::Count(0));
    paused.stop().await;
    let stopped = now();
    let granted = other.acquire(Ask::new(lock.clone(), LONG)).await;
    assert!(granted.fence > held.fence, "{granted:?} after {held:?}");
    assert!(granted.t_recv_ns >= held.valid_until_ns, "granted before the holder's deadline");
    assert_eq!(other.ask(read()).await, Answer::Count(0));
    let wrote = other.ask(write()).await;
    assert_eq!(wrote, Answer::Wrote { accepted: true, fence: granted.fence });

    let (state, write) = (paused.start(Command::State(lock.clone())), paused.start(write()));
    let_time_pass((ttl * 2).saturating_sub(now().since(stopped))).await;
    paused.go_on();
    Drama { paused, paused_fence: held.fence, other, state, write }
}

/// F60, F01: a holder that was stopped for twice its TTL finds its lock lost before it gets any
/// other answer. Its write, done without asking, carries the old fence and is refused; its
/// release frees nothing.
pub async fn a_paused_holder_knows_its_loss_and_its_late_write_is_refused(scene: &Scene) {
    let lock = name("report");
    let mut drama = pause_the_holder(scene, true).await;
    let state = drama.paused.finish(drama.state).await;
    assert!(matches!(state, Answer::Lost(_)), "{state:?}");
    let write = drama.paused.finish(drama.write).await;
    assert_eq!(write, Answer::Wrote { accepted: false, fence: drama.paused_fence });
    let told = drama.paused.ask(Command::AwaitLoss(lock.clone())).await;
    assert_eq!(told, state, "two reasons for one loss");
    let Answer::Lost(reason) = told else { panic!("{told:?} is no loss") };
    assert!(matches!(reason, Loss::Expired | Loss::Unreachable), "{reason:?}");
    assert_eq!(drama.paused.release(&lock).await, Some(reason), "the release is not truthful");

    assert_eq!(drama.other.ask(Command::State(lock.clone())).await, Answer::Held);
    assert_eq!(drama.other.release(&lock).await, None);
    assert_eq!(GuardedFile::open(scene.file("counter")).unwrap().read(None).unwrap(), Some(1));
    until_unused(&scene.store, "report").await;
}

/// C4: the same without a look at the fence: the late write is taken and an update is lost, and
/// the check of the history sees it. Proves that the case above can see what it looks for.
pub async fn without_fences_a_late_write_is_seen_to_lose_an_update(scene: &Scene) {
    let mut drama = pause_the_holder(scene, false).await;
    let state = drama.paused.finish(drama.state).await;
    assert!(matches!(state, Answer::Lost(_)), "{state:?}");
    let write = drama.paused.finish(drama.write).await;
    assert_eq!(write, Answer::Wrote { accepted: true, fence: drama.paused_fence });
    let counted = GuardedFile::open(scene.file("counter")).unwrap().read(None).unwrap();
    assert_eq!(counted, Some(1), "two writes were acknowledged, and no update was lost");

    let events = Recorder::read(scene.file("history.jsonl")).unwrap();
    let rules = Rules { empty_at_end: false, lost_slack: None, ..Rules::default() };
    let found: Vec<Check> = check(&events, &rules).iter().map(|found| found.check).collect();
    assert!(found.contains(&Check::C4), "the check does not see the lost update: {found:?}");
    assert!(!found.contains(&Check::C2), "beliefs overlap: {found:?}");
}

/// A pause shorter than the lease loses nothing: the holder renews and goes on.
pub async fn a_short_pause_loses_nothing(scene: &Scene) {
    let lock = name("report");
    let ttl = Duration::from_secs(20).max(scene.harness.ttl());
    let (mut holder, mut other) = (scene.taker("holder").await, scene.taker("other").await);
    let held = holder.acquire(Ask::new(lock.clone(), ttl)).await;
    holder.stop().await;
    let_time_pass(Duration::from_millis(300)).await;
    let tried = other.ask(Command::Try(Ask::new(lock.clone(), ttl))).await;
    assert_eq!(tried, Answer::Held, "a stopped process is not a dead one");
    holder.go_on();
    assert_eq!(holder.ask(Command::State(lock.clone())).await, Answer::Held);
    let extended = holder.ask(Command::Extend(lock.clone(), 30_000)).await;
    assert_eq!(extended, Answer::Done);
    assert_eq!(holder.release(&lock).await, None);
    let next = other.acquire(Ask::new(lock.clone(), ttl)).await;
    assert!(next.fence > held.fence, "{next:?} after {held:?}");
}

/// A waiter is stopped, is granted the lock, and goes on when the lock is somebody else's again.
/// Whatever it was told meanwhile, it does not enter; it gets the lock when it is its turn.
pub async fn a_waiter_stopped_over_its_grant_does_not_believe_it(scene: &Scene) {
    let lock = name("report");
    let ttl = scene.harness.ttl().max(Duration::from_millis(500));
    let mut holder = scene.taker("holder").await;
    let (mut waiter, mut other) = (scene.taker("waiter").await, scene.taker("other").await);
    holder.acquire(Ask::new(lock.clone(), LONG)).await;
    let waiting = waiter.start(Command::Acquire(Ask::new(lock.clone(), ttl)));
    until_waiters(&scene.store, "report", 1).await;
    waiter.stop().await;
    assert_eq!(holder.release(&lock).await, None);
    let granted = other.acquire(Ask::new(lock.clone(), LONG)).await;

    waiter.go_on();
    until_waiters(&scene.store, "report", 1).await;
    assert!(!waiter.has_answered(&waiting), "two believe to hold the lock");
    assert_eq!(other.release(&lock).await, None);
    let late = waiter.granted(waiting).await;
    assert!(late.fence > granted.fence, "{late:?} after {granted:?}");
}
