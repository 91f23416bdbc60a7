//! [`LockGuards`]: several locks at once, all or nothing.

use std::time::Duration;

use crate::client::{Client, LockGuard, LockRequest, Released};
use crate::error::Result;
use crate::loss::Loss;
use crate::name::{IntoLockName, LockName};
use crate::policy::order::{Place, in_order};

/// Several locks, taken in one order by everybody, so that nobody waits in a circle.
///
/// Dropping it releases all of them, the last taken first.
#[derive(Debug)]
#[must_use = "guards that are not kept release the locks at once"]
pub struct LockGuards(Vec<LockGuard>);

impl LockGuards {
    /// The guards, in the order of their names.
    pub fn guards(&self) -> &[LockGuard] {
        &self.0
    }

    /// Checks that every one is held and good at this moment.
    ///
    /// # Errors
    ///
    /// Lost, for the first that is not.
    pub fn ensure_valid(&self) -> Result<()> {
        self.0.iter().try_for_each(LockGuard::ensure_valid)
    }

    /// How long all of them are good without another renewal; [`Duration::MAX`] for no locks.
    pub fn time_remaining(&self) -> Duration {
        self.0.iter().map(LockGuard::time_remaining).min().unwrap_or(Duration::MAX)
    }

    /// Resolves when the first of them is lost; with which one, and why. Never for no locks.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) -> (LockName, Loss) {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let each = self.0.iter().map(|guard| {
            let (name, lost) = (guard.name().clone(), guard.lost());
            Box::pin(async move { (name, lost.await) })
        });
        futures_util::future::select_all(each).await.0
    }

    /// Releases all, the last taken first. One answer for each, in the order of their names.
    ///
    /// # Errors
    ///
    /// The first error; the others are released all the same.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what is not released yet is left to the client's thread.
    pub async fn release(mut self) -> Result<Vec<Released>> {
        let mut answers = Vec::new();
        while let Some(guard) = self.0.pop() {
            answers.push(guard.release().await);
        }
        answers.into_iter().rev().collect()
    }
}

impl Drop for LockGuards {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

impl Client {
    /// Acquires several locks, all or nothing. They are taken one after the other in the order
    /// of their bytes, which is the same for everybody; a name given twice is taken once.
    ///
    /// `options` is applied to each request: TTL, waiting time (for each), mode and so on.
    ///
    /// # Errors
    ///
    /// As for one lock; those taken before are released again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was taken is released.
    ///
    /// # Examples
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::{sync::Arc, time::Duration};
    /// # use sprag_core::{Client, MemoryStore};
    /// # let locks = Client::new(Arc::new(MemoryStore::new()));
    /// let both = locks.acquire_many(["b", "a", "b"], |lock| lock.wait(Duration::from_secs(5))).await?;
    /// let names: Vec<_> = both.guards().iter().map(|guard| guard.name().as_str()).collect();
    /// assert_eq!(names, ["a", "b"]);
    /// both.release().await?;
    /// # Ok::<(), sprag_core::Error>(()) }).unwrap();
    /// ```
    pub async fn acquire_many(
        &self,
        names: impl IntoIterator<Item: IntoLockName> + Send,
        options: impl Fn(LockRequest) -> LockRequest + Send + Sync,
    ) -> Result<LockGuards> {
        let names = names.into_iter().map(|name| name.into_lock_name());
        let names = names.collect::<Result<Vec<LockName>>>()?;
        let store = self.capability().store;
        let names = in_order(names, |name| Place { store, namespace: "", name }, |_, _| {});
        let mut guards = LockGuards(Vec::with_capacity(names.len()));
        for name in &names {
            guards.0.push(options(self.lock(name)).acquire().await?);
        }
        Ok(guards)
    }
}
