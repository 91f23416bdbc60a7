//! [`Event`]: one thing that a process did or learned.

use serde::{Deserialize, Serialize};
use sprag_core::{Fence, LeaseId, LockName, Mode};

/// One thing that a process did or learned; one line of a history.
///
/// Times are nanoseconds of CLOCK_BOOTTIME, the same for all processes of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The process, unique in the history.
    pub proc: String,
    /// The acquire call, by its lease.
    pub attempt: LeaseId,
    /// The lock.
    pub lock: LockName,
    /// The mode asked for, held, or turned into.
    pub mode: Mode,
    /// What it did or learned.
    pub op: Op,
    /// The fence of the grant, or the one that a write carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// Before the request was sent. For things that were not asked for, such as a loss, the
    /// moment they were learned.
    pub t_send_ns: u64,
    /// After the answer came.
    pub t_recv_ns: u64,
    /// Until when the holder now believes to hold the lock; none if for as long as it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until_ns: Option<u64>,
    /// How it ended, for releases and writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The priority of a request. One that goes past the queue by force has `i8::MAX`.
    #[serde(default, skip_serializing_if = "is_normal")]
    pub priority: i8,
    /// The counter after a write, or as read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// What the store said about the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
const fn is_normal(priority: &i8) -> bool {
    *priority == 0
}

/// What a process did or learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// An acquire call sent its first request.
    Request,
    /// The store answered that the lease waits in the queue. Repeated when the lease may have
    /// lost its place and joined again.
    Queued,
    /// The store answered that the lease holds the lock.
    Granted,
    /// The lease was upgraded or downgraded to `mode`.
    Converted,
    /// The lease was renewed.
    Renewed,
    /// The holder is about to send its release: from now on it does not believe to hold the lock, even
    /// if it is killed before the answer comes.
    Releasing,
    /// The lease was released; see [`Outcome`].
    Released,
    /// The holder was told that it has lost the lock.
    Lost,
    /// The acquire call ended without a grant: given up, refused, timed out.
    Withdrawn,
    /// The holder entered its critical section.
    Entered,
    /// The holder left its critical section.
    Left,
    /// A write to the resource that the lock guards; see [`Outcome`].
    Wrote,
    /// The counter in the resource was read after all writes.
    Counted,
    /// An operator broke the holders with this fence.
    Evicted,
    /// Somebody asked the store about the lock; see [`Seen`].
    Inspected,
    /// The same, after everybody was done.
    Final,
}

impl Op {
    /// The operation as a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Queued => "queued",
            Self::Granted => "granted",
            Self::Converted => "converted",
            Self::Renewed => "renewed",
            Self::Releasing => "releasing",
            Self::Released => "released",
            Self::Lost => "lost",
            Self::Withdrawn => "withdrawn",
            Self::Entered => "entered",
            Self::Left => "left",
            Self::Wrote => "wrote",
            Self::Counted => "counted",
            Self::Evicted => "evicted",
            Self::Inspected => "inspected",
            Self::Final => "final",
        }
    }
}

/// How a release or a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The release freed the lock.
    Freed,
    /// The lock had been lost before the release.
    AlreadyLost,
    /// Another release of the same lease was faster.
    AlreadyReleased,
    /// The resource took the write.
    Accepted,
    /// The resource refused the write because of its fence.
    Rejected,
    /// No answer came.
    Unknown,
}

/// What the store said about a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// Who holds it.
    pub holders: Vec<LeaseId>,
    /// Who waits for it.
    pub waiters: Vec<LeaseId>,
}

impl Event {
    /// An event at time zero with nothing more said about it.
    pub fn new(
        proc: impl Into<String>,
        attempt: LeaseId,
        lock: &LockName,
        mode: Mode,
        op: Op,
    ) -> Self {
        Self {
            proc: proc.into(),
            attempt,
            lock: lock.clone(),
            mode,
            op,
            fence: None,
            t_send_ns: 0,
            t_recv_ns: 0,
            valid_until_ns: None,
            outcome: None,
            priority: 0,
            value: None,
            seen: None,
        }
    }

    /// Sets the times before the request was sent and after its answer came.
    #[must_use]
    pub const fn at(mut self, t_send_ns: u64, t_recv_ns: u64) -> Self {
        self.t_send_ns = t_send_ns;
        self.t_recv_ns = t_recv_ns;
        self
    }

    /// Sets the fence.
    #[must_use]
    pub const fn fence(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }

    /// Sets the end of the holder's belief.
    #[must_use]
    pub const fn valid_until(mut self, ns: u64) -> Self {
        self.valid_until_ns = Some(ns);
        self
    }

    /// Sets the outcome.
    #[must_use]
    pub const fn outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = Some(outcome);
        self
    }

    /// Sets the priority.
    #[must_use]
    pub const fn priority(mut self, priority: i8) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the counter's value.
    #[must_use]
    pub const fn value(mut self, value: u64) -> Self {
        self.value = Some(value);
        self
    }

    /// Sets what the store said.
    #[must_use]
    pub fn seen(mut self, holders: Vec<LeaseId>, waiters: Vec<LeaseId>) -> Self {
        self.seen = Some(Seen { holders, waiters });
        self
    }
}
