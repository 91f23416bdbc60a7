//! C8 and C9: what a caller is told is true, and told in time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

use sprag_core::{Fence, Mode};

use super::liveness::nanos;
use crate::history::attempt::{Attempt, Lock, Taken};
use crate::history::violation::Ms;
use crate::history::{Check, Event, Op, Outcome, Rules, Violation};

/// C8: a holder does not go on believing past its deadline without being told.
pub(super) fn loss_is_told_in_time(lock: &Lock<'_>, rules: &Rules, end: u64) -> Vec<Violation> {
    let Some(slack) = rules.lost_slack.map(nanos) else { return Vec::new() };
    let mut found = Vec::new();
    for attempt in lock.attempts.values() {
        let stopped = attempt.stopped();
        let mut last: Option<&Event> = None;
        let mut late: Option<&Event> = None;
        for &event in attempt.events.iter().filter(|event| event.t_recv_ns <= stopped) {
            if !matches!(event.op, Op::Granted | Op::Renewed | Op::Converted) {
                continue;
            }
            if last.is_some_and(|last| event.t_recv_ns > deadline(last).saturating_add(slack)) {
                late = Some(event);
                break;
            }
            // A conversion without a deadline of its own keeps the one before.
            if event.op != Op::Converted || event.valid_until_ns.is_some() {
                last = Some(event);
            }
        }
        let Some(last) = last else { continue };
        let due = deadline(last).saturating_add(slack);
        if late.is_none() && stopped.min(end) <= due {
            continue;
        }
        let until = late.map_or(stopped.min(end), |event| event.t_recv_ns);
        let after = Ms(until - deadline(last));
        let what = format!("{} was not told its loss {after} ms after its deadline", last.proc);
        let told = late.or(attempt.first(Op::Lost)).or(attempt.first(Op::Released));
        let shown: Vec<_> = [Some(last), told].into_iter().flatten().collect();
        found.push(Violation::new(Check::C8, lock.name, what, &shown));
    }
    found
}

/// A grant that came too late to be used has to be given up when it comes.
fn deadline(event: &Event) -> u64 {
    event.valid_until_ns.unwrap_or(u64::MAX).max(event.t_recv_ns)
}

/// C8: nobody is told a loss before its deadline while the store still says that it holds.
pub(super) fn loss_is_real(lock: &Lock<'_>, rules: &Rules) -> Vec<Violation> {
    if rules.lost_slack.is_none() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (look, attempt) in holders_seen(lock) {
        let Some(lost) = attempt.first(Op::Lost) else { continue };
        let early = valid_until(attempt, lost.t_recv_ns).is_none_or(|until| lost.t_recv_ns < until);
        if early && look.t_send_ns >= lost.t_recv_ns {
            let what = format!("{} was told a loss that did not happen", lost.proc);
            found.push(Violation::new(Check::C8, lock.name, what, &[lost, look]));
        }
    }
    found
}

/// C9: `Freed` means that it was held until then and is gone; `AlreadyLost` that there is a reason;
/// `AlreadyReleased` that there is another release.
pub(super) fn releases_are_true(lock: &Lock<'_>, rules: &Rules) -> Vec<Violation> {
    let mut found = Vec::new();
    for (look, attempt) in leases_seen(lock) {
        let Some(release) = attempt.first(Op::Released) else { continue };
        let answered = release.outcome.is_some_and(|outcome| outcome != Outcome::Unknown);
        if answered && look.t_send_ns >= release.t_recv_ns {
            let what = format!("{} was told that its lease is gone, and it is not", release.proc);
            found.push(Violation::new(Check::C9, lock.name, what, &[release, look]));
        }
    }
    let successors = Successors::of(lock);
    for attempt in lock.attempts.values() {
        let Some(release) = attempt.first(Op::Released) else { continue };
        let Some(grant) = attempt.taken().last().copied() else { continue };
        let next = successors.after(grant.fence);
        match release.outcome {
            Some(Outcome::Freed) if rules.exclusion => {
                let Some(next) = next.and_then(|next| next.known) else { continue };
                if next.t_recv_ns < release.t_send_ns {
                    let what = format!("{} freed what {} had by then", release.proc, next.proc);
                    let shown = [grant.event, next, release];
                    found.push(Violation::new(Check::C9, lock.name, what, &shown));
                }
            }
            Some(Outcome::AlreadyLost) if rules.durable && rules.exclusion => {
                let taken = next.is_some_and(|next| next.asked <= release.t_recv_ns);
                if !taken && !has_ended(lock, attempt, grant.fence, release) {
                    let what = format!("{} was told a loss without a reason", release.proc);
                    let shown = [grant.event, release];
                    found.push(Violation::new(Check::C9, lock.name, what, &shown));
                }
            }
            Some(Outcome::AlreadyReleased) => {
                // Whoever drops a guard while its client ends releases it twice, and the second answer
                // may come first.
                let mut others = attempt.releases().filter(|other| !std::ptr::eq(*other, release));
                let faster = others.any(|other| other.t_send_ns <= release.t_recv_ns);
                if !faster && attempt.killed.is_none() {
                    let what =
                        format!("{} was told of a release that it did not ask for", release.proc);
                    found.push(Violation::new(Check::C9, lock.name, what, &[grant.event, release]));
                }
            }
            _ => {}
        }
    }
    found
}

