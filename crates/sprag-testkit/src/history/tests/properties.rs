//! Random correct histories pass; each of them with one lie in it does not.

use std::time::Duration;

use proptest::prelude::*;
use sprag_core::{LeaseId, Mode};

use super::model::{Kind, Step, WAKE_UP, history};
use super::samples::MS;
use crate::history::{Check, Event, Op, Outcome, Rules, check};

fn rules() -> Rules {
    Rules {
        healed_at_ns: Some(0),
        grant_within: Duration::from_secs(1_000),
        lost_slack: Some(Duration::from_nanos(WAKE_UP)),
        ..Rules::default()
    }
}

/// Puts one lie into a history, at a place that depends on `pick`; `None` if there is no place.
type Lie = fn(Vec<Event>, usize) -> Option<Vec<Event>>;

/// Every lie, and the check that is there to see it.
const LIES: [(&str, Check, Lie); 14] = [
    ("two fences are swapped", Check::C1, swap_fences),
    ("a fence is given out twice", Check::C1, duplicate_fence),
    ("a belief is extended", Check::C2, extend_belief),
    ("a fence goes back after a release", Check::C3, fence_after_release),
    ("the counter is too high", Check::C4, count_one_more),
    ("a rejected write was accepted", Check::C4, accept_rejected),
    ("a later waiter was first", Check::C6, overtake),
    ("a holder is left", Check::C7, leave_a_holder),
    ("a release is not recorded", Check::C8, drop_release),
    ("a loss is not told", Check::C8, drop_loss),
    ("a loss is told late", Check::C8, delay_loss),
    ("a release was too late", Check::C9, untrue_loss),
    ("a freed lease is still there", Check::C9, look_after_release),
    ("the store does not know a holder", Check::C9, forget_holder),
];

fn count_one_more(mut events: Vec<Event>, _: usize) -> Option<Vec<Event>> {
    let counted = events.iter_mut().find(|event| event.op == Op::Counted)?;
    counted.value = counted.value.map(|value| value + 1);
    Some(events)
}

fn leave_a_holder(mut events: Vec<Event>, _: usize) -> Option<Vec<Event>> {
    let last = events.iter_mut().find(|event| event.op == Op::Final)?;
    last.seen.as_mut()?.holders.push(LeaseId::from_u128(1));
    Some(events)
}

/// The places of all events for which `fits` holds; one of them is picked.
fn pick(events: &[Event], pick: usize, fits: impl Fn(&Event) -> bool) -> Option<usize> {
    let places: Vec<usize> = (0..events.len()).filter(|place| fits(&events[*place])).collect();
    places.get(pick.checked_rem(places.len())?).copied()
}

fn of(events: &[Event], lease: LeaseId, op: Op) -> Option<&Event> {
    events.iter().find(|event| event.attempt == lease && event.op == op)
}

/// Picks two events, the second of which fits the first.
fn pair(
    events: &[Event],
    number: usize,
    first: impl Fn(&Event) -> bool,
    second: impl Fn(&Event, &Event) -> bool,
) -> Option<(usize, usize)> {
    let other = |from: &Event| pick(events, number / 7, |event| second(from, event));
    let from = pick(events, number, |event| first(event) && other(event).is_some())?;
    Some((from, other(&events[from])?))
}

fn exclusive(event: &Event) -> bool {
    event.op == Op::Granted && event.mode == Mode::Exclusive
}

fn fenced(event: &Event) -> bool {
    event.op == Op::Granted && event.mode.takes_new_fence()
}

fn swap(events: &mut [Event], one: usize, other: usize) {
    let fence = events[one].fence;
    events[one].fence = events[other].fence;
    events[other].fence = fence;
}

fn swap_fences(mut events: Vec<Event>, number: usize) -> Option<Vec<Event>> {
    let second = |a: &Event, b: &Event| exclusive(b) && a.attempt != b.attempt;
    let (one, other) = pair(&events, number, exclusive, second)?;
    swap(&mut events, one, other);
    Some(events)
}

