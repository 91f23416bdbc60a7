//! C8 and C9: a seeded violation and a clean history for each rule.

use std::time::Duration;

use sprag_core::{LeaseId, Mode};

use super::samples::{MS, checks, event, fence, granted, look, open_end, released, with_mode};
use crate::history::{Check, Event, Op, Outcome, Rules};

const NONE: [Check; 0] = [];

/// Rules with 5 ms for a thread to wake up.
fn rules() -> Rules {
    Rules { lost_slack: Some(Duration::from_millis(5)), ..open_end() }
}

fn already_lost(lease: u128, ms: u64) -> Event {
    event(Op::Released, lease, ms).outcome(Outcome::AlreadyLost)
}

#[test]
fn c8_sees_a_loss_told_late() {
    let told = |ms| [granted(1, 1, 10, 50), event(Op::Lost, 1, ms)];
    assert_eq!(checks(&told(50), &rules()), NONE);
    assert_eq!(checks(&told(55), &rules()), NONE, "within the slack");
    assert_eq!(checks(&told(56), &rules()), [Check::C8]);
    let paused = Rules { lost_slack: None, ..open_end() };
    assert_eq!(checks(&told(500), &paused), NONE);
}

#[test]
fn c8_sees_a_loss_never_told() {
    let silent = |last| [granted(1, 1, 10, 50), event(Op::Request, 2, last)];
    assert_eq!(checks(&silent(55), &rules()), NONE, "the history ends before it is due");
    assert_eq!(checks(&silent(56), &rules()), [Check::C8]);
    let mut killed = rules();
    killed.killed.insert("p1".into(), 40 * MS);
    assert_eq!(checks(&silent(56), &killed), NONE);
}

#[test]
fn c8_sees_a_belief_that_comes_back_to_life() {
    let renewed = |ms| {
        [granted(1, 1, 10, 50), event(Op::Renewed, 1, ms).valid_until(99 * MS), released(1, 80)]
    };
    assert_eq!(checks(&renewed(50), &rules()), NONE);
    assert_eq!(checks(&renewed(70), &rules()), [Check::C8]);
}

#[test]
fn c8_keeps_the_deadline_over_a_conversion() {
    let converted = with_mode(event(Op::Converted, 1, 20).fence(fence(1)), Mode::Shared);
    let events = |lost| [granted(1, 1, 10, 50), converted.clone(), event(Op::Lost, 1, lost)];
    assert_eq!(checks(&events(50), &rules()), NONE);
    assert_eq!(checks(&events(60), &rules()), [Check::C8]);
}

#[test]
fn c8_sees_a_loss_that_did_not_happen() {
    let told = |lost, seen| [granted(1, 1, 10, 50), event(Op::Lost, 1, lost), look(seen, &[1])];
    assert_eq!(checks(&told(30, 40), &rules()), [Check::C8]);
    assert_eq!(checks(&told(50, 52), &rules()), NONE, "the store is told nothing yet");
    let taken = [granted(1, 1, 10, 50), event(Op::Lost, 1, 30), look(40, &[2])];
    assert_eq!(checks(&taken, &rules()), NONE);
}

#[test]
fn c9_sees_a_release_that_freed_nothing() {
    let events = |holders: &[u128]| [granted(1, 1, 10, 90), released(1, 20), look(40, holders)];
    assert_eq!(checks(&events(&[]), &rules()), NONE);
    assert_eq!(checks(&events(&[1]), &rules()), [Check::C9]);
    let waits = event(Op::Inspected, 9, 40).seen(Vec::new(), vec![LeaseId::from_u128(1)]);
    let events = [granted(1, 1, 10, 90), released(1, 20), waits];
    assert_eq!(checks(&events, &rules()), [Check::C9]);
}

