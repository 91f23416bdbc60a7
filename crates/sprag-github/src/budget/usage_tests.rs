use std::time::Duration;

use proptest::prelude::*;
use sprag_core::clock::Moment;

use super::usage::{Heard, Limit, Plan, Usage, Verdict};
use crate::call::{Cost, Facts, Urgency};

const COSTS: [Cost; 5] = [Cost::Read, Cost::Write, Cost::Content, Cost::Query, Cost::Mutation];

fn at(seconds: u64) -> Moment {
    Moment::new(Duration::from_secs(10_000 + seconds))
}

fn told(remaining: u64, reset_in: u64) -> Heard {
    let facts = Facts {
        limit: Some(5000),
        remaining: Some(remaining),
        reset: Some(1_000_000 + reset_in),
        date: Some(1_000_000),
        resource: Some("core".into()),
        ..Facts::default()
    };
    Heard { facts, ..Heard::default() }
}

/// Sends as fast as it is allowed to for `seconds`, and tells when.
fn flood(usage: &mut Usage, cost: Cost, urgency: Urgency, seconds: u64) -> Vec<Moment> {
    let (mut now, mut sent) = (at(0), Vec::new());
    while now < at(seconds) {
        match usage.plan(cost, urgency, now) {
            Plan::Go => {
                usage.sent(cost, urgency, now);
                sent.push(now);
            }
            Plan::Wait(until, _) => now = until,
        }
    }
    sent
}

/// The most that fell into any window of this length.
fn busiest(sent: &[Moment], window: Duration) -> usize {
    let behind =
        |from: usize| sent[from..].iter().take_while(move |at| at.since(sent[from]) < window);
    (0..sent.len()).map(|from| behind(from).count()).max().unwrap_or(0)
}

#[test]
fn comments_stay_below_what_github_allows() {
    let sent = flood(&mut Usage::default(), Cost::Content, Urgency::Normal, 4 * 3600);
    assert!(busiest(&sent, Duration::from_secs(60)) <= 80);
    assert!(busiest(&sent, Duration::from_secs(3600)) <= 500);
    assert!(sent.len() > 1800, "and they are not held back for nothing: {}", sent.len());
}

#[test]
fn points_stay_below_what_github_allows_and_renewals_find_room() {
    let mut usage = Usage::default();
    let sent = flood(&mut usage, Cost::Write, Urgency::Normal, 300);
    assert!(busiest(&sent, Duration::from_secs(60)) * 5 <= 900);
    assert!(sent.len() * 5 > 3500, "{}", sent.len());
    let now = *sent.last().unwrap();
    assert!(matches!(usage.plan(Cost::Write, Urgency::Normal, now), Plan::Wait(_, Limit::Pace)));
    assert_eq!(usage.plan(Cost::Write, Urgency::Renewal, now), Plan::Go);
}

#[test]
fn what_is_left_of_the_hour_is_kept_for_renewals() {
    let mut usage = Usage::default();
    for keeper in 0..10 {
        usage.beat(&format!("{keeper}"), Duration::from_secs(100), at(0));
    }
    // Ten times 18 signs of life, two requests each, until the reset in half an hour.
    usage.heard(Cost::Write, &told(380, 1800), at(0));
    let plan = usage.plan(Cost::Write, Urgency::Normal, at(0));
    assert_eq!(plan, Plan::Wait(at(1800), Limit::Primary { remaining: 380, limit: 5000 }));
    assert_eq!(usage.plan(Cost::Write, Urgency::Renewal, at(0)), Plan::Go);
    assert_eq!(usage.plan(Cost::Query, Urgency::Normal, at(0)), Plan::Go, "a limit of its own");
    usage.heard(Cost::Write, &told(0, 1800), at(0));
    assert!(matches!(usage.plan(Cost::Write, Urgency::Renewal, at(0)), Plan::Wait(..)));
    assert_eq!(usage.next_renewal(at(0)), at(1800));
    assert_eq!(usage.plan(Cost::Write, Urgency::Normal, at(1800)), Plan::Go);
}

