//! [`PostgresDistributedLock`]: the five verbs on advisory locks of PostgreSQL.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sprag_core::{Error, LockGuard, Operation, Result, Store};
use sprag_postgres::{AdvisoryStore, LockKind, PostgresStore};

use crate::open::postgres::config_of;
use crate::{DistributedLock, Locks};

/// A [`DistributedLock`] on PostgreSQL. Everything else that [`Locks`] can do is there too.
///
/// Locks are advisory locks of one session, unless the URL says `mode=lease`.
///
/// # Examples
///
/// ```no_run
/// use sprag::{DistributedLock, PostgresDistributedLock};
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), sprag::Error> {
/// let lock = PostgresDistributedLock::new("postgresql://localhost/mydb").await?;
/// let guard = lock.acquire("my_resource", Duration::from_secs(30)).await?;
/// drop(guard);
///
/// let lock = PostgresDistributedLock::with_pool_size("postgresql://localhost/mydb", 20).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PostgresDistributedLock(Locks);

impl PostgresDistributedLock {
    /// Connects to the database that `url` names.
    ///
    /// # Errors
    ///
    /// As [`Locks::open`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the connection is closed.
    pub async fn new(url: &str) -> Result<Self> {
        let config = config_of(url, LockKind::Advisory)?;
        let store: Arc<dyn Store> = match config.lock_kind() {
            LockKind::Lease => Arc::new(PostgresStore::connect(config).await?),
            LockKind::Advisory => Arc::new(AdvisoryStore::connect(config).await?),
        };
        Ok(Self(Locks::from_store(store)?))
    }

    /// As [`new`](Self::new), with at most so many connections. It takes no more than two, however
    /// many locks there are, so this refuses only less than that.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); bad input for less than 2.
    ///
    /// # Cancel safety
    ///
    /// As [`new`](Self::new).
    pub async fn with_pool_size(url: &str, max_connections: u32) -> Result<Self> {
        if max_connections < 2 {
            let message = format!("{max_connections} connections are too few: give at least 2");
            return Err(Error::bad_input(Operation::Open, message));
        }
        Self::new(url).await
    }
}

impl Deref for PostgresDistributedLock {
    type Target = Locks;

    fn deref(&self) -> &Locks {
        &self.0
    }
}

#[async_trait]
impl DistributedLock for PostgresDistributedLock {
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
