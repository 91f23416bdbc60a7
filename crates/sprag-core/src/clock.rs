//! [`Clock`]: the one place where time comes from.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A point in time on a clock that only runs forward, as the time since the clock's start.
///
/// It means something only beside other values of the same clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The clock's start.
    pub const START: Self = Self(Duration::ZERO);
    /// Later than every other moment.
    pub const NEVER: Self = Self(Duration::MAX);

    /// The moment `since_start` after the clock's start.
    pub const fn new(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// The time since the clock's start.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Whole milliseconds since the clock's start.
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// This moment plus `duration`; never overflows.
    #[must_use]
    pub const fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// This moment minus `duration`; never before the start.
    #[must_use]
    pub const fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Tells the time. Every decision of sprag asks this and nothing else.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// A clock that runs forward only, and also while the machine is suspended.
    fn now(&self) -> Moment;

    /// Microseconds since 1970, as this machine believes. Shown to people, and used as a floor
    /// for fences; never compared with another machine's.
    fn unix_micros(&self) -> u64;
}

/// The machine's clock: CLOCK_BOOTTIME.
///
/// `std::time::Instant` will not do: on Linux it stands still during suspend, and a guard that
/// trusted it would believe itself valid after a night in the laptop bag.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        Moment(duration(clock_gettime(ClockId::Boottime)))
    }

    fn unix_micros(&self) -> u64 {
        let now = duration(clock_gettime(ClockId::Realtime));
        u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
    }
}

fn duration(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A clock that moves only when told to, for tests.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sprag_core::clock::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(clock.now().since(before), Duration::from_secs(5));
/// ```
#[derive(Debug, Default)]
pub struct ManualClock {
    micros: AtomicU64,
}

impl ManualClock {
    /// Starts at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment(Duration::from_micros(self.micros.load(Ordering::SeqCst)))
    }

    fn unix_micros(&self) -> u64 {
        self.micros.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::{BootClock, Clock, Moment};
    use std::time::Duration;

    #[test]
    fn the_boot_clock_runs_forward() {
        let earlier = BootClock.now();
        let later = BootClock.now();
        assert!(later >= earlier && earlier > Moment::START);
    }

    #[test]
    fn arithmetic_never_overflows() {
        assert_eq!(Moment::START.plus(Duration::MAX).plus(Duration::MAX), Moment::NEVER);
        assert_eq!(Moment::START.minus(Duration::MAX), Moment::START);
        assert_eq!(Moment::START.since(Moment::NEVER), Duration::ZERO);
    }
}
