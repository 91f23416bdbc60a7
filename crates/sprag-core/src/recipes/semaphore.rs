//! [`Semaphore`]: at most so many at once.

use crate::client::{Client, LockRequest};
use crate::error::Result;
use crate::name::{IntoLockName, LockName};

/// A number of permits under one name, shared by everybody who uses the same number.
///
/// The number is stored while the semaphore is in use, and another one is refused, because two
/// processes that disagree about it do not protect anything. [`Semaphore::resize`] replaces it.
///
/// First come, first served: a big request at the front keeps small ones behind it waiting.
///
/// # Examples
///
/// ```
/// # futures::executor::block_on(async {
/// # use std::sync::Arc;
/// # use sprag_core::{Client, MemoryStore};
/// # let locks = Client::new(Arc::new(MemoryStore::new()));
/// let builds = locks.semaphore("builds", 2)?;
/// let one = builds.permits(1).acquire().await?;
/// let two = builds.permits(1).acquire().await?;
/// assert!(builds.permits(1).try_acquire().await?.is_none());
/// # drop((one, two));
/// # Ok::<(), sprag_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    client: Client,
    name: LockName,
    of: u32,
    resize: bool,
}

impl Semaphore {
    /// Asks for `count` permits.
    pub fn permits(&self, count: u32) -> LockRequest {
        let request = self.client.lock(&self.name).permits(count, self.of);
        if self.resize { request.resize() } else { request }
    }

    /// Replaces the stored number by this one with the next request. Holders above a lowered
    /// number drain; nobody is pushed out.
    #[must_use]
    pub const fn resize(mut self) -> Self {
        self.resize = true;
        self
    }
}

impl Client {
    /// A semaphore with `of` permits.
    ///
    /// # Errors
    ///
    /// If the name is bad.
    pub fn semaphore(&self, name: impl IntoLockName, of: u32) -> Result<Semaphore> {
        Ok(Semaphore { client: self.clone(), name: name.into_lock_name()?, of, resize: false })
    }
}
