//! The lock machine: the whole state of one lock as data, and the one function that changes it.
//!
//! [`apply`] is pure: no clock, no I/O, no randomness. It is the implementation on every store
//! with compare-and-swap, the specification of the stores that do the same natively, and the
//! model that is checked exhaustively.
//!
//! ```text
//!   Record + Command + Context  -- apply -->  Record + Outcome + Events
//!                                              |          |         |
//!                                          written if   answered   wake-ups
//!                                          changed      to caller  and audit
//! ```
//!
//! Each `apply` goes three steps: *reap* what is dead, do what the *command* says, *promote* the
//! waiters who can have the lock now. Who is dead is told by the [`Context`].

mod apply;
mod bridge;
mod command;
pub(crate) mod form;
#[cfg(test)]
mod tests;
pub mod wire;

pub use apply::apply;
pub(crate) use bridge::NAMED_HOLDERS;
pub use command::{
    Acquire, Applied, Command, Context, Event, EventKind, Expiry, Outcome, Refusal, Steal,
};
pub use form::{CURRENT_FORMAT, Corrupt};

use serde::{Deserialize, Serialize};

use crate::fence::Fence;
use crate::holder::Holder;
use crate::id::{LeaseId, PartyId, SessionId};
use crate::loss::Loss;
use crate::mode::Mode;
use crate::mutant::mutant;
use crate::store::Grant;

/// How much earlier one level of priority counts as having arrived.
pub const PRIORITY_BOOST_MS: i64 = 10_000;
/// The priorities a request may have.
pub const PRIORITIES: std::ops::RangeInclusive<i8> = -8..=8;
/// How many lost leases a record remembers, to tell them why.
const MAX_GONE: usize = 8;

/// The whole state of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Grows with every change. Compare-and-swap compares it.
    pub version: u64,
    /// The largest fence given out. Never goes back, and stays when the lock is free.
    pub fence: Fence,
    /// How many waiters ever joined the queue: the next waiter's ticket.
    pub tickets: u64,
    /// How many permits there are, while the lock is used as a semaphore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Who holds the lock.
    pub holders: Vec<Hold>,
    /// Who waits, in the order in which they will be granted.
    pub waiters: Vec<Wait>,
    /// The last leases that were taken away, so that they can be told why.
    pub gone: Vec<Gone>,
    /// Who has the lock next, whoever else comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heir: Option<Heir>,
}

/// The waiter to which the lock is promised, see [`Record::promise`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heir {
    /// Its lease.
    pub lease: LeaseId,
    /// The fence it will have.
    pub fence: Fence,
}

/// One holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The lease.
    pub lease: LeaseId,
    /// The session that the lease dies with; `None` for a detached lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Who counts as the holder in a deadlock.
    pub party: PartyId,
    /// How it is held.
    pub mode: Mode,
    /// The fence of the grant.
    pub fence: Fence,
    /// How long it lasts after `renewed_ms`.
    pub ttl_ms: u64,
    /// When it was granted or renewed last, on the store's clock.
    pub renewed_ms: u64,
    /// Whether it waits to become exclusive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub upgrading: bool,
    /// Whether nobody renews it by itself, so that its silence means nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed: bool,
    /// Whether somebody was pushed aside for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub took_over: bool,
    /// Who it is, for people.
    pub holder: Holder,
}

/// One waiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// The lease.
    pub lease: LeaseId,
    /// The session that the lease dies with; `None` for a detached lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Who counts as waiting in a deadlock.
    pub party: PartyId,
    /// What it asks for.
    pub mode: Mode,
    /// The length of the lease it asks for; also how long it waits after `renewed_ms` without a
    /// sign of life.
    pub ttl_ms: u64,
    /// When it joined or was renewed last, on the store's clock.
    pub renewed_ms: u64,
    /// When it joined.
    pub arrived_ms: u64,
    /// Its priority.
    pub priority: i8,
    /// Its place among those who arrived at the same virtual time.
    pub ticket: u64,
    /// Whether nobody will renew it by itself once it holds the lock.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed: bool,
    /// Who it is, for people.
    pub holder: Holder,
}

/// A lease that was taken away.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gone {
    /// The lease.
    pub lease: LeaseId,
    /// Why.
    pub loss: Loss,
}

impl Hold {
    /// When the lease ends, on the store's clock.
    pub const fn expires_ms(&self) -> u64 {
        self.renewed_ms.saturating_add(self.ttl_ms)
    }

    /// How long it lasts from now on, if nobody renews it. Not longer than after its last renewal,
    /// also if the clock has gone back since. Without a clock that all share it counts from when it
    /// is seen: then that is its whole length.
    fn left_ms(&self, context: &Context<'_>) -> u64 {
        match context.expiry {
            Expiry::Clock => self.expires_ms().saturating_sub(context.now_ms).min(self.ttl_ms),
            Expiry::Observed => self.ttl_ms,
        }
    }

