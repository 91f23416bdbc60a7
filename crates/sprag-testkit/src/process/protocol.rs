//! [`Command`] and [`Reply`]: what is said between a case and its processes, one line each.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sprag_core::{Error, ErrorKind, Fence, LeaseId, LockName, Loss, Mode, Ticket};

use super::churn::Tally;

/// One line to the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Repeated in the reply.
    pub id: u64,
    /// What to do.
    pub command: Command,
}

/// One line from the process. The first has the number 0 and says [`Answer::Ready`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// The number of the order.
    pub id: u64,
    /// What came of it.
    pub answer: Answer,
}

/// What a process can be asked to do. Guards are kept by the name of their lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Acquires a lock: [`Answer::Granted`].
    Acquire(Ask),
    /// Tries once: [`Answer::Granted`] or [`Answer::Held`].
    Try(Ask),
    /// Acquires several locks, enters the guarded file and releases them, many times over:
    /// [`Answer::Count`] with the number of rounds.
    Rounds {
        /// The locks, in the order in which they are asked for.
        locks: Vec<LockName>,
        /// How many times.
        rounds: u32,
        /// Incremented once in each round, without a look at the fence.
        file: PathBuf,
    },
    /// Takes over a lease: [`Answer::Granted`].
    Adopt(Ticket),
    /// Releases: [`Answer::Released`].
    Release(LockName),
    /// Drops the guard: [`Answer::Done`].
    Drop(LockName),
    /// Makes the lease last so many milliseconds: [`Answer::Done`].
    Extend(LockName, u64),
    /// Turns the guard into a ticket: [`Answer::Ticket`].
    Detach(LockName),
    /// Looks at the guard: [`Answer::Held`] or [`Answer::Lost`].
    State(LockName),
    /// Waits until the lock is lost: [`Answer::Lost`].
    AwaitLoss(LockName),
    /// Reads the guarded file under the lock: [`Answer::Count`].
    Read {
        /// The lock that guards it.
        lock: LockName,
        /// The file.
        file: PathBuf,
        /// Whether the file looks at the fence.
        checked: bool,
    },
    /// Writes one more than was read, without asking whether the lock is still held:
    /// [`Answer::Wrote`].
    Write {
        /// The lock that guards it.
        lock: LockName,
        /// The file.
        file: PathBuf,
        /// Whether the file looks at the fence.
        checked: bool,
    },
    /// Forks without exec. The child tries to use the guard and the store:
    /// [`Answer::Count`] with the number of things that it was able to do.
    Fork(LockName),
    /// Locks a file with flock(2) until the process ends: [`Answer::Done`].
    LockFile(PathBuf),
    /// Unlocks the files locked before: [`Answer::Done`].
    UnlockFiles,
    /// Ends the process in order: guards are dropped. There is no answer.
    Exit,
    /// Ends the process by SIGABRT, as a panic with `panic=abort` does. There is no answer.
    Abort,
}

/// A request for a lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The lock.
    pub lock: LockName,
    /// How it is asked for.
    pub mode: Mode,
    /// The length of the lease.
    pub ttl_ms: u64,
    /// How long to wait; none for ever.
    pub wait_ms: Option<u64>,
    /// Whether the lease is renewed by itself.
    pub renew: bool,
    /// Higher goes first.
    pub priority: i8,
    /// Whether the lease outlives its process.
    pub detached: bool,
}

impl Ask {
    /// Asks for a lock exclusively, to be renewed, and waits for at most a minute.
    pub const fn new(lock: LockName, ttl: Duration) -> Self {
        let mode = Mode::Exclusive;
        let wait_ms = Some(60_000);
        let ttl_ms = millis(ttl);
        Self { lock, mode, ttl_ms, wait_ms, renew: true, priority: 0, detached: false }
    }

    /// Waits so long.
    #[must_use]
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait_ms = Some(millis(wait));
        self
    }

    /// Does not renew.
    #[must_use]
    pub const fn no_renewal(mut self) -> Self {
        self.renew = false;
        self
    }

    /// Lets the lease outlive its process.
    #[must_use]
    pub const fn detached(mut self) -> Self {
        self.detached = true;
        self
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the times of tests fit")]
const fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

/// What came of a [`Command`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// The store is open; this is the process's id, as the process sees it.
    Ready(u32),
    /// It is done.
    Done,
    /// The lock is held by this process now.
    Granted(Granted),
    /// The lock is held; by whom depends on the question.
    Held,
    /// The lock is lost.
    Lost(Loss),
    /// Released; with a reason if the lock had been lost before.
    Released(Option<Loss>),
    /// The lease without its process.
    Ticket(Ticket),
    /// What a counter says.
    Count(u64),
    /// What the guarded file said to a write.
    Wrote {
        /// Whether it was taken.
        accepted: bool,
        /// The fence it carried.
        fence: Fence,
    },
    /// What was done in [churn](super::churn()).
    Tally(Tally),
    /// It failed.
    Failed(Trouble),
}

/// A grant, with times in nanoseconds of CLOCK_BOOTTIME.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Granted {
    /// The lease.
    pub lease: LeaseId,
    /// The fence.
    pub fence: Fence,
    /// Before the first request was sent.
    pub t_send_ns: u64,
    /// After the lock was entered.
    pub t_recv_ns: u64,
    /// Until when the holder believes in it.
    pub valid_until_ns: u64,
}

/// An error, as far as a case wants to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trouble {
    /// What kind of error.
    pub kind: TroubleKind,
    /// What it says.
    pub message: String,
    /// How long the call took, in milliseconds.
    pub after_ms: u64,
}

/// The kinds of errors that cases tell apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TroubleKind {
    /// Busy or unavailable.
    Unavailable,
    /// The waiting time was used up.
    Timeout,
    /// A deadlock was found and this process gave up.
    Deadlock,
    /// The lock was lost.
    Lost(Loss),
    /// Anything else.
    Other,
}

impl Trouble {
    /// Describes an error of a call that took `after`.
    pub fn new(error: &Error, after: Duration) -> Self {
        let kind = match error.kind() {
            ErrorKind::Unavailable | ErrorKind::Busy | ErrorKind::RateLimited => {
                TroubleKind::Unavailable
            }
            ErrorKind::Timeout => TroubleKind::Timeout,
            ErrorKind::Deadlock => TroubleKind::Deadlock,
            ErrorKind::Lost(loss) => TroubleKind::Lost(loss.clone()),
            _ => TroubleKind::Other,
        };
        Self { kind, message: error.to_string(), after_ms: millis(after) }
    }
}
