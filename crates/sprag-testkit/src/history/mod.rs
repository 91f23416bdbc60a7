//! What happened, as every process saw it, and whether it may happen.
//!
//! Each process records an [`Event`] for each thing it did or learned, with the time before the
//! request was sent and the time after the answer came, on the one clock of the machine. Several
//! processes may append to one file. Afterwards [`check()`] reads the whole history and lists
//! every [`Violation`] of the [`Rules`], each with a short timeline.
//!
//! | check | what it says |
//! |---|---|
//! | C1 | fences of a lock are unique and grow in the order of the grants |
//! | C2 | no two believe at the same time to hold what only one can hold |
//! | C3 | a request sent after a release was answered gets a larger fence |
//! | C4 | a guarded resource never goes back to a smaller fence and loses no update |
//! | C5 | after the faults every waiter is granted in time |
//! | C6 | who came first, and is as urgent, is granted first |
//! | C7 | at the end nothing is left |
//! | C8 | a loss is told in time, and only a real one |
//! | C9 | what a caller is told is true |
//!
//! Fences give the order of the grants, so nothing has to be guessed and each check is a sort and
//! a sweep: a history of a million events takes seconds.
//!
//! # Examples
//!
//! ```
//! use sprag_core::{Fence, LeaseId, LockName, Mode};
//! use sprag_testkit::history::{Event, Op, Outcome, Recorder, Rules, check};
//!
//! let recorder = Recorder::in_memory();
//! let lock = LockName::new("deploy")?;
//! let event = |op, lease| {
//!     Event::new("p1", LeaseId::from_u128(lease), &lock, Mode::Exclusive, op)
//! };
//! // Two leases are granted with the same fence, one after the other.
//! for (lease, ms) in [(1, 0), (2, 50)] {
//!     let ns = ms * 1_000_000;
//!     let granted = event(Op::Granted, lease).fence(Fence::new(7).unwrap());
//!     recorder.record(granted.at(ns, ns + 1).valid_until(ns + 9_000_000))?;
//!     let released = event(Op::Released, lease).outcome(Outcome::Freed);
//!     recorder.record(released.at(ns + 2, ns + 3))?;
//! }
//! let rules = Rules { empty_at_end: false, ..Rules::default() };
//! let found = check(&recorder.events(), &rules);
//! assert!(found[0].to_string().starts_with("C1 \"deploy\": fence 7 was given out twice"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attempt;
mod check;
mod event;
mod recorder;
mod rules;
#[cfg(test)]
mod tests;
mod violation;

pub use check::check;
pub use event::{Event, Op, Outcome, Seen};
pub use recorder::Recorder;
pub use rules::Rules;
pub use violation::{Check, Violation};
