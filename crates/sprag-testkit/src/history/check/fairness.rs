//! C6: who came first, and is as urgent, is granted first.

use std::collections::BTreeSet;

use super::sweep::{Mark, largest_before};
use crate::history::attempt::{Attempt, Lock};
use crate::history::{Check, Op, Rules, Violation};

/// C6: if X was known to wait before Y was sent, and Y is not more urgent, X is granted first.
///
/// Only for those that were granted in the end: who gave up or died has no place any more. That
/// holds for priorities too, where order is by arrival minus a bonus: X came earlier and has at
/// least the same bonus.
///
/// The fences tell who was granted first; answers may overtake each other.
pub(super) fn first_come_first_served(lock: &Lock<'_>, rules: &Rules) -> Vec<Violation> {
    if !rules.fifo {
        return Vec::new();
    }
    let granted: Vec<_> = lock.attempts.values().filter_map(Waiter::of).collect();
    let priorities: BTreeSet<i8> = granted.iter().map(|waiter| waiter.priority).collect();
    let mut found = Vec::new();
    for priority in priorities {
        let as_urgent = granted.iter().filter(|waiter| waiter.priority >= priority);
        let ahead = as_urgent.filter_map(|waiter| waiter.queued).collect();
        let behind = granted.iter().filter(|waiter| waiter.priority == priority);
        let behind = behind.map(|waiter| waiter.asked).collect();
        largest_before(ahead, behind, |first, second| {
            // A reader that carries the fence of a writer was granted after it.
            let overtaken = second.fence == first.fence && second.event.mode.takes_new_fence();
            if second.fence < first.fence || overtaken {
                let what = format!(
                    "{} was granted before {}, who was known to wait when it came",
                    second.event.proc, first.event.proc
                );
                let grant = lock.attempts.get(&first.event.attempt);
                let grant = grant.and_then(|attempt| attempt.first(Op::Granted));
                let mut shown = vec![first.event, second.event];
                shown.extend(grant);
                found.push(Violation::new(Check::C6, lock.name, what, &shown));
            }
        });
    }
    found
}

/// A waiter that was granted.
struct Waiter<'a> {
    priority: i8,
    /// When it came, with its grant.
    asked: Mark<'a>,
    /// When it was known to wait, if it had to, with that answer.
    queued: Option<Mark<'a>>,
}

impl<'a> Waiter<'a> {
    fn of(attempt: &Attempt<'a>) -> Option<Self> {
        let grant = attempt.first(Op::Granted)?;
        let fence = grant.fence?;
        let priority = attempt.first(Op::Request).unwrap_or(grant).priority;
        let asked = Mark { at: attempt.asked(), fence, event: grant };
        // One that was silent for too long may have lost its place and joined again: it counts
        // from the last time it was told to wait.
        let queued = attempt.last(Op::Queued);
        let queued = queued.map(|event| Mark { at: event.t_recv_ns, fence, event });
        Some(Self { priority, asked, queued })
    }
}
