//! [`LockView`]: what a lock looks like from outside, for people, tools and the deadlock search.

use std::time::Duration;

use crate::fence::Fence;
use crate::holder::Holder;
use crate::id::{LeaseId, PartyId};
use crate::mode::Mode;
use crate::name::LockName;

/// A snapshot of one lock. It may be out of date when it is read and never decides anything.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockView {
    /// The lock.
    pub name: LockName,
    /// The largest fence given out.
    pub fence: Fence,
    /// How many permits there are, where the lock is a semaphore.
    pub limit: Option<u32>,
    /// Who holds it; more than one for shared locks and permits.
    pub holders: Vec<HolderView>,
    /// Who waits, in the order in which they will be granted.
    pub waiters: Vec<WaiterView>,
}

impl LockView {
    /// A lock that nobody has touched.
    pub const fn free(name: LockName) -> Self {
        Self { name, fence: Fence::ZERO, limit: None, holders: Vec::new(), waiters: Vec::new() }
    }

    /// Whether anybody waits for it, be it for an upgrade.
    pub fn is_contended(&self) -> bool {
        !self.waiters.is_empty() || self.holders.iter().any(|holder| holder.upgrading)
    }

    /// Whether anybody holds it.
    pub fn is_locked(&self) -> bool {
        !self.holders.is_empty()
    }
}

/// One holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderView {
    /// The holder's lease.
    pub lease: LeaseId,
    /// Who counts as blocked by it.
    pub party: PartyId,
    /// How it is held.
    pub mode: Mode,
    /// The grant's fence.
    pub fence: Fence,
    /// Who it is.
    pub holder: Holder,
    /// How long the lease was asked for.
    pub ttl: Duration,
    /// How much of the lease is left by the store's clock; `None` where the store has no clock.
    pub remaining: Option<Duration>,
    /// Whether it waits to become exclusive.
    pub upgrading: bool,
    /// Whether it lives by its TTL alone.
    pub detached: bool,
}

impl HolderView {
    /// Somebody who has the lock without knowing sprag: no lease, no fence, no end.
    pub const fn stranger(holder: Holder) -> Self {
        Self {
            lease: LeaseId::from_u128(0),
            party: PartyId::from_u128(0),
            mode: Mode::Exclusive,
            fence: Fence::ZERO,
            holder,
            ttl: Duration::ZERO,
            remaining: None,
            upgrading: false,
            detached: false,
        }
    }
}

/// One waiter for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterView {
    /// The waiter's lease.
    pub lease: LeaseId,
    /// Who counts as waiting.
    pub party: PartyId,
    /// What it asks for.
    pub mode: Mode,
    /// Who it is.
    pub holder: Holder,
    /// Its priority.
    pub priority: i8,
    /// Grows with each waiter that joins this lock's queue: the larger, the younger.
    pub ticket: u64,
    /// How long it has been waiting by the store's clock.
    pub waiting: Duration,
    /// When it began to wait, in milliseconds by the store's clock: the same for everybody, whenever
    /// they look.
    pub arrived_ms: u64,
}
