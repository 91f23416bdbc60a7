//! [`RedisDistributedLock`]: the five verbs on one Redis server.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sprag_core::{LockGuard, Result, RetryConfig};
use sprag_redis::{RedisConfig, RedisStore};

use crate::open::redis::config_of;
use crate::{DistributedLock, Locks};

/// A [`DistributedLock`] on Redis. Everything else that [`Locks`] can do is there too.
///
/// # Examples
///
/// ```no_run
/// use sprag::{DistributedLock, RedisDistributedLock, RetryConfig};
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), sprag::Error> {
/// let lock = RedisDistributedLock::new("redis://localhost:6379").await?;
/// let guard = lock.acquire("my_resource", Duration::from_secs(30)).await?;
/// lock.release(guard).await?;
///
/// let retry = RetryConfig::aggressive();
/// let lock =
///     RedisDistributedLock::with_config("redis://localhost:6379", "myapp:lock:", retry).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RedisDistributedLock(Locks);

impl RedisDistributedLock {
    /// Connects to the server that `url` names, with the prefix `sprag:`.
    ///
    /// # Errors
    ///
    /// As [`Locks::open`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the connection is closed.
    pub async fn new(url: &str) -> Result<Self> {
        Self::connect(config_of(url)?, RetryConfig::default()).await
    }

    /// Connects with another prefix of all keys, and another schedule for waiting.
    ///
    /// # Errors
    ///
    /// As [`Locks::open`]; bad input for a retry schedule that makes no sense.
    ///
    /// # Cancel safety
    ///
    /// As [`new`](Self::new).
    pub async fn with_config(url: &str, prefix: &str, retry: RetryConfig) -> Result<Self> {
        Self::connect(config_of(url)?.prefix(prefix), retry).await
    }

    async fn connect(config: RedisConfig, retry: RetryConfig) -> Result<Self> {
        retry.validate()?;
        let store = RedisStore::connect(config).await?;
        Ok(Self(Locks::from_store(Arc::new(store))?.with_retry(retry)))
    }
}

impl Deref for RedisDistributedLock {
    type Target = Locks;

    fn deref(&self) -> &Locks {
        &self.0
    }
}

#[async_trait]
impl DistributedLock for RedisDistributedLock {
    async fn acquire(&self, resource: &str, ttl: Duration) -> Result<LockGuard> {
        DistributedLock::acquire(&self.0, resource, ttl).await
    }

    async fn try_acquire(&self, resource: &str, ttl: Duration) -> Result<Option<LockGuard>> {
        DistributedLock::try_acquire(&self.0, resource, ttl).await
    }

    async fn extend(&self, guard: &mut LockGuard, ttl: Duration) -> Result<()> {
        DistributedLock::extend(&self.0, guard, ttl).await
    }

    async fn release(&self, guard: LockGuard) -> Result<()> {
        DistributedLock::release(&self.0, guard).await
    }

    async fn is_locked(&self, resource: &str) -> Result<bool> {
        DistributedLock::is_locked(&self.0, resource).await
    }
}
