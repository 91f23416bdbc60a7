//! C2: no two believe at the same time to hold what only one can hold.

use std::collections::BTreeSet;

use sprag_core::Mode;

use crate::history::attempt::{Belief, Lock};
use crate::history::violation::Ms;
use crate::history::{Check, Event, Op, Rules, Violation};

/// C2 for what the holders believe: from learning the grant to the release being sent, the loss
/// being told, or the deadline.
pub(super) fn beliefs(lock: &Lock<'_>, rules: &Rules, end: u64) -> Vec<Violation> {
    if !rules.exclusion {
        return Vec::new();
    }
    let beliefs = lock.attempts.values().flat_map(|attempt| attempt.beliefs()).collect();
    sweep(lock, beliefs, end, "believe to hold the lock")
}

/// C2 for what the holders do: from entering the critical section to leaving it.
pub(super) fn sections(lock: &Lock<'_>, rules: &Rules, end: u64) -> Vec<Violation> {
    if !rules.sections {
        return Vec::new();
    }
    let mut sections = Vec::new();
    for attempt in lock.attempts.values() {
        let mut entered: Option<&Event> = None;
        for &event in &attempt.events {
            match (event.op, entered) {
                (Op::Entered, _) => entered = Some(event),
                (Op::Left, Some(entry)) => {
                    sections.push(section(entry, event.t_send_ns));
                    entered = None;
                }
                _ => {}
            }
        }
        let gone = attempt.killed.unwrap_or(u64::MAX);
        sections.extend(entered.map(|entry| section(entry, gone)));
    }
    sweep(lock, sections, end, "are in their critical sections")
}

const fn section(entry: &Event, end: u64) -> Belief<'_> {
    Belief { start: entry.t_recv_ns, end, mode: entry.mode, event: entry }
}

/// Goes through the intervals in time, and compares each with those that are not over.
fn sweep<'a>(
    lock: &Lock<'a>,
    mut intervals: Vec<Belief<'a>>,
    end: u64,
    both: &str,
) -> Vec<Violation> {
    intervals.sort_by_key(|interval| interval.start);
    let mut active = Active::default();
    let mut found = Vec::new();
    for (index, later) in intervals.iter().enumerate() {
        active.leave_until(later.start, &intervals);
        if let Some(other) = active.conflict(later.mode) {
            let earlier = &intervals[other];
            let (one, other) = (&earlier.event.proc, &later.event.proc);
            // Where nothing ends it, it lasts until the end of the history.
            let overlap = Ms(earlier.end.min(later.end).min(end).saturating_sub(later.start));
            let what = format!("{one} and {other} {both} at once, for {overlap} ms");
            let mut shown = vec![earlier.event, later.event];
            let attempt = lock.attempts.get(&earlier.event.attempt);
            let ends = |event: &&Event| matches!(event.op, Op::Releasing | Op::Released | Op::Lost);
            shown.extend(attempt.and_then(|a| a.events.iter().copied().find(ends)));
            found.push(Violation::new(Check::C2, lock.name, what, &shown));
        }
        active.enter(index, later);
    }
    found
}

/// The intervals that are not over, by kind and end.
#[derive(Default)]
struct Active {
    exclusive: BTreeSet<(u64, usize)>,
    shared: BTreeSet<(u64, usize)>,
    upgradable: BTreeSet<(u64, usize)>,
    permits: BTreeSet<(u64, usize)>,
    permits_taken: u64,
}

impl Active {
    fn kind(&mut self, mode: Mode) -> &mut BTreeSet<(u64, usize)> {
        match mode {
            Mode::Exclusive => &mut self.exclusive,
            Mode::Shared => &mut self.shared,
            Mode::Upgradable => &mut self.upgradable,
            Mode::Permits { .. } => &mut self.permits,
        }
    }

    fn enter(&mut self, index: usize, interval: &Belief<'_>) {
        self.permits_taken += count(interval.mode);
        self.kind(interval.mode).insert((interval.end, index));
    }

    fn leave_until(&mut self, now: u64, intervals: &[Belief<'_>]) {
        let kinds =
            [&mut self.exclusive, &mut self.shared, &mut self.upgradable, &mut self.permits];
        for kind in kinds {
            while let Some((_, index)) = kind.first().copied().filter(|(end, _)| *end <= now) {
                kind.pop_first();
                self.permits_taken -= count(intervals[index].mode);
            }
        }
    }

    /// The one that is in the way of `mode` for the longest time.
    fn conflict(&self, mode: Mode) -> Option<usize> {
        let full = match mode {
            Mode::Permits { count, of } => self.permits_taken + u64::from(count) > u64::from(of),
            _ => true,
        };
        let shared = !matches!(mode, Mode::Shared | Mode::Upgradable);
        let upgradable = mode != Mode::Shared;
        let kinds = [
            (true, &self.exclusive),
            (shared, &self.shared),
            (upgradable, &self.upgradable),
            (full, &self.permits),
        ];
        let in_the_way = kinds.into_iter().filter(|(matters, _)| *matters);
        in_the_way.filter_map(|(_, kind)| kind.last()).max().map(|(_, index)| *index)
    }
}

fn count(mode: Mode) -> u64 {
    match mode {
        Mode::Permits { count, .. } => count.into(),
        _ => 0,
    }
}
