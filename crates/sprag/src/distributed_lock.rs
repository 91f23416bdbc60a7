//! [`DistributedLock`]: five verbs that fit behind `Arc<dyn DistributedLock>`.

use std::time::Duration;

use async_trait::async_trait;
use sprag_core::{Error, LockGuard, Operation, Released, Result};

use crate::Locks;

/// Locks with a fixed TTL, without knowing which store they live in.
///
/// A lock taken here is **not renewed by itself**: it ends after its TTL unless it is
/// [extended](Self::extend). [`Client::lock`](crate::Client::lock) gives locks that are renewed
/// as long as their guard lives, and every other option.
///
/// # Examples
///
/// ```
/// # futures::executor::block_on(async {
/// use sprag::{DistributedLock, Locks};
/// use std::{sync::Arc, time::Duration};
///
/// let lock: Arc<dyn DistributedLock> = Arc::new(Locks::open("memory:")?);
/// let guard = lock.acquire("my_resource", Duration::from_secs(30)).await?;
/// assert!(lock.is_locked("my_resource").await?);
/// lock.release(guard).await?;
/// assert!(!lock.is_locked("my_resource").await?);
/// # Ok::<(), sprag::Error>(()) }).unwrap();
/// ```
#[async_trait]
pub trait DistributedLock: Send + Sync {
    /// Acquires the lock, and waits while somebody else holds it.
    ///
    /// The waiter has a place in the store's queue and is woken when it is its turn. It gives up
    /// after [`RetryConfig::total_wait`](crate::RetryConfig::total_wait), with
    /// [`no_retry`](crate::RetryConfig::no_retry) at once.
    ///
    /// # Errors
    ///
    /// [Timeout](Error::is_timeout) when the wait is used up; [held](Error::is_held) with
    /// `no_retry`; [deadlock](Error::is_deadlock) if waiting on would never end, as when the
    /// running task holds the lock itself; [unavailable](Error::is_unavailable) if the store
    /// does not answer; [bad input](Error::is_bad_input).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a future dropped half-way leaves the queue, and releases the lock if it was
    /// granted meanwhile.
    async fn acquire(&self, resource: &str, ttl: Duration) -> Result<LockGuard>;

    /// Tries once and does not wait; `None` if somebody else holds the lock.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but held is `None`.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    async fn try_acquire(&self, resource: &str, ttl: Duration) -> Result<Option<LockGuard>>;

    /// Makes the lock last `ttl` from now on. It sets, it does not add.
    ///
    /// # Errors
    ///
    /// [Lost](Error::is_lost) if it is not held any more: a lost lock never comes back.
    /// [Unavailable](Error::is_unavailable) if the store does not answer; the lock is then as
    /// good as it was. [Bad input](Error::is_bad_input) for a guard of another client.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the lock is extended or not, and valid as before at least.
    async fn extend(&self, guard: &mut LockGuard, ttl: Duration) -> Result<()>;

    /// Releases the lock, and tells if it was not held to the end.
    ///
    /// Dropping the guard releases it too, but cannot tell.
    ///
    /// # Errors
    ///
    /// [Lost](Error::is_lost) if the lock was lost before: what was done since may have been
    /// done by two. Nobody else's lock is ever released. [Unavailable](Error::is_unavailable) if
    /// the store does not answer; it is freed when its TTL ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a future dropped half-way leaves the release to the client's thread.
    async fn release(&self, guard: LockGuard) -> Result<()>;

    /// Whether anybody holds the lock. Out of date when it is read; decides nothing.
    ///
    /// # Errors
    ///
    /// If the name is bad or the store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    async fn is_locked(&self, resource: &str) -> Result<bool>;
}

#[async_trait]
impl DistributedLock for Locks {
    async fn acquire(&self, resource: &str, ttl: Duration) -> Result<LockGuard> {
        let retry = self.retry();
        retry.validate()?;
        let request = self.lock(resource).ttl(ttl).no_renewal();
        let request = match retry.max_attempts {
            1 => request.no_wait(),
            _ => request.wait(retry.total_wait()),
        };
        request.acquire().await
    }

    async fn try_acquire(&self, resource: &str, ttl: Duration) -> Result<Option<LockGuard>> {
        self.lock(resource).ttl(ttl).no_renewal().try_acquire().await
    }

    async fn extend(&self, guard: &mut LockGuard, ttl: Duration) -> Result<()> {
        if !guard.belongs_to(self) {
            let message = "the guard is another client's; extend it where it was acquired";
            return Err(Error::bad_input(Operation::Renew, message).on(guard.name()));
        }
        guard.extend(ttl).await
    }

    async fn release(&self, guard: LockGuard) -> Result<()> {
        let name = guard.name().clone();
        match guard.release().await? {
            Released::Freed => Ok(()),
            Released::AlreadyLost(loss) => {
                let store = self.capability().store;
                Err(Error::lost(loss).during(Operation::Release).on(&name).at(store))
            }
        }
    }

    async fn is_locked(&self, resource: &str) -> Result<bool> {
        Ok(self.inspect(resource).await?.is_locked())
    }
}
