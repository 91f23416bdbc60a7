//! C1 to C7: a seeded violation and a clean history for each rule.

use std::time::Duration;

use sprag_core::{LeaseId, Mode};

use super::samples::{MS, checks, event, fence, granted, look, open_end, released, with_mode};
use crate::history::{Check, Event, Op, Outcome, Rules, check};

const NONE: [Check; 0] = [];

fn permits(count: u32) -> Mode {
    Mode::Permits { count, of: 3 }
}

/// Two holders, one after the other.
fn clean() -> Vec<Event> {
    vec![
        event(Op::Request, 1, 1),
        granted(1, 1, 2, 100),
        event(Op::Request, 2, 5),
        event(Op::Queued, 2, 6),
        released(1, 20),
        granted(2, 2, 22, 120),
        look(30, &[2]),
        released(2, 40),
        event(Op::Final, 99, 50).seen(Vec::new(), Vec::new()),
    ]
}

#[test]
fn a_clean_history_has_no_violation() {
    assert_eq!(check(&clean(), &Rules::default()), []);
    assert_eq!(check(&[], &Rules::default()), []);
}

#[test]
fn the_order_of_the_lines_means_nothing() {
    let mut events = clean();
    events.reverse();
    assert_eq!(check(&events, &Rules::default()), []);
}

#[test]
fn a_violation_tells_its_timeline() {
    let events = [granted(1, 4, 101, 150), granted(2, 5, 130, 180), released(1, 141)];
    let found = check(&events, &open_end());
    let expected = "\
C2 \"x\": p1 and p2 believe to hold the lock at once, for 10.000 ms
       0.000 ..     1.000 ms  p1 granted exclusive, fence 4, lease 00000001, until 50.000 ms
      29.000 ..    30.000 ms  p2 granted exclusive, fence 5, lease 00000002, until 80.000 ms
      40.000 ..    41.000 ms  p1 released exclusive, lease 00000001, freed";
    assert_eq!(found[0].to_string(), expected);
}

#[test]
fn c1_sees_a_fence_given_out_twice() {
    let events = [granted(1, 7, 10, 50), released(1, 20), granted(2, 7, 10, 50), released(2, 20)];
    assert!(checks(&events, &open_end()).contains(&Check::C1));
    let with = |mode| events.clone().map(|event| with_mode(event, mode));
    assert_eq!(checks(&with(permits(1)), &open_end()), [Check::C1]);
    assert_eq!(checks(&with(Mode::Shared), &open_end()), NONE, "readers carry the current fence");
}

#[test]
fn c1_sees_a_lease_granted_twice() {
    let repeated = [granted(1, 7, 10, 50), granted(1, 7, 15, 50), released(1, 20)];
    assert_eq!(checks(&repeated, &open_end()), NONE, "a repeated answer");
    let twice = [granted(1, 7, 10, 50), granted(1, 8, 15, 50), released(1, 20)];
    assert_eq!(checks(&twice, &open_end()), [Check::C1]);
}

#[test]
fn c1_sees_fences_that_go_back() {
    let mut events = clean();
    events[5].fence = Some(fence(1));
    events[1].fence = Some(fence(2));
    assert!(checks(&events, &Rules::default()).contains(&Check::C1), "both asked early");
    // Permits are held side by side, but one grant was known before the other was asked for.
    let side = [granted(1, 9, 10, 90), granted(2, 8, 30, 90), released(1, 40), released(2, 41)];
    let side = side.map(|event| with_mode(event, permits(1)));
    assert_eq!(checks(&side, &open_end()), [Check::C1]);
    // Asked for at the same time, they may come in any order.
    let race = [granted(1, 9, 10, 90), granted(2, 8, 10, 90), released(1, 40), released(2, 41)];
    let race = race.map(|event| with_mode(event, permits(1)));
    assert_eq!(checks(&race, &open_end()), NONE);
}

#[test]
fn c1_sees_a_reader_with_an_old_fence() {
    let reader = |number| {
        let reader = with_mode(granted(2, number, 30, 90), Mode::Shared);
        [granted(1, 5, 10, 90), released(1, 20), reader, released(2, 40)]
    };
    assert_eq!(checks(&reader(5), &open_end()), NONE);
    assert!(checks(&reader(4), &open_end()).contains(&Check::C1));
}

