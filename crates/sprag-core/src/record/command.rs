//! What goes into the machine and what comes out.

use std::fmt;

use super::Record;
use crate::fence::Fence;
use crate::holder::Holder;
use crate::id::{LeaseId, PartyId, SessionId};
use crate::loss::Loss;
use crate::mode::Mode;
use crate::store::Grant;

/// What is to be done with a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Take the lock, or join the queue.
    Acquire(Box<Acquire>),
    /// Move the lease's end to `ttl_ms` from now; a holder's or a waiter's.
    Renew {
        /// The lease.
        lease: LeaseId,
        /// Its new length.
        ttl_ms: u64,
        /// What it lives by from now on: `None` for as before, `Some(None)` for its TTL alone.
        /// What another session holds is not renewed: it is [`Loss::Adopted`](crate::Loss::Adopted).
        rebind: Option<Option<SessionId>>,
    },
    /// Turn a held lease into another mode.
    Convert {
        /// The lease.
        lease: LeaseId,
        /// The fence that it is believed to have; with another one nothing is converted.
        fence: Fence,
        /// The mode to turn into.
        to: Mode,
        /// Whether to wait for readers to leave.
        queue: bool,
    },
    /// Free what the lease holds, or leave the queue.
    Release {
        /// The lease.
        lease: LeaseId,
    },
    /// Leave the queue or stop waiting for an upgrade; keep what is held.
    Withdraw {
        /// The lease.
        lease: LeaseId,
    },
    /// Break the holders that carry this fence.
    Evict {
        /// The fence seen by the operator.
        fence: Fence,
        /// Who breaks it.
        by: String,
        /// Why.
        reason: String,
    },
    /// Only reap what is dead and promote.
    Reap,
}

/// The data of [`Command::Acquire`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// This acquire call, over all its retries.
    pub lease: LeaseId,
    /// The session the lease dies with; `None` for a detached one.
    pub session: Option<SessionId>,
    /// Who waits, for the deadlock search.
    pub party: PartyId,
    /// How much of the lock is asked for.
    pub mode: Mode,
    /// How long the lease lasts.
    pub ttl_ms: u64,
    /// Whether to join the queue if the lock is held.
    pub queue: bool,
    /// Higher goes first.
    pub priority: i8,
    /// Who asks, for people.
    pub holder: Holder,
    /// Whether nobody renews the lease by itself while it is held.
    pub fixed: bool,
    /// Whether a holder that is in the way may be pushed aside.
    pub steal: Steal,
    /// Whether to replace the stored number of permits.
    pub resize: bool,
    /// Refuse the command if it is applied later than this, on the store's clock: a request that
    /// sat in a queue for long must not take a lock for a caller who gave up.
    pub not_after_ms: Option<u64>,
}

/// Whether a holder that is in the way may be pushed aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Steal {
    /// Never.
    No,
    /// If its last sign of life is at least so old on the store's clock, and two of its renewals
    /// are missing.
    Overdue {
        /// How old.
        after_ms: u64,
    },
    /// If the record still has exactly this version, which the caller has seen unchanged for a
    /// whole TTL. A holder that renewed in between has changed it.
    Seen {
        /// The version seen.
        version: u64,
    },
    /// Always, and past the queue.
    Force,
}

/// What the machine is told about the world.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The store's clock.
    pub now_ms: u64,
    /// Whether that clock ends leases.
    pub expiry: Expiry,
    /// The least number a new fence may have.
    pub fence_floor: u64,
    /// How many waiters a lock may have.
    pub max_waiters: usize,
    /// Whether a session is known to be gone for good. Once `true` it must stay `true`.
    pub is_dead: &'a dyn Fn(SessionId) -> bool,
    /// Whether a lease was seen without a sign of life for so long that it is over. Asked only
    /// where [`Expiry::Observed`] ends leases.
    pub is_silent: &'a dyn Fn(LeaseId) -> bool,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("now_ms", &self.now_ms).finish_non_exhaustive()
    }
}

/// What ends a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// The store's clock: a lease that is not renewed for its TTL is free for anyone.
    Clock,
    /// Only observation: whoever has seen no sign of life for a TTL may take it. For stores
    /// without a clock that all clients share.
    Observed,
}

/// What [`apply`](super::apply) made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The record as it is now.
    pub record: Record,
    /// Whether it differs from before and must be written.
    pub changed: bool,
    /// The answer to the command.
    pub outcome: Outcome,
    /// What happened to other leases on the way, in order: whom to wake, what to log.
    pub events: Vec<Event>,
    /// The priority of the waiter that was let in last, if any was.
    pub let_in: Option<i8>,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Acquire, renew, convert: the lease holds the lock.
    Granted(Grant),
    /// Acquire: the lease is in the queue, behind so many. Renew: it stays there. Convert: it
    /// waits for readers to leave.
    Queued {
        /// How many waiters are ahead.
        ahead: usize,
    },
    /// Acquire without queue, convert without queue: somebody is in the way; nothing changed
    /// for the lease.
    Held,
    /// The lease is not here, or not any more.
    Gone(Loss),
    /// The command cannot be done at all.
    Refused(Refusal),
    /// Release: freed. Withdraw, reap: done.
    Done,
    /// Evict: these were broken; none if nobody carries the fence.
    Evicted(Vec<Holder>),
}

/// Why a command cannot be done at all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The queue has as many waiters as it may.
    QueueFull,
    /// The semaphore has another number of permits.
    LimitMismatch {
        /// The number it has.
        stored: u32,
    },
    /// More permits than there are, or none.
    BadPermits,
    /// The command came too late.
    Late,
    /// There is no way from the mode held to the one asked for.
    BadConversion {
        /// The mode held.
        from: Mode,
    },
    /// No fence is left.
    FenceExhausted,
}

/// What happened to a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// To which lease.
    pub lease: LeaseId,
    /// Of which session.
    pub session: Option<SessionId>,
    /// The fence it has or had; zero for a waiter.
    pub fence: Fence,
    /// How it is or was held, or asked for.
    pub mode: Mode,
    /// Whose lease it is.
    pub holder: Holder,
    /// How long it waited for the grant, or how old its last sign of life is.
    pub after_ms: u64,
}

impl Event {
    /// Whether the lease was taken away from a holder that may believe in it.
    pub const fn is_eviction(&self) -> bool {
        matches!(self.kind, EventKind::Gone(Loss::Stolen { .. } | Loss::Broken { .. }))
    }
}

/// The kinds of [`Event`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A lease got the lock, or its upgrade. If it waited, it wants to be woken.
    Granted,
    /// A holder or waiter is gone.
    Gone(Loss),
}
