//! How a store that has the machine as a program of its own is asked: commands as JSON, and what
//! it answers.

use serde::{Deserialize, Serialize};

use super::command::{
    Acquire, Command, Context, Event, EventKind, Expiry, Outcome, Refusal, Steal,
};
use super::{Corrupt, Hold, Record};
use crate::fence::Fence;
use crate::holder::Holder;
use crate::id::{LeaseId, PartyId, SessionId};
use crate::loss::Loss;
use crate::mode::Mode;
use crate::store::Grant;

/// A [`Command`] as such a program reads it.
#[derive(Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Written<'a> {
    Acquire {
        lease: LeaseId,
        #[serde(skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
        party: PartyId,
        mode: Mode,
        ttl_ms: u64,
        queue: bool,
        priority: i8,
        holder: &'a Holder,
        fixed: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        steal: Option<WrittenSteal>,
        resize: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        not_after_ms: Option<u64>,
        max_waiters: usize,
    },
    Renew {
        lease: LeaseId,
        ttl_ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        rebind: Option<Rebind>,
    },
    Convert {
        lease: LeaseId,
        fence: Fence,
        to: Mode,
        queue: bool,
    },
    Release {
        lease: LeaseId,
    },
    Withdraw {
        lease: LeaseId,
    },
    Evict {
        fence: Fence,
        by: &'a str,
        reason: &'a str,
    },
    Reap,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum WrittenSteal {
    Overdue(u64),
    Seen(u64),
    Force,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Rebind {
    To(SessionId),
    /// Written as `false`.
    Nothing(bool),
}

/// Writes a command for such a program.
pub fn write(command: &Command, max_waiters: usize) -> String {
    let written = match command {
        Command::Acquire(acquire) => acquire_of(acquire, max_waiters),
        Command::Renew { lease, ttl_ms, rebind } => Written::Renew {
            lease: *lease,
            ttl_ms: *ttl_ms,
            rebind: rebind.map(|to| to.map_or(Rebind::Nothing(false), Rebind::To)),
        },
        Command::Convert { lease, fence, to, queue } => {
            Written::Convert { lease: *lease, fence: *fence, to: *to, queue: *queue }
        }
        Command::Release { lease } => Written::Release { lease: *lease },
        Command::Withdraw { lease } => Written::Withdraw { lease: *lease },
        Command::Evict { fence, by, reason } => Written::Evict { fence: *fence, by, reason },
        Command::Reap => Written::Reap,
    };
    // Only maps with non-string keys and failing writers make this fail; there are none.
    serde_json::to_string(&written).expect("a command is always writable as JSON")
}

fn acquire_of(acquire: &Acquire, max_waiters: usize) -> Written<'_> {
    Written::Acquire {
        lease: acquire.lease,
        session: acquire.session,
        party: acquire.party,
        mode: acquire.mode,
        ttl_ms: acquire.ttl_ms,
        queue: acquire.queue,
        priority: acquire.priority,
        holder: &acquire.holder,
        fixed: acquire.fixed,
        steal: match acquire.steal {
            Steal::No => None,
            Steal::Overdue { after_ms } => Some(WrittenSteal::Overdue(after_ms)),
            Steal::Seen { version } => Some(WrittenSteal::Seen(version)),
            Steal::Force => Some(WrittenSteal::Force),
        },
        resize: acquire.resize,
        not_after_ms: acquire.not_after_ms,
        max_waiters,
    }
}

#[derive(Debug, Deserialize)]
struct Reply {
    now_us: u64,
    outcome: Said,
    /// How many wait, where the lease has to.
    #[serde(default)]
    waiting: usize,
    /// Who is in the way, where somebody is.
    #[serde(default)]
    holders: Vec<Hold>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Granted { fence: Fence, mode: Mode, took_over: bool },
    Queued { ahead: usize },
    Held,
    Gone(Loss),
    Refused(No),
    Done,
    Evicted(Vec<Holder>),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum No {
    QueueFull,
    LimitMismatch(u32),
    BadPermits,
    Late,
    BadConversion(Mode),
    FenceExhausted,
}

/// What such a program answers, as the machine would have.
#[derive(Debug)]
pub struct Answer {
    /// The store's clock, in microseconds since 1970.
    pub now_us: u64,
    /// The answer to the command.
    pub outcome: Outcome,
    /// How many wait, where the lease has to.
    pub waiting: usize,
    /// Only who is in the way.
    pub record: Record,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        let outcome = match reply.outcome {
            Said::Granted { fence, mode, took_over } => {
                Outcome::Granted(Grant { fence, mode, took_over })
            }
            Said::Queued { ahead } => Outcome::Queued { ahead },
            Said::Held => Outcome::Held,
            Said::Gone(loss) => Outcome::Gone(loss),
            Said::Refused(no) => Outcome::Refused(match no {
                No::QueueFull => Refusal::QueueFull,
                No::LimitMismatch(stored) => Refusal::LimitMismatch { stored },
                No::BadPermits => Refusal::BadPermits,
                No::Late => Refusal::Late,
                No::BadConversion(from) => Refusal::BadConversion { from },
                No::FenceExhausted => Refusal::FenceExhausted,
            }),
            Said::Done => Outcome::Done,
            Said::Evicted(broken) => Outcome::Evicted(broken),
        };
        let record = Record { holders: reply.holders, ..Record::default() };
        Self { now_us: reply.now_us, outcome, waiting: reply.waiting, record }
    }
}

impl Answer {
    /// Reads an answer.
    ///
    /// # Errors
    ///
    /// [`Corrupt`] if it is none.
    pub fn read(text: &str) -> Result<Self, Corrupt> {
        let reply = serde_json::from_str::<Reply>(text);
        reply.map(Self::from).map_err(|e| Corrupt::new(format!("an answer is damaged: {e}")))
    }

    /// What the machine was told about the world, where nobody but the clock ends a lease.
    pub const fn context(&self, max_waiters: usize) -> Context<'static> {
        clock_only(self.now_us, max_waiters)
    }
}

/// What the machine is told where the store does not know who is alive: leases and waiters live
/// by their TTL, and fences are at least the time.
pub const fn clock_only(now_us: u64, max_waiters: usize) -> Context<'static> {
    Context {
        now_ms: now_us / 1000,
        expiry: Expiry::Clock,
        fence_floor: now_us,
        max_waiters,
        is_dead: &|_| false,
        is_silent: &|_| false,
    }
}

/// An [`Event`] as such a program writes it.
#[derive(Deserialize)]
struct WrittenEvent {
    kind: WrittenKind,
    lease: LeaseId,
    session: Option<SessionId>,
    fence: Fence,
    mode: Mode,
    holder: Holder,
    after_ms: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum WrittenKind {
    Granted,
    Gone(Loss),
}

impl Event {
    /// Reads an event that a program wrote.
    ///
    /// # Errors
    ///
    /// [`Corrupt`] if it is none.
    pub fn read(text: &str) -> Result<Self, Corrupt> {
        let written = serde_json::from_str::<WrittenEvent>(text);
        let written = written.map_err(|e| Corrupt::new(format!("an event is damaged: {e}")))?;
        Ok(Self {
            kind: match written.kind {
                WrittenKind::Granted => EventKind::Granted,
                WrittenKind::Gone(loss) => EventKind::Gone(loss),
            },
            lease: written.lease,
            session: written.session,
            fence: written.fence,
            mode: written.mode,
            holder: written.holder,
            after_ms: written.after_ms,
        })
    }
}
