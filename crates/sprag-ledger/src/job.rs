//! [`Job`]: one wish that the clerk fulfils, and its answer.

use std::time::Duration;

use sprag_core::audit::AuditEntry;
use sprag_core::clock::Moment;
use sprag_core::record::{Command, Outcome, Record, Steal};
use sprag_core::store::{Conversion, Eviction, Renewal, Request, Takeover};
use sprag_core::{LeaseId, LockName, Result, SessionId};
use tokio::sync::oneshot;

use crate::ledger::Change;
use crate::ref_name::RefName;

/// What is wished for.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    Acquire(Box<Request>),
    Renew(Renewal),
    Convert(Conversion),
    Release(LeaseId),
    Withdraw(LeaseId),
    Evict(Eviction),
    /// Only write this down.
    Note(Vec<AuditEntry>),
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    pub(crate) record: Record,
    /// The references that were in the way of what was to go along.
    pub(crate) in_the_way: Vec<RefName>,
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: LockName,
    pub(crate) wish: Wish,
    /// What has to be swapped along with it, or nothing is.
    pub(crate) along: Vec<Change>,
    /// When it was asked: an answer that is not written comes from a read after that.
    pub(crate) asked: Moment,
    pub(crate) reply: oneshot::Sender<Result<Answer>>,
}

impl Wish {
    /// The lease that it is about.
    pub(crate) fn lease(&self) -> Option<LeaseId> {
        match self {
            Self::Acquire(request) => Some(request.lease),
            Self::Renew(renewal) => Some(renewal.lease),
            Self::Convert(conversion) => Some(conversion.lease),
            Self::Release(lease) | Self::Withdraw(lease) => Some(*lease),
            Self::Evict(_) | Self::Note(_) => None,
        }
    }

    /// How long the lease is good from now on.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        match self {
            Self::Acquire(request) => Some(request.ttl),
            Self::Renew(renewal) => Some(renewal.ttl),
            _ => None,
        }
    }

    /// Whether a request with the same lease may still be on its way when this one is done, and
    /// must not be done afterwards.
    pub(crate) const fn ends(&self) -> bool {
        matches!(self, Self::Release(_) | Self::Withdraw(_))
    }

    /// What the machine is told.
    pub(crate) fn command(&self, session: SessionId, steal: Option<Steal>) -> Command {
        match self {
            Self::Acquire(request) => {
                let mut command = Command::acquire(request, session);
                if let Command::Acquire(acquire) = &mut command
                    && let Takeover::Overdue(_) = request.takeover
                {
                    acquire.steal = steal.unwrap_or(Steal::No);
                }
                command
            }
            Self::Renew(renewal) => Command::renew(renewal, session),
            Self::Convert(conversion) => Command::convert(conversion),
            Self::Release(lease) => Command::Release { lease: *lease },
            Self::Withdraw(lease) => Command::Withdraw { lease: *lease },
            Self::Evict(eviction) => Command::evict(eviction),
            Self::Note(_) => Command::Reap,
        }
    }
}
