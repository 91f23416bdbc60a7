//! Between the machine and [`Store`](crate::Store): what every record-based store would
//! otherwise write again.

use std::time::Duration;

use super::{Acquire, Command, Context, Expiry, Hold, Outcome, Record, Refusal, Steal};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::{LeaseId, SessionId};
use crate::mode::Mode;
use crate::name::LockName;
use crate::store::{
    Attempt, Bind, Contention, Conversion, Converted, Evicted, Eviction, Released, Renewal,
    Renewed, Request, Takeover,
};
use crate::view::{HolderView, LockView, WaiterView};

/// How many holders an answer names; the rest is seen by inspecting.
pub(crate) const NAMED_HOLDERS: usize = 8;

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Command {
    /// The command that a request asks for, on behalf of this process's session.
    pub fn acquire(request: &Request, session: SessionId) -> Self {
        Self::Acquire(Box::new(Acquire {
            lease: request.lease,
            session: (!request.detached).then_some(session),
            party: request.party,
            mode: request.mode,
            ttl_ms: millis(request.ttl),
            queue: request.queue,
            priority: request.priority,
            holder: request.holder.clone(),
            fixed: request.fixed || request.detached,
            steal: match request.takeover {
                Takeover::No => Steal::No,
                Takeover::Overdue(after) => Steal::Overdue { after_ms: millis(after) },
                Takeover::Force => Steal::Force,
            },
            resize: request.resize,
            not_after_ms: None,
        }))
    }

    /// The command that a renewal asks for, on behalf of this process's session.
    pub fn renew(renewal: &Renewal, session: SessionId) -> Self {
        let rebind = match renewal.bind {
            Bind::Keep => None,
            Bind::Detach => Some(None),
            Bind::Attach => Some(Some(session)),
        };
        Self::Renew { lease: renewal.lease, ttl_ms: millis(renewal.ttl), rebind }
    }

    /// The command that a conversion asks for.
    pub fn convert(conversion: &Conversion) -> Self {
        let Conversion { lease, fence, to, queue, .. } = *conversion;
        Self::Convert { lease, fence, to, queue }
    }

    /// The command that an eviction asks for.
    pub fn evict(eviction: &Eviction) -> Self {
        Self::Evict {
            fence: eviction.fence,
            by: eviction.by.clone(),
            reason: eviction.reason.clone(),
        }
    }
}

impl Outcome {
    /// The answer to [`Store::try_acquire`](crate::Store::try_acquire).
    ///
    /// # Errors
    ///
    /// What the machine refuses, with the fix.
    pub fn into_attempt(
        self,
        record: &Record,
        request: &Request,
        context: &Context<'_>,
    ) -> Result<Attempt> {
        let contention = |ahead| Contention {
            ahead,
            holders: record
                .holders
                .iter()
                .take(NAMED_HOLDERS)
                .map(|hold| hold.view(context))
                .collect(),
        };
        match self {
            Self::Granted(grant) => Ok(Attempt::Granted(grant)),
            Self::Queued { ahead } => Ok(Attempt::Queued(contention(ahead))),
            Self::Gone(loss) => Ok(Attempt::Gone(loss)),
            Self::Refused(refusal) => {
                Err(refusal.into_error(Operation::Acquire, request.mode, context).on(&request.name))
            }
            _ => Ok(Attempt::Held(contention(record.waiters.len()))),
        }
    }

    /// The answer for one lease in [`Store::renew`](crate::Store::renew).
    pub fn into_renewed(self, record: &Record, renewal: &Renewal) -> Renewed {
        match self {
            Self::Granted(grant) => Renewed::Held(grant),
            Self::Queued { .. } => Renewed::Waiting,
            Self::Gone(loss) => Renewed::Lost(loss),
            _ => Renewed::Lost(record.loss_of(renewal.lease)),
        }
    }

