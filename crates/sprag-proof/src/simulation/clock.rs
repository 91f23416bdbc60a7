//! [`SimClock`]: a clock that starts where it likes and runs a little too fast or too slow.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sprag_core::clock::{Clock, Moment};
use tokio::time::Instant;

use super::dice::Dice;
use super::sim::Signal;

/// How wrong a clock may run, in millionths. Two clocks that differ by twice as much stay within
/// the margin of 1 % by which a holder gives up before the store does.
const MAX_DRIFT: u64 = 3_000;

/// How often a clock may be asked at one and the same moment. Simulated time goes on only when
/// nobody has anything to do; who is busy without end stops it.
const STANDSTILL: u64 = 200_000;

/// The clock of one process, or of the store.
#[derive(Debug)]
pub(crate) struct SimClock {
    start: Instant,
    asked: Mutex<(u128, u64)>,
    standstill: Arc<Signal>,
    offset: Duration,
    /// How far the clock comes in a million microseconds.
    rate: u64,
}

impl SimClock {
    pub(crate) fn new(start: Instant, dice: &mut Dice, standstill: &Arc<Signal>) -> Self {
        let offset = Duration::from_secs(dice.number(1, 1_000_000));
        let rate = 1_000_000 - MAX_DRIFT + dice.number(0, 2 * MAX_DRIFT);
        Self { start, asked: Mutex::default(), standstill: Arc::clone(standstill), offset, rate }
    }

    fn elapsed_micros(&self) -> u128 {
        let elapsed = self.start.elapsed().as_micros();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let times = if asked.0 == elapsed { asked.1 + 1 } else { 0 };
        *asked = (elapsed, times);
        if times == STANDSTILL {
            self.standstill.raise();
        }
        elapsed
    }
}

impl Clock for SimClock {
    fn now(&self) -> Moment {
        let elapsed = self.elapsed_micros() * u128::from(self.rate) / 1_000_000;
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        Moment::new(self.offset + Duration::from_micros(elapsed))
    }

    fn unix_micros(&self) -> u64 {
        u64::try_from(self.now().since_start().as_micros()).unwrap_or(u64::MAX)
    }
}