fn duplicate_fence(mut events: Vec<Event>, number: usize) -> Option<Vec<Event>> {
    let second = |a: &Event, b: &Event| fenced(b) && a.attempt != b.attempt;
    let (one, other) = pair(&events, number, fenced, second)?;
    events[other].fence = events[one].fence;
    Some(events)
}

fn extend_belief(mut events: Vec<Event>, number: usize) -> Option<Vec<Event>> {
    let second = |a: &Event, b: &Event| exclusive(b) && a.t_recv_ns < b.t_recv_ns;
    let (one, other) = pair(&events, number, exclusive, second)?;
    let (lease, until) = (events[one].attempt, events[other].t_recv_ns + MS);
    events[one].valid_until_ns = Some(until);
    let ends = [Op::Renewed, Op::Released, Op::Lost];
    events.retain(|event| event.attempt != lease || !ends.contains(&event.op));
    Some(events)
}

fn fence_after_release(mut events: Vec<Event>, number: usize) -> Option<Vec<Event>> {
    let released = |event: &Event| {
        let release = of(&events, event.attempt, Op::Released);
        release.filter(|release| release.outcome == Some(Outcome::Freed)).map(|r| r.t_recv_ns)
    };
    let asked = |event: &Event| of(&events, event.attempt, Op::Request).map(|r| r.t_send_ns);
    let second = |a: &Event, b: &Event| fenced(b) && released(a) < asked(b);
    let first = |event: &Event| fenced(event) && released(event).is_some();
    let (one, other) = pair(&events, number, first, second)?;
    swap(&mut events, one, other);
    Some(events)
}

fn accept_rejected(mut events: Vec<Event>, number: usize) -> Option<Vec<Event>> {
    let place = pick(&events, number, |event| event.outcome == Some(Outcome::Rejected))?;
    events[place].outcome = Some(Outcome::Accepted);
    Some(events)
}

fn overtake(mut events: Vec<Event>, number: usize) -> Option<Vec<Event>> {
    let request = |event: &Event| of(&events, event.attempt, Op::Request).unwrap();
    let known = |event: &Event| of(&events, event.attempt, Op::Queued).map(|q| q.t_recv_ns);
    let second = |a: &Event, b: &Event| {
        let behind = |b| known(a).is_some_and(|known| known < request(b).t_send_ns);
        fenced(b) && behind(b) && request(a).priority >= request(b).priority
    };
    let (one, other) = pair(&events, number, fenced, second)?;
    swap(&mut events, one, other);
    Some(events)
}

fn drop_release(mut events: Vec<Event>, number: usize) -> Option<Vec<Event>> {
    let fits =
        |event: &Event| event.op == Op::Released && of(&events, event.attempt, Op::Lost).is_none();
    let place = pick(&events, number, fits)?;
    events.remove(place);
    Some(events)
}

/// A loss after which nothing else was done.
fn only_lost(events: &[Event], number: usize) -> Option<usize> {
    let alone = |event: &Event| of(events, event.attempt, Op::Released).is_none();
    pick(events, number, |event| event.op == Op::Lost && alone(event))
}

fn drop_loss(mut events: Vec<Event>, number: usize) -> Option<Vec<Event>> {
    let place = only_lost(&events, number)?;
    events.remove(place);
    Some(events)
}

fn delay_loss(mut events: Vec<Event>, number: usize) -> Option<Vec<Event>> {
    let place = only_lost(&events, number)?;
    events[place].t_recv_ns += WAKE_UP + 1;
    Some(events)
}

