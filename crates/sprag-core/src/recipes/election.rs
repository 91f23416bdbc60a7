//! [`Election`]: one leader among many candidates.

use std::time::Duration;

use crate::client::{Client, LockGuard, LockRequest, Released};
use crate::error::Result;
use crate::fence::Fence;
use crate::holder::Holder;
use crate::loss::Loss;
use crate::name::{IntoLockName, LockName};

/// Elects a leader: whoever holds the lock leads, until it resigns or is lost.
///
/// # Examples
///
/// ```
/// # futures::executor::block_on(async {
/// # use std::sync::Arc;
/// # use sprag_core::{Client, MemoryStore};
/// # let locks = Client::new(Arc::new(MemoryStore::new()));
/// let election = locks.election("scheduler")?;
/// let leadership = election.campaign().await?;
/// assert!(leadership.is_leader());
/// assert_eq!(election.leader().await?.map(|leader| leader.1), Some(leadership.epoch()));
/// leadership.resign().await?;
/// assert!(election.leader().await?.is_none());
/// # Ok::<(), sprag_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    client: Client,
    name: LockName,
    ttl: Duration,
}

impl Election {
    /// How long the others wait for a leader that has gone silent; 30 s by default.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    fn request(&self) -> LockRequest {
        self.client.lock(&self.name).ttl(self.ttl)
    }

    /// Waits to become the leader.
    ///
    /// # Errors
    ///
    /// As [`LockRequest::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the candidate steps back.
    pub async fn campaign(&self) -> Result<Leadership> {
        self.request().acquire().await.map(Leadership)
    }

    /// Becomes the leader now, or not.
    ///
    /// # Errors
    ///
    /// As [`LockRequest::try_acquire`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the candidate steps back.
    pub async fn try_campaign(&self) -> Result<Option<Leadership>> {
        Ok(self.request().try_acquire().await?.map(Leadership))
    }

    /// Who leads, and its epoch; out of date when it is read.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn leader(&self) -> Result<Option<(Holder, Fence)>> {
        let view = self.client.inspect(&self.name).await?;
        Ok(view.holders.into_iter().next().map(|leader| (leader.holder, leader.fence)))
    }
}

/// Being the leader. Dropping it resigns.
#[derive(Debug)]
#[must_use = "leadership that is not kept is resigned at once"]
pub struct Leadership(LockGuard);

impl Leadership {
    /// Whether this is the leader *now*: false from the moment the lease is over, also if this
    /// process was asleep when it ended.
    pub fn is_leader(&self) -> bool {
        self.0.is_valid()
    }

    /// Grows with each new leader: let followers refuse orders with a smaller one.
    pub fn epoch(&self) -> Fence {
        self.0.fence()
    }

    /// Resolves when leadership is lost, before anybody else can have it.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        self.0.lost()
    }

    /// Runs `work` and stops it when leadership is lost.
    ///
    /// # Errors
    ///
    /// Lost, if that happened before `work` was done.
    pub async fn lead<F: Future + Send>(&self, work: F) -> Result<F::Output>
    where
        F::Output: Send,
    {
        self.0.run(work).await
    }

    /// Steps down and lets the next candidate lead.
    ///
    /// # Errors
    ///
    /// If the store does not answer; the client goes on trying.
    pub async fn resign(self) -> Result<Released> {
        self.0.release().await
    }
}

impl Client {
    /// An election under this name.
    ///
    /// # Errors
    ///
    /// If the name is bad.
    pub fn election(&self, name: impl IntoLockName) -> Result<Election> {
        Ok(Election {
            client: self.clone(),
            name: name.into_lock_name()?,
            ttl: Duration::from_secs(30),
        })
    }
}
