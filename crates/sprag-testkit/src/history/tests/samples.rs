//! Short ways to write events down.

use sprag_core::{Fence, LeaseId, LockName, Mode};

use crate::history::{Check, Event, Op, Outcome, Rules, check};

/// A millisecond in nanoseconds.
pub(in crate::history) const MS: u64 = 1_000_000;

/// An event of process `p{lease}`, exclusive, sent 1 ms before it was answered at `ms`.
pub(in crate::history) fn event(op: Op, lease: u128, ms: u64) -> Event {
    let lock = LockName::new("x").unwrap();
    let event =
        Event::new(format!("p{lease}"), LeaseId::from_u128(lease), &lock, Mode::Exclusive, op);
    event.at((ms * MS).saturating_sub(MS), ms * MS)
}

pub(in crate::history) fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

/// A grant that was answered at `ms` and is good until `until`.
pub(in crate::history) fn granted(lease: u128, number: u64, ms: u64, until: u64) -> Event {
    event(Op::Granted, lease, ms).fence(fence(number)).valid_until(until * MS)
}

/// A release that freed the lock, answered at `ms`.
pub(in crate::history) fn released(lease: u128, ms: u64) -> Event {
    event(Op::Released, lease, ms).outcome(Outcome::Freed)
}

/// A look at the lock that ended at `ms` and saw these holders.
pub(in crate::history) fn look(ms: u64, holders: &[u128]) -> Event {
    let holders = holders.iter().copied().map(LeaseId::from_u128).collect();
    event(Op::Inspected, 99, ms).seen(holders, Vec::new())
}

pub(in crate::history) fn with_mode(mut event: Event, mode: Mode) -> Event {
    event.mode = mode;
    event
}

/// Rules for a history that is cut off somewhere: nobody looks in the end.
pub(in crate::history) fn open_end() -> Rules {
    Rules { empty_at_end: false, ..Rules::default() }
}

/// The checks that found something.
pub(in crate::history) fn checks(events: &[Event], rules: &Rules) -> Vec<Check> {
    let mut checks: Vec<Check> = check(events, rules).iter().map(|found| found.check).collect();
    checks.sort();
    checks.dedup();
    checks
}
