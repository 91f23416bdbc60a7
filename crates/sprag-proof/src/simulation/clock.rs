//! [`SimClock`]: a clock that starts where it likes and runs a little too fast or too slow.

use std::time::Duration;

use sprag_core::clock::{Clock, Moment};
use tokio::time::Instant;

use super::dice::Dice;

/// How wrong a clock may run, in millionths. Two clocks that differ by twice as much stay within
/// the margin of 1 % by which a holder gives up before the store does.
const MAX_DRIFT: u64 = 3_000;

/// The clock of one process, or of the store.
#[derive(Debug)]
pub(crate) struct SimClock {
    start: Instant,
    offset: Duration,
    /// How far the clock comes in a million microseconds.
    rate: u64,
}

impl SimClock {
    pub(crate) fn new(start: Instant, dice: &mut Dice) -> Self {
        let offset = Duration::from_secs(dice.number(1, 1_000_000));
        let rate = 1_000_000 - MAX_DRIFT + dice.number(0, 2 * MAX_DRIFT);
        Self { start, offset, rate }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Moment {
        let elapsed = self.start.elapsed().as_micros() * u128::from(self.rate) / 1_000_000;
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        Moment::new(self.offset + Duration::from_micros(elapsed))
    }

    fn unix_micros(&self) -> u64 {
        u64::try_from(self.now().since_start().as_micros()).unwrap_or(u64::MAX)
    }
}