#[test]
fn c9_sees_a_release_of_what_another_had() {
    let late = |outcome| {
        let release = event(Op::Released, 1, 80).outcome(outcome);
        let lost = event(Op::Lost, 1, 50);
        [granted(1, 1, 10, 50), lost, granted(2, 2, 60, 90), release, released(2, 85)]
    };
    assert_eq!(checks(&late(Outcome::AlreadyLost), &rules()), NONE);
    assert_eq!(checks(&late(Outcome::Unknown), &rules()), NONE);
    assert_eq!(checks(&late(Outcome::Freed), &rules()), [Check::C9]);
}

#[test]
fn c9_wants_a_reason_for_a_loss() {
    let told = |ms| vec![granted(1, 1, 10, 50), already_lost(1, ms)];
    assert_eq!(checks(&told(30), &rules()), [Check::C9]);
    assert_eq!(checks(&told(50), &rules()), NONE, "expired");
    let evicted = event(Op::Evicted, 9, 20).fence(fence(1));
    assert_eq!(checks(&[told(30), vec![evicted]].concat(), &rules()), NONE, "broken");
    let forgetful = Rules { durable: false, ..rules() };
    assert_eq!(checks(&told(30), &forgetful), NONE, "the store may forget");
}

#[test]
fn c9_accepts_somebody_else_as_a_reason() {
    let taken =
        [granted(1, 1, 10, 90), already_lost(1, 30), granted(2, 2, 30, 90), released(2, 40)];
    assert_eq!(checks(&taken, &rules()), NONE);
    let asked_later = [taken[0].clone(), taken[1].clone(), granted(2, 2, 60, 90), released(2, 70)];
    assert_eq!(checks(&asked_later, &rules()), [Check::C9]);
}

#[test]
fn c9_sees_a_holder_that_the_store_does_not_know() {
    let seen = |holders: &[u128]| [granted(1, 1, 10, 90), look(40, holders), released(1, 60)];
    assert_eq!(checks(&seen(&[1]), &rules()), NONE);
    assert_eq!(checks(&seen(&[2]), &rules()), [Check::C9]);
    assert_eq!(checks(&seen(&[]), &Rules { exclusion: false, ..rules() }), NONE, "stolen");
    let before = [granted(1, 1, 10, 90), look(10, &[]), released(1, 60)];
    assert_eq!(checks(&before, &rules()), NONE, "the look began before the grant was known");
    let across = look(61, &[]).at(58 * MS, 61 * MS);
    assert_eq!(checks(&[before[0].clone(), across, before[2].clone()], &rules()), NONE);
}

#[test]
fn who_gives_back_twice_at_once_may_hear_the_second_answer_first() {
    let second = event(Op::Released, 1, 41).outcome(Outcome::AlreadyReleased);
    let first = event(Op::Released, 1, 42).outcome(Outcome::Freed).at(20 * MS, 42 * MS);
    let next = granted(2, 2, 30, 60);
    let twice = [granted(1, 1, 10, 50), second.clone(), first, next.clone()];
    assert_eq!(checks(&twice, &rules()), NONE);
    assert_eq!(checks(&twice[..3], &rules()), NONE);
    let once = [granted(1, 1, 10, 50), second, next];
    assert_eq!(
        checks(&once, &rules()),
        [Check::C2, Check::C9],
        "without the first it is a violation"
    );
}

#[test]
fn c9_sees_a_release_that_nobody_asked_for() {
    let told = |sent: u64, ms: u64| {
        let answer = event(Op::Released, 1, ms).outcome(Outcome::AlreadyReleased);
        answer.at(sent * MS, ms * MS)
    };
    let alone = [granted(1, 1, 10, 90), told(19, 20)];
    assert_eq!(checks(&alone, &rules()), [Check::C9]);
    // Two at once: the one that frees it may be answered last.
    let freed = event(Op::Released, 1, 25).outcome(Outcome::Freed).at(18 * MS, 25 * MS);
    let both = [granted(1, 1, 10, 90), told(19, 20), freed];
    assert_eq!(checks(&both, &rules()), NONE);
    let late = event(Op::Released, 1, 25).outcome(Outcome::Freed).at(22 * MS, 25 * MS);
    assert_eq!(checks(&[granted(1, 1, 10, 90), told(19, 20), late], &rules()), [Check::C9]);
}