#[test]
fn c1_leaves_a_grant_that_came_too_late_alone() {
    // The answer to p1 was delayed past its deadline; p2 was granted meanwhile.
    let late = granted(1, 1, 80, 50).at(MS, 80 * MS);
    let events = [late, event(Op::Lost, 1, 80), granted(2, 2, 60, 100), released(2, 90)];
    assert_eq!(checks(&events, &open_end()), NONE);
}

#[test]
fn c2_sees_two_writers() {
    let events = |second| {
        [granted(1, 1, 10, 50), granted(2, 2, second, 90), event(Op::Lost, 1, 50), released(2, 80)]
    };
    assert_eq!(checks(&events(49), &open_end()), [Check::C2]);
    assert_eq!(checks(&events(50), &open_end()), NONE, "the belief ends just before");
    let forced = Rules { exclusion: false, ..open_end() };
    assert_eq!(checks(&events(49), &forced), NONE);
}

#[test]
fn c2_counts_a_renewal() {
    let renewed = event(Op::Renewed, 1, 30).valid_until(80 * MS);
    let events = [granted(1, 1, 10, 50), renewed, granted(2, 2, 60, 90), released(2, 70)];
    assert_eq!(checks(&events, &open_end()), [Check::C2]);
}

#[test]
fn c2_ends_a_belief_when_the_release_is_sent_or_the_loss_told() {
    let release = released(1, 40).at(20 * MS, 40 * MS);
    let released = [granted(1, 1, 10, 90), release, granted(2, 2, 25, 90), released(2, 70)];
    assert_eq!(checks(&released, &open_end()), NONE);
    let lost = event(Op::Lost, 1, 24);
    let taken = [granted(1, 1, 10, 90), lost, granted(2, 2, 25, 90), released[3].clone()];
    assert_eq!(checks(&taken, &open_end()), NONE);
    let mut killed = open_end();
    killed.killed.insert("p1".into(), 24 * MS);
    assert_eq!(checks(&[&taken[..1], &taken[2..]].concat(), &killed), NONE);
}

#[test]
fn c2_lets_readers_overlap_readers_only() {
    let pair = |first, second| {
        let events = [
            with_mode(granted(1, 5, 10, 90), first),
            with_mode(granted(2, 6, 10, 90), second),
            released(1, 30),
            released(2, 40),
        ];
        checks(&events, &open_end()).contains(&Check::C2)
    };
    use Mode::{Exclusive, Shared, Upgradable};
    for (first, second) in [(Shared, Shared), (Shared, Upgradable), (Upgradable, Shared)] {
        assert!(!pair(first, second), "{first} and {second}");
    }
    for other in [Exclusive, Shared, Upgradable, permits(1)] {
        assert!(pair(Exclusive, other) && pair(other, Exclusive), "{other}");
    }
    assert!(pair(Upgradable, Upgradable));
}

#[test]
fn c2_adds_permits_up() {
    let three = |counts: [u32; 3]| {
        let mut events = Vec::new();
        for (lease, count) in (1_u32..).zip(counts) {
            let (lease, number) = (u128::from(lease), u64::from(lease));
            events.push(with_mode(granted(lease, number, 10, 90), permits(count)));
            events.push(with_mode(released(lease, 50), permits(count)));
        }
        checks(&events, &open_end())
    };
    assert_eq!(three([1, 1, 1]), NONE);
    assert_eq!(three([1, 1, 2]), [Check::C2]);
    assert_eq!(three([3, 1, 1]), [Check::C2]);
}

