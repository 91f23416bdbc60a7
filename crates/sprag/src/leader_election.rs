//! [`LeaderElection`]: one leader, on top of any [`DistributedLock`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sprag_core::{Fence, LockGuard, Result};

use crate::DistributedLock;

/// A candidate for the leadership of a cluster: it tries, maintains and resigns by hand.
///
/// [`Election`](crate::Election) does the same with automatic renewal and waiting.
///
/// # Examples
///
/// ```
/// # futures::executor::block_on(async {
/// use sprag::{LeaderElection, Locks};
/// use std::sync::Arc;
///
/// let locks = Arc::new(Locks::open("memory:")?);
/// let mut one = LeaderElection::new(locks.clone(), "indexers");
/// let mut two = LeaderElection::new(locks, "indexers");
/// assert!(one.try_become_leader().await?);
/// assert!(!two.try_become_leader().await?);
/// one.resign().await?;
/// assert!(two.try_become_leader().await? && !one.is_leader());
/// # Ok::<(), sprag::Error>(()) }).unwrap();
/// ```
pub struct LeaderElection {
    lock: Arc<dyn DistributedLock>,
    resource: String,
    ttl: Duration,
    guard: Option<LockGuard>,
}

impl LeaderElection {
    /// A candidate in the cluster `cluster_id`: the lock is `leader:{cluster_id}`, its TTL 30 s.
    pub fn new(lock: Arc<dyn DistributedLock>, cluster_id: &str) -> Self {
        Self {
            lock,
            resource: format!("leader:{cluster_id}"),
            ttl: Duration::from_secs(30),
            guard: None,
        }
    }

    /// How long leadership lasts without being maintained.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Becomes the leader if there is none; `true` if this is the leader now.
    ///
    /// # Errors
    ///
    /// As [`DistributedLock::try_acquire`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a future dropped half-way does not lead.
    pub async fn try_become_leader(&mut self) -> Result<bool> {
        if self.is_leader() {
            return Ok(true);
        }
        // A term that is over is given back; the new one has a larger epoch.
        self.guard = None;
        self.guard = self.lock.try_acquire(&self.resource, self.ttl).await?;
        Ok(self.is_leader())
    }

    /// Whether this is the leader *now*: false from the moment the term is over, also if this
    /// process was asleep when it ended.
    pub fn is_leader(&self) -> bool {
        self.guard.as_ref().is_some_and(LockGuard::is_valid)
    }

    /// Grows with each new leader: let followers refuse orders with a smaller one. `None` if
    /// this is not the leader.
    pub fn epoch(&self) -> Option<Fence> {
        self.guard.as_ref().filter(|guard| guard.is_valid()).map(LockGuard::fence)
    }

    /// Makes leadership last a whole TTL from now on; call it every third of the TTL. Does
    /// nothing for one that never led.
    ///
    /// # Errors
    ///
    /// [Lost](crate::Error::is_lost) if leadership is gone: told once, after that this is a
    /// candidate again. Any other error leaves the leader what it is until its term ends.
    ///
    /// # Cancel safety
    ///
    /// As [`DistributedLock::extend`].
    pub async fn maintain_leadership(&mut self) -> Result<()> {
        let Some(guard) = &mut self.guard else { return Ok(()) };
        let extended = self.lock.extend(guard, self.ttl).await;
        if extended.as_ref().is_err_and(sprag_core::Error::is_lost) {
            self.guard = None;
        }
        extended
    }

    /// Steps down, so that another can lead at once. Does nothing for one that does not lead.
    ///
    /// # Errors
    ///
    /// As [`DistributedLock::release`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: leadership is given up in any case.
    pub async fn resign(&mut self) -> Result<()> {
        match self.guard.take() {
            Some(guard) => self.lock.release(guard).await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElection")
            .field("resource", &self.resource)
            .field("ttl", &self.ttl)
            .field("epoch", &self.epoch())
            .finish_non_exhaustive()
    }
}
