//! Commands as the scripts read them, and what the scripts answer.

use serde::{Deserialize, Serialize};
use sprag_core::record::{
    Acquire, Command, Context, Expiry, Hold, Outcome, Record, Refusal, Steal, Wait,
};
use sprag_core::store::Grant;
use sprag_core::{Fence, Holder, LeaseId, Loss, Mode, PartyId, SessionId};

/// A [`Command`] in the form that `scripts/lock.lua` reads.
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

/// Writes a command for the script.
pub(crate) fn write(command: &Command, max_waiters: usize) -> String {
    let written = match command {
        Command::Acquire(acquire) => acquire_of(acquire, max_waiters),
        Command::Renew { lease, ttl_ms, rebind } => Written::Renew {
            lease: *lease,
            ttl_ms: *ttl_ms,
            rebind: rebind.map(|to| to.map_or(Rebind::Nothing(false), Rebind::To)),
        },
        Command::Convert { lease, to, queue } => {
            Written::Convert { lease: *lease, to: *to, queue: *queue }
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

/// The answer of `scripts/lock.lua`.
#[derive(Debug, Deserialize)]
pub(crate) struct Reply {
    pub(crate) now_us: u64,
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

/// The answer as the machine would have given it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) now_us: u64,
    pub(crate) outcome: Outcome,
    pub(crate) waiting: usize,
    /// Only who is in the way.
    pub(crate) record: Record,
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

/// The answer of `scripts/look.lua`.
#[derive(Debug, Deserialize)]
pub(crate) struct Looked {
    pub(crate) now_us: u64,
    fence: Fence,
    limit: Option<u32>,
    holders: Vec<Hold>,
    waiters: Vec<Wait>,
    /// Who has the plain key and is none of us.
    foreign: Option<Hold>,
}

impl Looked {
    pub(crate) fn into_record(self) -> Record {
        let (fence, limit, waiters) = (self.fence, self.limit, self.waiters);
        let holders = self.holders.into_iter().chain(self.foreign).collect();
        Record { fence, limit, holders, waiters, ..Record::default() }
    }
}

/// What the machine is told, on the server's clock.
pub(crate) fn context(now_us: u64, max_waiters: usize) -> Context<'static> {
    Context {
        now_ms: now_us / 1000,
        expiry: Expiry::Clock,
        fence_floor: now_us,
        max_waiters,
        // Redis does not know who is alive: leases and waiters live by their TTL.
        is_dead: &|_| false,
    }
}