    /// How long it may be silent before it is overdue. It renews every third of its TTL: one that
    /// is merely between two renewals, or late with one, is not.
    fn patience_ms(&self) -> u64 {
        if self.fixed && !mutant!("fixed_lease_is_overdue") {
            self.ttl_ms
        } else {
            self.ttl_ms / 3 * 2
        }
    }

    const fn grant(&self) -> Grant {
        Grant { fence: self.fence, mode: self.mode, took_over: self.took_over }
    }
}

impl Wait {
    /// When the waiter counts as dead, on the store's clock.
    pub const fn expires_ms(&self) -> u64 {
        self.renewed_ms.saturating_add(self.ttl_ms)
    }

    /// What the queue is sorted by: arrival minus priority times boost, then the ticket.
    ///
    /// The key never changes while waiting, so everybody ages at the same speed: a waiter can
    /// only be overtaken by higher priorities that arrive within the boost after it.
    pub fn order(&self) -> (i64, u64) {
        let arrived = i64::try_from(self.arrived_ms).unwrap_or(i64::MAX);
        (arrived.saturating_sub(i64::from(self.priority) * PRIORITY_BOOST_MS), self.ticket)
    }
}

impl Record {
    /// Whether nobody holds the lock and nobody waits.
    pub fn is_free(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }

    /// Promises the lock to the first waiter, and a fence with it: the holder may then tell that
    /// waiter to enter before its release is written, because nobody else can be let in meanwhile.
    /// Whoever arrives later stands behind, whatever its priority. Only force goes past a promise,
    /// and robs the one to whom it was made as if it held the lock.
    ///
    /// There is a promise only from one exclusive holder to another, and to none of a lower priority
    /// than the holder came with: where priorities are used, the next important one may be on its
    /// way. Returns whether there is a new promise. `floor` is as in [`Context::fence_floor`].
    pub fn promise(&mut self, floor: u64, holder_priority: i8) -> bool {
        let [Hold { mode: Mode::Exclusive, .. }] = self.holders[..] else { return false };
        let Some(first) = self.waiters.first() else { return false };
        let alike = first.mode == Mode::Exclusive && first.priority >= holder_priority;
        if self.heir.is_some() || !alike || first.session.is_none() {
            return false;
        }
        let Some(fence) = self.fence.after(floor) else { return false };
        self.fence = fence;
        self.heir = Some(Heir { lease: first.lease, fence });
        true
    }

    /// Why the lease is not here: remembered, or `StateLost`.
    pub fn loss_of(&self, lease: LeaseId) -> Loss {
        self.gone_reason(lease).unwrap_or(Loss::StateLost)
    }

    fn gone_reason(&self, lease: LeaseId) -> Option<Loss> {
        self.gone.iter().find(|gone| gone.lease == lease).map(|gone| gone.loss.clone())
    }

    /// Checks what is true of every record that [`apply`] made.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        let permits: u64 = self.holders.iter().map(|hold| permits_of(hold.mode)).sum();
        let exclusive = self.holders.iter().any(|hold| hold.mode == Mode::Exclusive);
        let upgradable = self.holders.iter().filter(|hold| hold.mode == Mode::Upgradable).count();
        let leases: Vec<_> = self.holders.iter().map(|hold| hold.lease).collect();
        let waiting: Vec<_> = self.waiters.iter().map(|wait| wait.lease).collect();
        let rules = [
            (!exclusive || self.holders.len() == 1, "an exclusive holder is not alone"),
            (upgradable <= 1, "two upgradable holders"),
            (permits == 0 || self.holders.iter().all(|h| permits_of(h.mode) > 0), "mixed modes"),
            (self.holders.iter().all(|hold| hold.fence <= self.fence), "a fence above the last"),
            (self.waiters.is_sorted_by_key(Wait::order), "the queue is out of order"),
            (
                self.waiters.iter().all(|wait| wait.ticket < self.tickets),
                "a ticket from the future",
            ),
            (all_different(&leases) && all_different(&waiting), "one lease twice"),
            (!waiting.iter().any(|lease| leases.contains(lease)), "a holder waits"),
            (self.gone.len() <= MAX_GONE, "too many lost leases kept"),
            (self.heir.is_none_or(|heir| heir.fence <= self.fence), "a promise above the last"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, broken)) => Err((*broken).to_owned()),
            None => Ok(()),
        }
    }
}

fn permits_of(mode: Mode) -> u64 {
    match mode {
        Mode::Permits { count, .. } => u64::from(count),
        _ => 0,
    }
}

fn all_different<T: Ord + Copy>(items: &[T]) -> bool {
    let mut sorted = items.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}