/// Whether there is a reason for the lease to be gone, other than somebody having taken it.
fn has_ended(lock: &Lock<'_>, attempt: &Attempt<'_>, fence: Fence, release: &Event) -> bool {
    let until = valid_until(attempt, release.t_recv_ns);
    let expired = until.is_some_and(|until| until <= release.t_recv_ns);
    let told = attempt.first(Op::Lost).is_some_and(|lost| lost.t_recv_ns <= release.t_recv_ns);
    let broken = lock.evicted.iter().any(|event| event.fence == Some(fence));
    expired || told || broken || attempt.killed.is_some()
}

/// C9: who believes to hold the lock is listed as a holder.
pub(super) fn beliefs_are_true(lock: &Lock<'_>, rules: &Rules) -> Vec<Violation> {
    let mut found = Vec::new();
    if !rules.exclusion || !rules.durable || lock.looks.is_empty() {
        return found;
    }
    for attempt in lock.attempts.values() {
        for belief in attempt.beliefs() {
            let from = lock.looks.partition_point(|look| look.t_send_ns < belief.start);
            let during = lock.looks[from..].iter().take_while(|look| look.t_send_ns < belief.end);
            let missing = |look: &&&Event| {
                let seen = look.seen.as_ref();
                look.t_recv_ns < belief.end
                    && seen.is_some_and(|seen| !seen.holders.contains(&belief.event.attempt))
            };
            if let Some(look) = during.into_iter().find(missing) {
                let what = format!("{} believes to hold the lock, and does not", belief.event.proc);
                found.push(Violation::new(Check::C9, lock.name, what, &[belief.event, look]));
            }
        }
    }
    found
}

/// The deadline that was in force at a moment.
fn valid_until(attempt: &Attempt<'_>, at: u64) -> Option<u64> {
    let before = attempt.events.iter().filter(|event| event.t_recv_ns <= at);
    before.filter_map(|event| event.valid_until_ns).next_back()
}

fn holders_seen<'b, 'a>(lock: &'b Lock<'a>) -> impl Iterator<Item = (&'a Event, &'b Attempt<'a>)> {
    lock.looks.iter().flat_map(move |look| {
        let holders = look.seen.iter().flat_map(|seen| &seen.holders);
        holders.filter_map(move |lease| Some((*look, lock.attempts.get(lease)?)))
    })
}

fn leases_seen<'b, 'a>(lock: &'b Lock<'a>) -> impl Iterator<Item = (&'a Event, &'b Attempt<'a>)> {
    let waiters = lock.looks.iter().flat_map(move |look| {
        let waiters = look.seen.iter().flat_map(|seen| &seen.waiters);
        waiters.filter_map(move |lease| Some((*look, lock.attempts.get(lease)?)))
    });
    holders_seen(lock).chain(waiters)
}

/// For each fence the exclusive grants with a larger one: the first to be asked for, and the
/// first to be known.
struct Successors<'a>(BTreeMap<Fence, Next<'a>>);

#[derive(Clone, Copy)]
struct Next<'a> {
    asked: u64,
    known: Option<&'a Event>,
}

impl<'a> Successors<'a> {
    fn of(lock: &Lock<'a>) -> Self {
        let mut taken = lock.taken();
        taken.retain(|grant| grant.mode == Mode::Exclusive);
        taken.sort_by_key(|grant| Reverse(grant.fence));
        let mut next = Next { asked: u64::MAX, known: None };
        let entry = |grant: &Taken<'a>| {
            next.asked = next.asked.min(grant.asked);
            let earlier = next.known.filter(|known| known.t_recv_ns <= grant.learned);
            next.known = earlier.or(Some(grant.event));
            (grant.fence, next)
        };
        Self(taken.iter().map(entry).collect())
    }

    fn after(&self, fence: Fence) -> Option<Next<'a>> {
        let mut larger = self.0.range((Bound::Excluded(fence), Bound::Unbounded));
        larger.next().map(|(_, next)| *next)
    }
}
