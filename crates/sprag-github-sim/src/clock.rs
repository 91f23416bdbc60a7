//! [`SimClock`]: the time at GitHub, which tests can move.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};

use crate::stamp::Stamp;

/// 2026-01-01, when every simulation begins.
const START: u64 = 1_767_225_600_000_000;

/// A clock that stands still, follows real time or runs faster; and that can be put forward.
///
/// A client under test may be given the same one, so that both sides live in the same time.
#[derive(Debug)]
pub struct SimClock {
    begun: Moment,
    speed: u32,
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    advanced: Duration,
    over: bool,
}

impl SimClock {
    /// A clock that runs `speed` times as fast as real time; 0 to stand still.
    pub(crate) fn new(speed: u32) -> Self {
        let (state, moved) = (Mutex::default(), Condvar::new());
        Self { begun: BootClock.now(), speed, state, moved }
    }

    /// Puts the clock forward.
    pub fn advance(&self, duration: Duration) {
        self.lock().advanced += duration;
        self.moved.notify_all();
    }

    /// What it shows.
    pub fn stamp(&self) -> Stamp {
        Stamp::from_micros(self.unix_micros())
    }

    /// Waits until it shows that much more. A clock that stands still has to be put forward.
    pub fn wait(&self, duration: Duration) {
        let until = self.now().plus(duration);
        let mut state = self.lock();
        loop {
            let left = until.since(Moment::new(self.elapsed(state.advanced)));
            if state.over || left.is_zero() {
                return;
            }
            state = match left.checked_div(self.speed) {
                Some(left) => {
                    let woken = self.moved.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.moved.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Nobody waits any more.
    pub(crate) fn end(&self) {
        self.lock().over = true;
        self.moved.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed(&self, advanced: Duration) -> Duration {
        (BootClock.now().since(self.begun) * self.speed).saturating_add(advanced)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Moment {
        Moment::new(self.elapsed(self.lock().advanced))
    }

    fn unix_micros(&self) -> u64 {
        START
            .saturating_add(u64::try_from(self.now().since_start().as_micros()).unwrap_or(u64::MAX))
    }
}
