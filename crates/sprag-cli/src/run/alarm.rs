//! [`Alarm`]: a timer that runs on while the machine sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use sprag::clock::Moment;

/// A descriptor that becomes readable at a moment of CLOCK_BOOTTIME. The timeout of poll(2) will
/// not do: it stands still during suspend, and the lease does not.
#[derive(Debug)]
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, flags)?))
    }

    /// Rings at `when`, also if that is over, and forgets any earlier ring.
    pub(crate) fn set(&self, when: Moment) -> io::Result<()> {
        const NONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let since = when.since_start();
        let value = match i64::try_from(since.as_secs()) {
            // Zero would switch it off.
            Ok(0) if since.subsec_nanos() == 0 => Timespec { tv_sec: 0, tv_nsec: 1 },
            Ok(tv_sec) => Timespec { tv_sec, tv_nsec: i64::from(since.subsec_nanos()) },
            Err(_) => NONE,
        };
        let spec = Itimerspec { it_interval: NONE, it_value: value };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