#[test]
fn c2_follows_upgrades_and_downgrades() {
    let reader = |until| {
        let release = with_mode(released(2, until), Mode::Shared);
        [with_mode(granted(2, 5, 10, 900), Mode::Shared), release]
    };
    let upgradable = with_mode(granted(1, 5, 10, 900), Mode::Upgradable);
    let upgraded = event(Op::Converted, 1, 30).fence(fence(6));
    let early = [reader(20).to_vec(), vec![upgradable, upgraded, released(1, 50)]].concat();
    assert_eq!(checks(&early, &open_end()), NONE);
    let late = [reader(40).to_vec(), early[2..].to_vec()].concat();
    assert!(checks(&late, &open_end()).contains(&Check::C2));

    let downgraded = with_mode(event(Op::Converted, 1, 30).fence(fence(5)), Mode::Shared);
    let second = with_mode(granted(2, 5, 31, 900), Mode::Shared);
    let down = [granted(1, 5, 10, 900), downgraded, second, released(1, 50), released(2, 60)];
    assert_eq!(checks(&down, &open_end()), NONE);
    assert_eq!(checks(&[&down[..1], &down[2..]].concat(), &open_end()), [Check::C2]);
}

#[test]
fn c2_compares_critical_sections_if_asked() {
    let section = |lease, from, to| [event(Op::Entered, lease, from), event(Op::Left, lease, to)];
    let rules = Rules { sections: true, ..open_end() };
    let apart = [section(1, 10, 20), section(2, 20, 30)].concat();
    assert_eq!(checks(&apart, &rules), NONE);
    let both = [section(1, 10, 20), section(2, 15, 30)].concat();
    assert_eq!(checks(&both, &rules), [Check::C2]);
    assert_eq!(checks(&both, &open_end()), NONE);
    assert_eq!(checks(&[&both[..1], &both[2..]].concat(), &rules), [Check::C2], "never left");
}

#[test]
fn c3_sees_a_smaller_fence_after_a_release() {
    let events = |second| {
        let asked = event(Op::Request, 2, 25);
        [granted(1, 5, 10, 90), released(1, 20), asked, granted(2, second, 30, 90), released(2, 40)]
    };
    assert_eq!(checks(&events(6), &open_end()), NONE);
    assert!(checks(&events(4), &open_end()).contains(&Check::C3));
    let mut asked_before = events(4);
    asked_before[2] = event(Op::Request, 2, 15);
    assert!(!checks(&asked_before, &open_end()).contains(&Check::C3));
}

fn wrote(lease: u128, number: u64, ms: u64, value: u64) -> Event {
    event(Op::Wrote, lease, ms).fence(fence(number)).outcome(Outcome::Accepted).value(value)
}

#[test]
fn c4_sees_a_smaller_fence_accepted() {
    assert_eq!(checks(&[wrote(1, 1, 10, 1), wrote(2, 2, 20, 2)], &open_end()), NONE);
    assert_eq!(checks(&[wrote(2, 2, 10, 1), wrote(1, 1, 20, 2)], &open_end()), [Check::C4]);
    let unfenced = Rules { fenced_resource: false, ..open_end() };
    assert_eq!(checks(&[wrote(2, 2, 10, 1), wrote(1, 1, 20, 2)], &unfenced), NONE);
    // At the same time: only the values tell the order.
    assert_eq!(checks(&[wrote(2, 2, 10, 1), wrote(1, 1, 10, 2)], &open_end()), [Check::C4]);
    assert_eq!(checks(&[wrote(2, 2, 10, 2), wrote(1, 1, 10, 1)], &open_end()), NONE);
}

#[test]
fn c4_sees_a_lost_update() {
    let counted = |value| event(Op::Counted, 9, 50).value(value);
    let writes = [wrote(1, 1, 10, 1), wrote(2, 2, 20, 2)];
    let after = |value| [writes.to_vec(), vec![counted(value)]].concat();
    assert_eq!(checks(&after(2), &open_end()), NONE);
    assert_eq!(checks(&after(1), &open_end()), [Check::C4]);
    assert_eq!(checks(&after(3), &open_end()), [Check::C4]);
    let unanswered = event(Op::Wrote, 3, 30).fence(fence(3)).outcome(Outcome::Unknown);
    for value in [2, 3] {
        let events = [after(value), vec![unanswered.clone()]].concat();
        assert_eq!(checks(&events, &open_end()), NONE);
    }
    assert_eq!(checks(&[wrote(1, 1, 10, 1), wrote(2, 2, 20, 1)], &open_end()), [Check::C4]);
}

