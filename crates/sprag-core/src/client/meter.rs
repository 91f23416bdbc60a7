//! [`Meter`] and [`Waiting`]: what is measured of an acquire.

use super::core::Core;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::mode::Mode;

/// Measures an acquire; what is not finished was cancelled.
pub(super) struct Meter<'a> {
    core: &'a Core,
    mode: Mode,
    started: Moment,
    outcome: &'static str,
}

impl<'a> Meter<'a> {
    pub(super) fn start(core: &'a Core, mode: Mode) -> Self {
        Self { core, mode, started: core.now(), outcome: "cancelled" }
    }

    pub(super) fn finish(mut self, error: Option<&Error>) {
        self.outcome = match error.map(Error::kind) {
            None => "acquired",
            Some(ErrorKind::Held) => "held",
            Some(ErrorKind::Timeout) => "timeout",
            Some(ErrorKind::Deadlock | ErrorKind::AlreadyHeldHere) => "deadlock",
            Some(_) => "error",
        };
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        let waited = self.core.now().since(self.started);
        self.core.telemetry.acquired(self.mode, waited, self.outcome);
    }
}

/// Counts one waiter while it exists.
pub(super) struct Waiting<'a> {
    core: &'a Core,
    mode: Mode,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(core: &'a Core, mode: Mode) -> Self {
        core.telemetry.waiting(mode, 1.0);
        Self { core, mode }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.core.telemetry.waiting(self.mode, -1.0);
    }
}
