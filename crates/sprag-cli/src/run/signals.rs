//! [`Signals`]: the signals of this process, read from a descriptor instead of handled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What `sprag run` hands on to its command, or is ended by while it waits.
pub(crate) const FORWARDED: [Signal; 9] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
    Signal::SIGTSTP,
];

/// What asks a process to end.
pub(crate) const STOPPING: [Signal; 4] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// The kernel's own signals, such as those of the terminal: `SI_KERNEL`.
const FROM_KERNEL: i32 = 0x80;

/// Blocked signals, whose handlers are as they were: whoever starts a command need only take the
/// block away.
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

/// Starts something as if no signal had ever been blocked here: a child inherits the block.
///
/// What comes in that instant is caught and comes again when it is over: it must neither end this
/// process nor be lost. A signal that is ignored stays so, as a child inherits that as well.
pub(crate) fn with_no_signal_blocked<T>(start: impl FnOnce() -> T) -> io::Result<T> {
    let blocked = SigSet::thread_get_mask()?;
    let ignored = ignored();
    let mut caught = Vec::new();
    for signal in blocked.iter().filter(|signal| ignored >> (*signal as i32 - 1) & 1 == 0) {
        let flag = Arc::new(AtomicBool::new(false));
        let hook = signal_hook::flag::register(signal as i32, Arc::clone(&flag))?;
        caught.push((signal, flag, hook));
    }
    SigSet::empty().thread_set_mask()?;
    let started = start();
    blocked.thread_set_mask()?;
    for (signal, flag, hook) in caught {
        signal_hook::low_level::unregister(hook);
        if flag.load(Ordering::SeqCst) {
            kill(Pid::this(), signal)?;
        }
    }
    Ok(started)
}

/// The signals that whoever started this process had ignored, as bits.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// One signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Its number.
    pub(crate) number: u8,
    /// Whether the kernel sent it: then the terminal did, to the whole group.
    pub(crate) from_kernel: bool,
}

impl Received {
    pub(crate) fn is(self, signal: Signal) -> bool {
        i32::from(self.number) == signal as i32
    }

    /// Whether it ends a wait, as it would end a process that does nothing about it.
    pub(crate) fn ends(self) -> bool {
        ![Signal::SIGWINCH, Signal::SIGCONT, Signal::SIGTSTP].iter().any(|quiet| self.is(*quiet))
    }

    /// Whether it asks to end, and not only the command to do something of its own.
    pub(crate) fn says_stop(self) -> bool {
        STOPPING.iter().any(|stop| self.is(*stop)) && !self.is_ignored()
    }

    /// Whether whoever started this process had it ignored, as nohup(1) does.
    pub(crate) fn is_ignored(self) -> bool {
        ignored() >> (self.number - 1) & 1 == 1
    }
}

impl Signals {
    /// Blocks the signals for this thread and all that it starts: called before there are others.
    pub(crate) fn block(signals: &[Signal]) -> io::Result<Self> {
        let mask: SigSet = signals.iter().copied().collect();
        mask.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self(SignalFd::with_flags(&mask, flags)?))
    }

    /// Whether there is one to be read.
    pub(crate) fn is_any_pending(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// The next one that came.
    pub(crate) fn next(&self) -> Option<Received> {
        let info = self.0.read_signal().ok().flatten()?;
        let number = u8::try_from(info.ssi_signo).ok().filter(|number| *number > 0)?;
        Some(Received { number, from_kernel: info.ssi_code == FROM_KERNEL })
    }

    /// The next one that ends this process.
    pub(crate) fn next_that_ends(&self) -> Option<Received> {
        std::iter::from_fn(|| self.next()).find(|signal| signal.ends() && !signal.is_ignored())
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