#[test]
fn a_renewal_goes_before_those_who_wait_for_a_turn() {
    let mut usage = Usage::default();
    let facts = Facts { retry_after: Some(1), ..Facts::default() };
    let slow = Heard { facts, verdict: Verdict::SlowDown, ..Heard::default() };
    usage.heard(Cost::Write, &slow, at(0));
    assert_eq!(usage.plan(Cost::Write, Urgency::Normal, at(2)), Plan::Go);
    usage.sent(Cost::Write, Urgency::Normal, at(2));
    assert_eq!(usage.plan(Cost::Write, Urgency::Renewal, at(2)), Plan::Wait(at(3), Limit::Pace));
    assert_eq!(usage.plan(Cost::Write, Urgency::Normal, at(3)), Plan::Wait(at(4), Limit::Pace));
    assert_eq!(usage.plan(Cost::Write, Urgency::Renewal, at(3)), Plan::Go);
}

#[test]
fn silence_grows_where_github_does_not_say_how_long() {
    let mut usage = Usage::default();
    let slow = Heard { verdict: Verdict::SlowDown, ..Heard::default() };
    let mut now = at(0);
    for seconds in [60, 120, 240, 480, 960, 960] {
        usage.heard(Cost::Read, &slow, now);
        let Plan::Wait(until, Limit::Secondary) = usage.plan(Cost::Read, Urgency::Normal, now)
        else {
            panic!("not silent")
        };
        assert_eq!(until.since(now), Duration::from_secs(seconds));
        now = until;
    }
    usage.heard(Cost::Read, &Heard::default(), now);
    usage.heard(Cost::Read, &slow, now);
    assert_eq!(usage.next_renewal(now).since(now), Duration::from_secs(60));
}

#[test]
fn what_people_look_at_leaves_room_for_signs_of_life_that_are_still_to_come() {
    let mut usage = Usage::default();
    let mut shown = 0;
    // 40 that give one every 100 s, of two changes each: 2,880 in an hour.
    let plan = |usage: &mut Usage, shown: u64| {
        for keeper in 0..40 {
            usage.beat(&keeper.to_string(), Duration::from_secs(100), at(shown * 2));
        }
        usage.plan(Cost::Write, Urgency::Mirror, at(shown * 2))
    };
    while plan(&mut usage, shown) == Plan::Go {
        usage.sent(Cost::Write, Urgency::Mirror, at(shown * 2));
        shown += 1;
    }
    assert_eq!(shown, 3_400 - 2_880);
    for urgency in [Urgency::Normal, Urgency::Renewal] {
        assert_eq!(usage.plan(Cost::Write, urgency, at(shown * 2)), Plan::Go);
    }
}

#[test]
fn what_was_unchanged_was_free() {
    let mut usage = Usage::default();
    usage.heard(Cost::Read, &told(100, 3600), at(0));
    for _ in 0..50 {
        usage.sent(Cost::Read, Urgency::Normal, at(1));
        usage.heard(Cost::Read, &Heard { unchanged: true, ..Heard::default() }, at(1));
    }
    assert_eq!(usage.left()[0], (100, 5000));
}

proptest! {
    #[test]
    fn nobody_is_sent_before_the_time_that_github_gave(
        events in prop::collection::vec((0_usize..5, 0_u8..3, 0_u64..50, 0_u64..90), 1..200),
    ) {
        let mut usage = Usage::default();
        let (mut now, mut silent) = (at(0), at(0));
        for (cost, urgency, step, retry_after) in events {
            now = now.plus(Duration::from_secs(step));
            let urgency = [Urgency::Mirror, Urgency::Normal, Urgency::Renewal][usize::from(urgency)];
            match usage.plan(COSTS[cost], urgency, now) {
                Plan::Go => {
                    prop_assert!(now >= silent);
                    usage.sent(COSTS[cost], urgency, now);
                    if retry_after > 80 {
                        let facts = Facts { retry_after: Some(retry_after), ..Facts::default() };
                        let heard = Heard { facts, verdict: Verdict::SlowDown, ..Heard::default() };
                        usage.heard(COSTS[cost], &heard, now);
                        silent = silent.max(now.plus(Duration::from_secs(retry_after)));
                    }
                }
                Plan::Wait(until, _) => prop_assert!(until > now, "waits for nothing"),
            }
        }
    }
}