/// A lease that had time left, and that nobody took, is told to be lost.
fn untrue_loss(mut events: Vec<Event>, number: usize) -> Option<Vec<Event>> {
    let fits = |release: &Event| {
        let mut own = events.iter().filter(|event| event.attempt == release.attempt);
        let valid = own.any(|event| event.valid_until_ns.is_some_and(|u| u > release.t_recv_ns));
        let asked = |event: &Event| of(&events, event.attempt, Op::Request).map(|r| r.t_send_ns);
        let mut grants = events.iter().filter(|event| exclusive(event));
        let fence = of(&events, release.attempt, Op::Granted).and_then(|grant| grant.fence);
        let taken = grants.any(|e| e.fence > fence && asked(e) <= Some(release.t_recv_ns));
        let told = of(&events, release.attempt, Op::Lost).is_some();
        release.outcome == Some(Outcome::Freed) && valid && !taken && !told
    };
    let place = pick(&events, number, fits)?;
    events[place].outcome = Some(Outcome::AlreadyLost);
    Some(events)
}

fn look_after_release(mut events: Vec<Event>, number: usize) -> Option<Vec<Event>> {
    let place = pick(&events, number, |event| event.outcome == Some(Outcome::Freed))?;
    let release = &events[place];
    let (lease, at) = (release.attempt, release.t_recv_ns);
    let look =
        Event::new("watcher", LeaseId::from_u128(0), &release.lock, release.mode, Op::Inspected);
    events.push(look.seen(vec![lease], Vec::new()).at(at, at + MS));
    Some(events)
}

fn forget_holder(mut events: Vec<Event>, number: usize) -> Option<Vec<Event>> {
    let inside = |look: &Event, grant: &Event| {
        let end = of(&events, grant.attempt, Op::Released).map(|release| release.t_send_ns);
        let lost = of(&events, grant.attempt, Op::Lost).map(|lost| lost.t_recv_ns - WAKE_UP);
        let end = [end, lost].into_iter().flatten().min();
        let held = look.seen.as_ref().is_some_and(|seen| seen.holders.contains(&grant.attempt));
        held && grant.t_recv_ns <= look.t_send_ns && end > Some(look.t_recv_ns)
    };
    let second = |look: &Event, grant: &Event| grant.op == Op::Granted && inside(look, grant);
    let (look, grant) = pair(&events, number, |event| event.op == Op::Inspected, second)?;
    let lease = events[grant].attempt;
    events[look].seen.as_mut()?.holders.retain(|holder| *holder != lease);
    Some(events)
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Mutex), Just(Kind::Readers), Just(Kind::Semaphore)]
}

fn any_script() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(any::<Step>(), 0..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_correct_history_has_no_violation(kind in any_kind(), script in any_script()) {
        let events = history(kind, &script);
        let found = check(&events, &rules());
        prop_assert!(found.is_empty(), "{}", found[0]);
    }

    #[test]
    fn a_history_with_a_lie_in_it_is_caught(
        kind in any_kind(),
        script in any_script(),
        number in any::<u16>(),
    ) {
        let truth = history(kind, &script);
        for (name, expected, lie) in LIES {
            if let Some(events) = lie(truth.clone(), usize::from(number)) {
                let found = check(&events, &rules());
                let caught = found.iter().any(|found| found.check == expected);
                prop_assert!(caught, "{} was not caught by {:?}", name, expected);
            }
        }
    }
}

/// Otherwise the property above could pass without ever having lied.
#[test]
fn every_lie_finds_its_place() {
    let mut told = [0; LIES.len()];
    for seed in 0..60_u32 {
        let mut state = seed;
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        let script: Vec<Step> =
            (0..150).map(|_| (byte(), byte(), byte(), byte(), byte())).collect();
        let kind = [Kind::Mutex, Kind::Readers, Kind::Semaphore][seed as usize % 3];
        let truth = history(kind, &script);
        for (count, (_, _, lie)) in told.iter_mut().zip(LIES) {
            *count += i32::from(lie(truth.clone(), 3).is_some());
        }
    }
    for (count, (name, ..)) in told.iter().zip(LIES) {
        assert!(*count >= 5, "{name}: {count} of 60");
    }
}