#[test]
fn c5_sees_a_waiter_that_starves() {
    let within = Duration::from_millis(100);
    let rules = Rules { healed_at_ns: Some(50 * MS), grant_within: within, ..open_end() };
    let waits = |asked, then: Event| [event(Op::Request, 1, asked), then];
    let grant = |ms| granted(1, 1, ms, 1_000);
    assert_eq!(checks(&waits(10, grant(150)), &rules), NONE, "counted from the healing");
    assert_eq!(checks(&waits(10, grant(151)), &rules), [Check::C5]);
    assert_eq!(checks(&waits(80, grant(179)), &rules), NONE, "counted from the request");
    assert_eq!(checks(&waits(80, grant(181)), &rules), [Check::C5]);
    assert_eq!(checks(&waits(80, event(Op::Withdrawn, 1, 100)), &rules), NONE);
    assert_eq!(checks(&waits(80, event(Op::Request, 2, 181)), &rules), [Check::C5], "no answer");
    let mut killed = rules.clone();
    killed.killed.insert("p1".into(), 90 * MS);
    assert_eq!(checks(&waits(80, event(Op::Request, 2, 181)), &killed), NONE);
}

/// X waits from 10 on; Y comes at 20 and is granted first.
fn overtaking(x: i8, y: i8) -> Vec<Event> {
    vec![
        event(Op::Request, 1, 9).priority(x),
        event(Op::Queued, 1, 10),
        event(Op::Request, 2, 20).priority(y),
        event(Op::Queued, 2, 21),
        granted(2, 4, 30, 90),
        released(2, 40),
        granted(1, 5, 50, 90),
        released(1, 60),
    ]
}

#[test]
fn c6_sees_an_overtaken_waiter() {
    assert_eq!(checks(&overtaking(0, 0), &open_end()), [Check::C6]);
    assert_eq!(checks(&overtaking(3, 0), &open_end()), [Check::C6]);
    assert_eq!(checks(&overtaking(0, 1), &open_end()), NONE, "more urgent");
    let unfair = Rules { fifo: false, ..open_end() };
    assert_eq!(checks(&overtaking(0, 0), &unfair), NONE);
}

#[test]
fn c6_counts_who_never_queued_and_not_who_gave_up() {
    let mut barged = overtaking(0, 0);
    barged.remove(3);
    assert_eq!(checks(&barged, &open_end()), [Check::C6]);
    let mut gave_up = overtaking(0, 0);
    gave_up[6] = event(Op::Withdrawn, 1, 50);
    gave_up.truncate(7);
    assert_eq!(checks(&gave_up, &open_end()), NONE);
    let mut together = overtaking(0, 0);
    together[1] = event(Op::Queued, 1, 20);
    assert_eq!(checks(&together, &open_end()), NONE, "nobody knows who came first");
}

#[test]
fn c6_tells_readers_from_writers_by_their_fences() {
    let order = |x: (Mode, u64), y: (Mode, u64)| {
        let mut events = overtaking(0, 0);
        events[4] = with_mode(granted(2, y.1, 30, 900), y.0);
        events[6] = with_mode(granted(1, x.1, 50, 900), x.0);
        checks(&events, &Rules { exclusion: false, ..open_end() }).contains(&Check::C6)
    };
    use Mode::{Exclusive, Shared};
    assert!(!order((Shared, 4), (Shared, 4)), "readers go together");
    assert!(order((Shared, 5), (Exclusive, 5)), "the reader saw the writer's fence");
    assert!(!order((Shared, 4), (Exclusive, 5)));
    assert!(!order((Exclusive, 5), (Shared, 5)));
    assert!(order((Exclusive, 5), (Shared, 4)));
}

#[test]
fn c7_sees_what_is_left() {
    let mut events = clean();
    let last = events.len() - 1;
    let lease = LeaseId::from_u128(7);
    for (holders, waiters) in [(vec![lease], vec![]), (vec![], vec![lease])] {
        events[last] = event(Op::Final, 99, 50).seen(holders, waiters);
        assert_eq!(checks(&events, &Rules::default()), [Check::C7]);
        assert_eq!(checks(&events, &open_end()), NONE);
    }
    events.pop();
    assert_eq!(checks(&events, &Rules::default()), [Check::C7], "nobody looked");
}
