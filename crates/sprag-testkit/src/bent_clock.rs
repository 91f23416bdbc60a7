//! [`BentClock`]: the machine's clock, for a client that was asleep or whose time of day was set.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};

/// Runs like the machine's clock, and jumps when it is told to.
#[derive(Debug, Default)]
pub struct BentClock {
    asleep_micros: AtomicU64,
    set_micros: AtomicI64,
}

impl BentClock {
    /// The machine sleeps for so long: CLOCK_BOOTTIME goes on, and timers stand still.
    pub fn sleep(&self, length: Duration) {
        let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        self.asleep_micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Somebody sets the time of day, so many hours from what it is.
    pub fn set(&self, hours: i64) {
        self.set_micros.store(hours * 3_600_000_000, Ordering::SeqCst);
    }
}

impl Clock for BentClock {
    fn now(&self) -> Moment {
        let asleep = Duration::from_micros(self.asleep_micros.load(Ordering::SeqCst));
        BootClock.now().plus(asleep)
    }

    fn unix_micros(&self) -> u64 {
        BootClock.unix_micros().saturating_add_signed(self.set_micros.load(Ordering::SeqCst))
    }
}
