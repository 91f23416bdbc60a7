//! [`Violation`]: a rule that was broken, and the events that show it.

use std::fmt;

use sprag_core::LockName;

use super::{Event, Outcome};

/// Which check found a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// Fences are unique and grow in the order of the grants.
    C1,
    /// No two believe at the same time to hold what only one can hold.
    C2,
    /// A request sent after a release was answered gets a larger fence.
    C3,
    /// A guarded resource never goes back to a smaller fence and loses no update.
    C4,
    /// After the faults every waiter is granted in time.
    C5,
    /// Who came first, and is as urgent, is granted first.
    C6,
    /// At the end nothing is left.
    C7,
    /// A loss is told in time, and only a real one.
    C8,
    /// What a caller is told is true.
    C9,
}

/// A rule that was broken. Its text shows the few events that prove it, with times in
/// milliseconds since the first of them:
///
/// ```text
/// C2 "deploy": p1 and p2 believe to hold the lock at once, for 20.000 ms
///       0.000 ..     1.000 ms  p1 granted exclusive, fence 4, lease 00000001, until 50.000 ms
///      29.000 ..    30.000 ms  p2 granted exclusive, fence 5, lease 00000002, until 80.000 ms
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// Which check found it.
    pub check: Check,
    /// The lock.
    pub lock: LockName,
    /// What is wrong, in one line.
    pub message: String,
    /// The events that show it, in the order of time.
    pub events: Vec<Event>,
}

impl Violation {
    pub(super) fn new(check: Check, lock: &LockName, message: String, shown: &[&Event]) -> Self {
        let mut events: Vec<Event> = shown.iter().map(|event| (*event).clone()).collect();
        events.sort_by_key(|event| (event.t_recv_ns, event.t_send_ns));
        events.dedup();
        Self { check, lock: lock.clone(), message, events }
    }
}

/// Nanoseconds as milliseconds, for people.
pub(super) struct Ms(pub(super) u64);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0 / 1_000;
        f.pad(&format!("{}.{:03}", micros / 1_000, micros % 1_000))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}: {}", self.check, self.lock, self.message)?;
        let start = self.events.iter().map(|event| event.t_send_ns.min(event.t_recv_ns)).min();
        let since = |ns: u64| Ms(ns.saturating_sub(start.unwrap_or(0)));
        for event in &self.events {
            let (sent, received) = (since(event.t_send_ns), since(event.t_recv_ns));
            write!(f, "\n{sent:>12} .. {received:>9} ms  {}", event.proc)?;
            write!(f, " {} {}", event.op.as_str(), event.mode)?;
            if let Some(fence) = event.fence {
                write!(f, ", fence {fence}")?;
            }
            write!(f, ", lease {}", short(event))?;
            if let Some(until) = event.valid_until_ns {
                write!(f, ", until {} ms", since(until))?;
            }
            if let Some(outcome) = event.outcome {
                write!(f, ", {}", word(outcome))?;
            }
            if let Some(value) = event.value {
                write!(f, ", value {value}")?;
            }
            if let Some(seen) = &event.seen {
                write!(f, ", {} hold, {} wait", seen.holders.len(), seen.waiters.len())?;
            }
        }
        Ok(())
    }
}

/// The last digits: simulated leases are small numbers.
fn short(event: &Event) -> String {
    format!("{:08x}", event.attempt.as_u128() & 0xffff_ffff)
}

const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Freed => "freed",
        Outcome::AlreadyLost => "already lost",
        Outcome::AlreadyReleased => "already released",
        Outcome::Accepted => "accepted",
        Outcome::Rejected => "rejected",
        Outcome::Unknown => "unknown",
    }
}
