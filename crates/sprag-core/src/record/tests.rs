//! The machine's rules, one test each.

mod promise;

use proptest::prelude::*;

use super::*;

const TTL: u64 = 1000;

/// The world at `now_ms`, in which the sessions in `dead` are gone.
fn with<T>(now_ms: u64, dead: &[u128], run: impl FnOnce(&Context<'_>) -> T) -> T {
    let is_dead = |session: SessionId| dead.contains(&session.as_u128());
    run(&Context {
        now_ms,
        expiry: Expiry::Clock,
        fence_floor: 0,
        max_waiters: 4,
        is_dead: &is_dead,
        is_silent: &|_| false,
    })
}

fn request(lease: u128, mode: Mode) -> Acquire {
    Acquire {
        lease: LeaseId::from_u128(lease),
        session: Some(SessionId::from_u128(lease)),
        party: PartyId::from_u128(lease),
        mode,
        ttl_ms: TTL,
        queue: true,
        priority: 0,
        holder: Holder::new(format!("w{lease}"), "n"),
        fixed: false,
        steal: Steal::No,
        resize: false,
        not_after_ms: None,
    }
}

fn run(record: Record, command: Command, now_ms: u64) -> Applied {
    run_dead(record, command, now_ms, &[])
}

fn run_dead(record: Record, command: Command, now_ms: u64, dead: &[u128]) -> Applied {
    let applied = with(now_ms, dead, |context| apply(record, &command, context));
    applied.record.check().unwrap();
    applied
}

pub(super) fn acquire(record: Record, lease: u128, now_ms: u64) -> Applied {
    take(record, request(lease, Mode::Exclusive), now_ms)
}

fn take(record: Record, acquire: Acquire, now_ms: u64) -> Applied {
    run(record, Command::Acquire(Box::new(acquire)), now_ms)
}

fn shared(record: Record, lease: u128, now_ms: u64) -> Applied {
    take(record, request(lease, Mode::Shared), now_ms)
}

fn permits(record: Record, lease: u128, count: u32, of: u32) -> Applied {
    take(record, request(lease, Mode::Permits { count, of }), 0)
}

fn lease(number: u128) -> LeaseId {
    LeaseId::from_u128(number)
}

fn release(record: Record, number: u128, now_ms: u64) -> Applied {
    run(record, Command::Release { lease: lease(number) }, now_ms)
}

fn renew(record: Record, number: u128, now_ms: u64) -> Applied {
    run(record, Command::Renew { lease: lease(number), ttl_ms: TTL, rebind: None }, now_ms)
}

fn convert(record: Record, number: u128, to: Mode, queue: bool) -> Applied {
    let held = record.holders.iter().find(|hold| hold.lease == lease(number));
    let fence = held.map_or(Fence::ZERO, |hold| hold.fence);
    convert_believing(record, number, fence, to, queue)
}

#[test]
fn a_conversion_from_another_fence_changes_nothing() {
    let record = take(Record::default(), request(1, Mode::Upgradable), 0).record;
    let first = record.fence;
    let record = convert(record, 1, Mode::Exclusive, true).record;
    let second = record.fence;
    assert!(second > first);
    let record = convert(record, 1, Mode::Shared, false).record;
    // Both come once more; the first from before the fence that is held now.
    let again = convert_believing(record.clone(), 1, first, Mode::Exclusive, true);
    assert!(!again.changed, "{again:?}");
    let Outcome::Granted(grant) = again.outcome else { panic!("{:?}", again.outcome) };
    assert_eq!((grant.mode, grant.fence), (Mode::Shared, second), "it is told what is held");
    let same = convert_believing(record, 1, second, Mode::Shared, false);
    assert!(!same.changed && matches!(same.outcome, Outcome::Granted(_)));
}

fn convert_believing(record: Record, number: u128, fence: Fence, to: Mode, queue: bool) -> Applied {
    run(record, Command::Convert { lease: lease(number), fence, to, queue }, 0)
}

fn holders(record: &Record) -> Vec<u128> {
    record.holders.iter().map(|hold| hold.lease.as_u128()).collect()
}

fn waiters(record: &Record) -> Vec<u128> {
    record.waiters.iter().map(|wait| wait.lease.as_u128()).collect()
}

fn is_granted(applied: &Applied) -> bool {
    matches!(applied.outcome, Outcome::Granted(_))
}

/// Two readers, a writer that waits, and a lost lease.
pub(super) fn busy_record() -> Record {
    let record = acquire(Record::default(), 9, 0).record;
    let record = shared(record, 1, TTL).record;
    let record = shared(record, 2, TTL).record;
    acquire(record, 3, TTL).record
}

#[test]
fn a_free_lock_is_granted_with_a_new_fence() {
    let applied = acquire(Record::default(), 1, 0);
    let grant = Grant { fence: Fence::new(1).unwrap(), mode: Mode::Exclusive, took_over: false };
    assert_eq!(applied.outcome, Outcome::Granted(grant));
    assert_eq!(applied.record.version, 1);
}

#[test]
fn a_repeated_acquire_returns_the_same_grant_and_moves_nothing() {
    let first = acquire(Record::default(), 1, 0);
    let second = acquire(first.record.clone(), 1, 500);
    assert_eq!(second.outcome, first.outcome);
    assert!(!second.changed);
    assert_eq!(second.record, first.record);
}

#[test]
fn a_failed_try_leaves_no_trace() {
    let held = acquire(Record::default(), 1, 0).record;
    let attempt = Acquire { queue: false, ..request(2, Mode::Exclusive) };
    let tried = take(held.clone(), attempt, 1);
    assert_eq!(tried.outcome, Outcome::Held);
    assert!(!tried.changed);
    assert_eq!(tried.record, held);
}

#[test]
fn release_hands_over_to_the_first_waiter_with_a_larger_fence() {
    let mut record = acquire(Record::default(), 1, 0).record;
    for waiter in 2..=4 {
        record = acquire(record, waiter, 1).record;
    }
    let applied = release(record, 1, 2);
    assert_eq!(holders(&applied.record), [2]);
    assert_eq!(waiters(&applied.record), [3, 4]);
    assert_eq!(applied.record.fence.get(), 2);
    let woken = applied.events.iter().filter(|event| event.kind == EventKind::Granted);
    assert_eq!(woken.map(|event| event.lease).collect::<Vec<_>>(), [lease(2)]);
}

#[test]
fn release_by_a_stranger_or_twice_changes_nothing() {
    let record = acquire(Record::default(), 1, 0).record;
    let stranger = release(record.clone(), 7, 0);
    assert_eq!((stranger.outcome, stranger.changed), (Outcome::Gone(Loss::StateLost), false));
    let released = release(record, 1, 0);
    assert_eq!(released.outcome, Outcome::Done);
    let again = release(released.record, 1, 0);
    assert_eq!((again.outcome, again.changed), (Outcome::Gone(Loss::Released), false));
}

#[test]
fn a_late_acquire_of_a_released_lease_is_not_granted_again() {
    let record = release(acquire(Record::default(), 1, 0).record, 1, 1).record;
    assert_eq!(acquire(record, 1, 2).outcome, Outcome::Gone(Loss::Released));
}

#[test]
fn an_expired_lease_is_free_for_anyone_and_cannot_be_renewed() {
    let record = acquire(Record::default(), 1, 0).record;
    assert_eq!(renew(record.clone(), 1, TTL).outcome, Outcome::Gone(Loss::Expired));
    let next = acquire(record, 2, TTL);
    assert!(is_granted(&next));
    assert_eq!(renew(next.record.clone(), 1, TTL).outcome, Outcome::Gone(Loss::Expired));
    assert_eq!(release(next.record.clone(), 1, TTL).outcome, Outcome::Gone(Loss::Expired));
    assert_eq!(holders(&next.record), [2]);
}

#[test]
fn a_lease_is_good_until_the_last_millisecond() {
    let record = acquire(Record::default(), 1, 0).record;
    assert!(matches!(acquire(record.clone(), 2, TTL - 1).outcome, Outcome::Queued { ahead: 0 }));
    assert!(is_granted(&renew(record, 1, TTL - 1)));
}

/// A renewal for less may have been overtaken by one for more, which was answered.
#[test]
fn a_renewal_never_moves_the_end_back() {
    let to = |ttl_ms| Command::Renew { lease: lease(1), ttl_ms, rebind: None };
    let end = |record: &Record| (record.holders[0].renewed_ms, record.holders[0].expires_ms());
    let record = acquire(Record::default(), 1, 1_000).record;
    let record = run(record, to(30 * TTL), 1_500).record;
    let late = run(record, to(5), 3_000);
    assert!(is_granted(&late) && late.changed, "it is a sign of life all the same");
    assert_eq!(end(&late.record), (3_000, 1_500 + 30 * TTL));
    // Nor does a clock that has gone back move it further than a whole length from now.
    let back = run(late.record, to(5), 500).record;
    assert_eq!(end(&back), (500, 500 + 28_500));
    assert_eq!(end(&run(back, to(40 * TTL), 600).record), (600, 600 + 40 * TTL));
}

#[test]
fn a_dead_session_loses_what_it_held_and_waited_for() {
    let mut record = acquire(Record::default(), 1, 0).record;
    for waiter in 2..=3 {
        record = acquire(record, waiter, 0).record;
    }
    let applied = run_dead(record, Command::Reap, 1, &[1, 2]);
    assert_eq!(holders(&applied.record), [3]);
    assert!(applied.record.waiters.is_empty());
    assert_eq!(applied.record.loss_of(lease(1)), Loss::SessionDied);
    assert_eq!(applied.record.loss_of(lease(2)), Loss::SessionDied);
}

#[test]
fn a_detached_lease_lives_by_its_ttl_alone() {
    let attempt = Acquire { session: None, ..request(1, Mode::Exclusive) };
    let record = take(Record::default(), attempt, 0).record;
    let all_dead = run_dead(record, Command::Reap, TTL - 1, &[1]);
    assert_eq!(holders(&all_dead.record), [1]);
    assert!(run(all_dead.record, Command::Reap, TTL).record.is_free());
}

#[test]
fn a_renewal_can_detach_a_lease_from_its_session_and_attach_it_to_another() {
    let rebind = |to| Command::Renew { lease: lease(1), ttl_ms: TTL, rebind: Some(to) };
    let party = PartyId::from_u128(9);
    let attempt = Acquire { party, ..request(1, Mode::Exclusive) };
    let record = take(Record::default(), attempt, 0).record;
    let detached = run(record, rebind(None), 0).record;
    assert_ne!(detached.holders[0].party, party, "who gave it away may wait for it");
    assert_eq!(holders(&run_dead(detached.clone(), Command::Reap, 0, &[1]).record), [1]);
    let attached = run(detached, rebind(Some(SessionId::from_u128(5))), 0).record;
    assert!(run_dead(attached, Command::Reap, 0, &[5]).record.is_free());
}

#[test]
fn a_lease_is_attached_to_one_session_only() {
    let rebind = |to: Option<u128>, ttl_ms| {
        let rebind = Some(to.map(SessionId::from_u128));
        Command::Renew { lease: lease(1), ttl_ms, rebind }
    };
    let record = acquire(Record::default(), 1, 0).record;
    let record = run(record, rebind(None, TTL), 0).record;
    let record = run(record, rebind(Some(5), TTL), 0).record;
    let second = run(record.clone(), rebind(Some(6), 2 * TTL), 1);
    assert_eq!(second.outcome, Outcome::Gone(Loss::Adopted));
    assert_eq!((second.record, second.changed), (record.clone(), false), "not even renewed");
    let again = run(record, rebind(Some(5), TTL), 1);
    assert!(matches!(again.outcome, Outcome::Granted(_)), "its answer may have been lost");
    let passed_on = run(again.record, rebind(None, TTL), 1).record;
    let third = run(passed_on, rebind(Some(6), TTL), 1);
    assert_eq!(third.record.holders[0].session, Some(SessionId::from_u128(6)));
}

#[test]
fn a_silent_waiter_is_dropped_and_a_renewed_one_is_not() {
    let record = acquire(Record::default(), 1, 0).record;
    let record = acquire(record, 2, 0).record;
    let record = acquire(record, 3, 0).record;
    let record = renew(renew(record, 1, 900).record, 3, 900).record;
    let applied = release(record, 1, TTL);
    assert_eq!(holders(&applied.record), [3]);
    assert_eq!(applied.record.loss_of(lease(2)), Loss::Expired);
}

#[test]
fn readers_share_and_a_writer_waits_for_the_last_of_them() {
    let record = busy_record();
    assert_eq!((holders(&record), waiters(&record)), (vec![1, 2], vec![3]));
    let record = release(record, 1, TTL).record;
    assert_eq!(waiters(&record), [3]);
    let record = release(record, 2, TTL).record;
    assert_eq!(holders(&record), [3]);
}

#[test]
fn a_reader_does_not_overtake_a_waiting_writer_and_readers_come_in_together() {
    let mut record = busy_record();
    record = shared(record, 4, TTL).record;
    record = shared(record, 5, TTL).record;
    assert_eq!(waiters(&record), [3, 4, 5]);
    record = release(record, 1, TTL).record;
    record = release(record, 2, TTL).record;
    assert_eq!(holders(&record), [3]);
    record = release(record, 3, TTL).record;
    assert_eq!(holders(&record), [4, 5]);
}

#[test]
fn a_dead_reader_does_not_free_the_others() {
    let record = busy_record();
    let applied = run_dead(record, Command::Reap, TTL, &[1]);
    assert_eq!((holders(&applied.record), waiters(&applied.record)), (vec![2], vec![3]));
}

#[test]
fn readers_carry_the_current_fence_and_writers_a_new_one() {
    let record = shared(Record::default(), 1, 0).record;
    let record = release(record, 1, 0).record;
    let record = shared(record, 2, 0).record;
    assert_eq!((record.holders[0].fence.get(), record.fence.get()), (1, 1));
    let record = release(record, 2, 0).record;
    assert_eq!(acquire(record, 3, 0).record.fence.get(), 2);
}

#[test]
fn an_upgrade_waits_for_readers_keeps_new_ones_out_and_takes_a_new_fence() {
    let record = take(Record::default(), request(1, Mode::Upgradable), 0).record;
    let record = shared(record, 2, 0).record;
    let pending = convert(record, 1, Mode::Exclusive, true);
    assert_eq!(pending.outcome, Outcome::Queued { ahead: 0 });
    let record = shared(pending.record, 3, 0).record;
    assert_eq!(waiters(&record), [3]);
    let applied = release(record, 2, 0);
    assert_eq!(applied.record.holders[0].mode, Mode::Exclusive);
    assert_eq!(applied.record.holders[0].fence.get(), 2);
    // Asked again, because the reply was lost: the same answer.
    let again = convert(applied.record, 1, Mode::Exclusive, true);
    assert!(is_granted(&again) && !again.changed);
}

#[test]
fn a_repeated_acquire_tells_of_an_upgrade_granted_in_the_same_step() {
    let record = take(Record::default(), request(1, Mode::Upgradable), 0).record;
    let record = shared(record, 2, 0).record;
    let record = convert(record, 1, Mode::Exclusive, true).record;
    // The reader dies, and the first to notice is the upgrader that asks again.
    let again = Command::Acquire(Box::new(request(1, Mode::Upgradable)));
    let applied = run_dead(record, again, 0, &[2]);
    let grant = Grant { fence: Fence::new(2).unwrap(), mode: Mode::Exclusive, took_over: false };
    assert_eq!(applied.outcome, Outcome::Granted(grant));
}

#[test]
fn of_two_upgraders_one_is_told_instead_of_waiting_for_ever() {
    let record = shared(shared(Record::default(), 1, 0).record, 2, 0).record;
    let first = convert(record, 1, Mode::Exclusive, true);
    assert_eq!((first.outcome, first.changed), (Outcome::Held, false));
    let record = take(Record::default(), request(1, Mode::Upgradable), 0).record;
    let second = take(record, request(2, Mode::Upgradable), 0);
    assert_eq!(second.outcome, Outcome::Queued { ahead: 0 });
}

#[test]
fn a_lone_reader_is_upgraded_at_once() {
    let record = shared(Record::default(), 1, 0).record;
    let applied = convert(record, 1, Mode::Exclusive, false);
    let grant = Grant { fence: Fence::new(2).unwrap(), mode: Mode::Exclusive, took_over: false };
    assert_eq!(applied.outcome, Outcome::Granted(grant));
}

#[test]
fn a_withdrawn_upgrade_keeps_the_reader_and_lets_others_in() {
    let record = take(Record::default(), request(1, Mode::Upgradable), 0).record;
    let record = shared(record, 2, 0).record;
    let record = convert(record, 1, Mode::Exclusive, true).record;
    let record = shared(record, 3, 0).record;
    let record = run(record, Command::Withdraw { lease: lease(1) }, 0).record;
    assert_eq!(holders(&record), [1, 2, 3]);
}

#[test]
fn a_downgrade_lets_waiting_readers_in_and_keeps_the_fence() {
    let record = acquire(Record::default(), 1, 0).record;
    let record = shared(record, 2, 0).record;
    let applied = convert(record, 1, Mode::Shared, false);
    assert_eq!(holders(&applied.record), [1, 2]);
    assert_eq!(applied.record.fence.get(), 1);
}

#[test]
fn permits_are_counted_and_a_big_request_at_the_front_is_not_overtaken() {
    let record = permits(Record::default(), 1, 2, 5).record;
    let record = permits(record, 2, 2, 5).record;
    let record = permits(record, 3, 3, 5).record;
    let record = permits(record, 4, 1, 5).record;
    assert_eq!((holders(&record), waiters(&record)), (vec![1, 2], vec![3, 4]));
    let record = release(record, 1, 0).record;
    assert_eq!(holders(&record), [2, 3]);
    assert_eq!(waiters(&record), [4]);
}

#[test]
fn a_semaphore_in_use_keeps_its_limit_unless_it_is_resized() {
    let record = permits(Record::default(), 1, 4, 5).record;
    let refused = permits(record.clone(), 2, 1, 2);
    assert_eq!(refused.outcome, Outcome::Refused(Refusal::LimitMismatch { stored: 5 }));
    assert!(!refused.changed);
    let waiting = permits(record, 3, 3, 5).record;
    let resize = Acquire { resize: true, ..request(2, Mode::Permits { count: 1, of: 2 }) };
    let resized = take(waiting, resize, 0);
    // Four of two are held: nobody is let in until they drain. Three of two can never be.
    assert_eq!(waiters(&resized.record), [2]);
    assert_eq!(resized.record.loss_of(lease(3)), Loss::LimitLowered);
    let drained = release(resized.record, 1, 0);
    assert_eq!(holders(&drained.record), [2]);
    let free = release(drained.record, 2, 0).record;
    assert!(is_granted(&permits(free, 4, 1, 7)));
}

#[test]
fn impossible_permits_are_refused() {
    for (count, of) in [(0, 5), (6, 5), (0, 0)] {
        let applied = permits(Record::default(), 1, count, of);
        assert_eq!(applied.outcome, Outcome::Refused(Refusal::BadPermits));
        assert!(!applied.changed);
    }
}

#[test]
fn a_full_queue_is_refused() {
    let mut record = acquire(Record::default(), 1, 0).record;
    for waiter in 2..=5 {
        record = acquire(record, waiter, 0).record;
    }
    let applied = acquire(record, 6, 0);
    assert_eq!(applied.outcome, Outcome::Refused(Refusal::QueueFull));
    assert!(!applied.changed);
}

#[test]
fn a_late_request_is_refused_before_anything_is_done() {
    let attempt = Acquire { not_after_ms: Some(10), ..request(1, Mode::Exclusive) };
    let applied = take(Record::default(), attempt.clone(), 11);
    assert_eq!(applied.outcome, Outcome::Refused(Refusal::Late));
    assert!(is_granted(&take(Record::default(), attempt, 10)));
}

#[test]
fn priority_counts_as_an_earlier_arrival_and_age_beats_it_in_the_end() {
    let record =
        take(Record::default(), Acquire { ttl_ms: 90_000, ..request(1, Mode::Exclusive) }, 0);
    let wait =
        |lease, priority| Acquire { ttl_ms: 90_000, priority, ..request(lease, Mode::Exclusive) };
    let record = take(record.record, wait(2, 0), 1).record;
    let record = take(record, wait(3, 1), 9_999).record;
    let record = take(record, wait(4, 1), 10_002).record;
    assert_eq!(waiters(&record), [3, 2, 4]);
}

#[test]
fn an_overdue_holder_is_stolen_and_a_renewed_one_is_not() {
    let record = acquire(Record::default(), 1, 0).record;
    let thief = |lease, after_ms| Acquire {
        steal: Steal::Overdue { after_ms },
        queue: false,
        ..request(lease, Mode::Exclusive)
    };
    assert_eq!(take(record.clone(), thief(2, 700), 699).outcome, Outcome::Held);
    let stolen = take(record.clone(), thief(2, 700), 700);
    assert!(is_granted(&stolen));
    let told = Loss::Stolen { by: "w2".into(), forced: false };
    assert_eq!(renew(stolen.record, 1, 701).outcome, Outcome::Gone(told));
    let renewed = renew(record.clone(), 1, 300).record;
    assert_eq!(take(renewed, thief(2, 700), 999).outcome, Outcome::Held);
    // Whatever the thief says: between two renewals nobody is overdue.
    assert_eq!(take(record.clone(), thief(2, 0), 665).outcome, Outcome::Held);
    assert!(is_granted(&take(record, thief(2, 0), 666)));
}

#[test]
fn a_holder_that_nobody_renews_is_not_overdue_before_its_end() {
    let fixed = Acquire { fixed: true, ..request(1, Mode::Exclusive) };
    let thief = Acquire {
        steal: Steal::Overdue { after_ms: 0 },
        queue: false,
        ..request(2, Mode::Exclusive)
    };
    let record = take(Record::default(), fixed, 0).record;
    assert_eq!(take(record.clone(), thief.clone(), TTL - 1).outcome, Outcome::Held);
    let next = take(record.clone(), thief.clone(), TTL);
    assert!(is_granted(&next) && next.record.loss_of(lease(1)) == Loss::Expired);
    // Given away it is not renewed either, and again once it is taken over.
    let rebind = |record, to| {
        let rebind = Some(to);
        run(record, Command::Renew { lease: lease(1), ttl_ms: TTL, rebind }, 0).record
    };
    let away = rebind(acquire(Record::default(), 1, 0).record, None);
    assert_eq!(take(away.clone(), thief.clone(), TTL - 1).outcome, Outcome::Held);
    let back = rebind(away, Some(SessionId::from_u128(1)));
    assert!(is_granted(&take(back, thief, TTL - 1)));
}

#[test]
fn a_grant_tells_whether_somebody_was_pushed_aside_for_it() {
    let took_over = |applied: &Applied| match applied.outcome {
        Outcome::Granted(grant) => grant.took_over,
        _ => panic!("not granted: {:?}", applied.outcome),
    };
    let steal = |lease, steal| Acquire { steal, ..request(lease, Mode::Exclusive) };
    let overdue = Steal::Overdue { after_ms: 700 };
    let record = acquire(Record::default(), 1, 0).record;
    let stolen = take(record.clone(), steal(2, overdue), 700);
    assert!(took_over(&stolen));
    // The reply may be lost: asked again, and renewed, it says the same.
    let again = take(stolen.record, steal(2, overdue), 701);
    assert!(took_over(&again) && took_over(&renew(again.record, 2, 702)));
    assert!(took_over(&take(record.clone(), steal(2, Steal::Force), 1)));
    // The holder left by itself: nobody was pushed aside.
    assert!(!took_over(&take(record.clone(), steal(2, overdue), TTL)));
    // Pushed aside, but for the one who was first in line.
    let record = acquire(record, 3, 0).record;
    let helped = take(record, steal(2, overdue), 700);
    assert_eq!(helped.outcome, Outcome::Queued { ahead: 0 });
    assert!(!took_over(&acquire(helped.record.clone(), 3, 700)));
    let released = run(helped.record, Command::Release { lease: lease(3) }, 701).record;
    assert!(!took_over(&renew(released, 2, 702)));
}

#[test]
fn a_steal_by_observation_needs_the_exact_version_seen() {
    let record = acquire(Record::default(), 1, 0).record;
    let seen = record.version;
    let thief = Acquire {
        steal: Steal::Seen { version: seen },
        queue: false,
        ..request(2, Mode::Exclusive)
    };
    let renewed = renew(record.clone(), 1, 10).record;
    assert_eq!(take(renewed, thief.clone(), 20).outcome, Outcome::Held);
    assert!(is_granted(&take(record, thief, 20)));
}

#[test]
fn without_a_shared_clock_time_frees_nothing() {
    let record = acquire(Record::default(), 1, 0).record;
    let context = Context {
        now_ms: u64::MAX,
        expiry: Expiry::Observed,
        fence_floor: 0,
        max_waiters: 4,
        is_dead: &|_| false,
        is_silent: &|_| false,
    };
    let other = Command::Acquire(Box::new(request(2, Mode::Exclusive)));
    assert_eq!(apply(record, &other, &context).outcome, Outcome::Queued { ahead: 0 });
}

#[test]
fn without_a_shared_clock_who_is_silent_is_over() {
    let record = acquire(Record::default(), 1, 0).record;
    let record = acquire(record, 2, 1).record;
    let record = acquire(record, 3, 2).record;
    let context = Context {
        now_ms: 3,
        expiry: Expiry::Observed,
        fence_floor: 0,
        max_waiters: 4,
        is_dead: &|_| false,
        is_silent: &|lease| lease.as_u128() < 3,
    };
    let applied = apply(record, &Command::Reap, &context);
    assert_eq!(applied.record.holders[0].lease, LeaseId::from_u128(3));
    assert_eq!(applied.record.loss_of(LeaseId::from_u128(1)), Loss::Expired);
    assert_eq!(applied.record.loss_of(LeaseId::from_u128(2)), Loss::Expired);
}

#[test]
fn force_takes_a_live_lock_past_the_queue_and_the_fence_grows() {
    let record = acquire(Record::default(), 1, 0).record;
    let first = Acquire { priority: 8, ..request(2, Mode::Exclusive) };
    let record = take(record, first, 0).record;
    let forced = take(record, Acquire { steal: Steal::Force, ..request(3, Mode::Exclusive) }, 0);
    assert_eq!((holders(&forced.record), waiters(&forced.record)), (vec![3], vec![2]));
    assert_eq!(forced.record.fence.get(), 2);
    assert_eq!(forced.record.loss_of(lease(1)), Loss::Stolen { by: "w3".into(), forced: true });
}

#[test]
fn force_takes_only_as_many_permits_as_it_needs() {
    let record = permits(permits(Record::default(), 1, 1, 2).record, 2, 1, 2).record;
    let forced = Acquire { steal: Steal::Force, ..request(3, Mode::Permits { count: 1, of: 2 }) };
    assert_eq!(holders(&take(record, forced, 0).record), [2, 3]);
}

#[test]
fn eviction_compares_the_fence_and_tells_the_holder() {
    let record = acquire(Record::default(), 1, 0).record;
    let evict = |fence| Command::Evict {
        fence: Fence::new(fence).unwrap(),
        by: "ops".into(),
        reason: "stuck".into(),
    };
    let missed = run(record.clone(), evict(2), 0);
    assert_eq!((missed.outcome, missed.changed), (Outcome::Evicted(vec![]), false));
    let broken = run(record, evict(1), 0);
    assert_eq!(broken.outcome, Outcome::Evicted(vec![Holder::new("w1", "n")]));
    let loss =
        Loss::Broken { by: "ops".into(), reason: "stuck".into(), fence: Fence::new(1).unwrap() };
    assert_eq!(renew(broken.record, 1, 0).outcome, Outcome::Gone(loss));
}

#[test]
fn fences_grow_over_release_and_respect_the_floor() {
    let mut record = Record::default();
    let mut last = Fence::ZERO;
    for (number, floor) in (1..20).zip([0, 0, 50, 10, 0].into_iter().cycle()) {
        let context = Context {
            now_ms: 0,
            expiry: Expiry::Clock,
            fence_floor: floor,
            max_waiters: 4,
            is_dead: &|_| false,
            is_silent: &|_| false,
        };
        let command = Command::Acquire(Box::new(request(number, Mode::Exclusive)));
        record = apply(record, &command, &context).record;
        assert!(record.fence > last && record.fence.get() >= floor);
        last = record.fence;
        record = release(record, number, 0).record;
    }
}

#[test]
fn the_last_fence_is_refused_instead_of_wrapping() {
    let record = Record { fence: Fence::MAX, ..Record::default() };
    let applied = acquire(record, 1, 0);
    assert_eq!(applied.outcome, Outcome::Refused(Refusal::FenceExhausted));
}

#[test]
fn a_robbed_holder_is_remembered_longer_than_those_who_released() {
    let record = acquire(Record::default(), 1, 0).record;
    let mut record =
        take(record, Acquire { steal: Steal::Force, ..request(2, Mode::Exclusive) }, 0).record;
    for number in 3..40 {
        record = release(record, number - 1, 0).record;
        record = acquire(record, number, 0).record;
    }
    assert!(matches!(record.loss_of(lease(1)), Loss::Stolen { .. }));
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        Just(Mode::Exclusive),
        Just(Mode::Shared),
        Just(Mode::Upgradable),
        (1..3_u32, 2..4_u32).prop_map(|(count, of)| Mode::Permits { count, of }),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    let lease_number = 1..8_u128;
    let steal = prop_oneof![
        8 => Just(Steal::No),
        1 => (0..2000_u64).prop_map(|after_ms| Steal::Overdue { after_ms }),
        1 => (0..30_u64).prop_map(|version| Steal::Seen { version }),
        1 => Just(Steal::Force),
    ];
    let acquire =
        (lease_number.clone(), any_mode(), any::<bool>(), -8..=8_i8, steal, any::<bool>());
    prop_oneof![
        4 => acquire.prop_map(|(number, mode, queue, priority, steal, resize)| {
            Command::Acquire(Box::new(Acquire { queue, priority, steal, resize, ..request(number, mode) }))
        }),
        2 => lease_number.clone().prop_map(|n| Command::Renew { lease: lease(n), ttl_ms: TTL, rebind: None }),
        2 => lease_number.clone().prop_map(|n| Command::Release { lease: lease(n) }),
        1 => lease_number.clone().prop_map(|n| Command::Withdraw { lease: lease(n) }),
        1 => (lease_number, 0..20_u64, any_mode(), any::<bool>()).prop_map(|(n, fence, to, queue)| {
            Command::Convert { lease: lease(n), fence: Fence::new(fence).unwrap(), to, queue }
        }),
        1 => (0..20_u64).prop_map(|fence| Command::Evict {
            fence: Fence::new(fence).unwrap(), by: "ops".into(), reason: "why".into(),
        }),
        1 => Just(Command::Reap),
    ]
}

proptest! {
    /// Whatever happens: the record stays possible, survives its written form, its version grows
    /// exactly with its changes, and no fence is ever given out twice or backwards.
    #[test]
    fn any_sequence_keeps_the_record_sound(
        steps in prop::collection::vec((any_command(), 0..400_u64, 0..6_u128), 1..60),
    ) {
        let mut record = Record::default();
        let mut now = 0;
        let mut newest = Fence::ZERO;
        let mut dead = Vec::new();
        for (command, pause, dying) in steps {
            now += pause;
            if dying == 1 { dead.push(dying); }
            let before = record.clone();
            let applied = with(now, &dead, |context| apply(record, &command, context));
            applied.record.check().unwrap();
            prop_assert_eq!(Record::from_json(&applied.record.to_json()).unwrap(), applied.record.clone());
            prop_assert_eq!(applied.record.version, before.version + u64::from(applied.changed));
            if !applied.changed { prop_assert_eq!(&applied.record, &before); }
            prop_assert!(applied.record.fence >= before.fence);
            for event in applied.events.iter().filter(|event| event.kind == EventKind::Granted) {
                let hold = applied.record.holders.iter().find(|hold| hold.lease == event.lease);
                if hold.is_some_and(|hold| hold.mode.takes_new_fence()) {
                    prop_assert!(event.fence > newest);
                    newest = event.fence;
                }
            }
            record = applied.record;
        }
    }
}