    /// The answer to [`Store::convert`](crate::Store::convert).
    ///
    /// # Errors
    ///
    /// If there is no way from the mode held to the one asked for.
    pub fn into_converted(
        self,
        conversion: &Conversion,
        context: &Context<'_>,
    ) -> Result<Converted> {
        match self {
            Self::Granted(grant) => Ok(Converted::Done(grant)),
            Self::Queued { .. } => Ok(Converted::Waiting),
            Self::Gone(loss) => Ok(Converted::Lost(loss)),
            Self::Refused(refusal) => Err(refusal
                .into_error(Operation::Convert, conversion.to, context)
                .on(&conversion.name)),
            _ => Ok(Converted::Blocked),
        }
    }

    /// The answer to [`Store::release`](crate::Store::release).
    pub fn into_released(self) -> Released {
        match self {
            Self::Gone(loss) => Released::AlreadyGone(loss),
            _ => Released::Freed,
        }
    }

    /// The answer to [`Store::evict`](crate::Store::evict).
    pub fn into_evicted(self) -> Evicted {
        match self {
            Self::Evicted(broken) if !broken.is_empty() => Evicted::Broken(broken),
            _ => Evicted::NotHeld,
        }
    }
}

impl Refusal {
    fn into_error(self, operation: Operation, mode: Mode, context: &Context<'_>) -> Error {
        let bad = |message: String| Error::bad_input(operation, message);
        match self {
            Self::QueueFull => Error::new(
                ErrorKind::QueueFull,
                operation,
                format!("{} waiters are queued already, no more are taken", context.max_waiters),
            ),
            Self::LimitMismatch { stored } => bad(format!(
                "asked for {mode}, but the semaphore in use has {stored} permits: ask for \
                 {stored}, or resize it"
            )),
            Self::BadPermits => {
                bad(format!("{mode} cannot be: take at least 1 and at most as many as there are"))
            }
            Self::Late => Error::new(
                ErrorKind::Unavailable,
                operation,
                "the request reached the store too late and was not done",
            ),
            Self::BadConversion { from } => {
                bad(format!("a lock held as {from} cannot be turned into {mode}"))
            }
            Self::FenceExhausted => {
                Error::new(ErrorKind::Corrupt, operation, "no fence below 2^53 is left")
            }
        }
    }
}

impl Hold {
    fn view(&self, context: &Context<'_>) -> HolderView {
        let remaining = Duration::from_millis(self.expires_ms().saturating_sub(context.now_ms));
        HolderView {
            lease: self.lease,
            party: self.party,
            mode: self.mode,
            fence: self.fence,
            holder: self.holder.clone(),
            ttl: Duration::from_millis(self.ttl_ms),
            remaining: (context.expiry == Expiry::Clock).then_some(remaining),
            upgrading: self.upgrading,
            detached: self.session.is_none(),
        }
    }
}

impl Record {
    /// The record as it looks from outside. What is dead by now is left out.
    pub fn view(&self, name: &LockName, context: &Context<'_>) -> LockView {
        let now = context.now_ms;
        let dead = |session: Option<SessionId>| session.is_some_and(|id| (context.is_dead)(id));
        let over = |lease: LeaseId, expires_ms: u64| match context.expiry {
            Expiry::Clock => expires_ms <= now,
            Expiry::Observed => (context.is_silent)(lease),
        };
        let gone = |lease, expires_ms, session| over(lease, expires_ms) || dead(session);
        let holders = self.holders.iter().filter(|h| !gone(h.lease, h.expires_ms(), h.session));
        let waiters = self.waiters.iter().filter(|w| !gone(w.lease, w.expires_ms(), w.session));
        // A fence that is promised is not given out yet.
        let given_out = self.holders.iter().map(|hold| hold.fence).max();
        LockView {
            name: name.clone(),
            fence: self.heir.and(given_out).unwrap_or(self.fence),
            limit: self.limit,
            holders: holders.map(|hold| hold.view(context)).collect(),
            waiters: waiters
                .map(|wait| WaiterView {
                    lease: wait.lease,
                    party: wait.party,
                    mode: wait.mode,
                    holder: wait.holder.clone(),
                    priority: wait.priority,
                    ticket: wait.ticket,
                    waiting: Duration::from_millis(now.saturating_sub(wait.arrived_ms)),
                    arrived_ms: wait.arrived_ms,
                })
                .collect(),
        }
    }
}
