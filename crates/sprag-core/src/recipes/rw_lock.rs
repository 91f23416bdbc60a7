//! [`RwLock`]: many readers or one writer.

use crate::client::{Client, LockRequest};
use crate::error::Result;
use crate::name::{IntoLockName, LockName};

/// Many readers or one writer, under one name.
///
/// Neither starves: a reader that comes after a waiting writer waits behind it, and a writer does
/// not overtake readers that came before. Each reader has its own lease.
///
/// # Examples
///
/// ```
/// # futures::executor::block_on(async {
/// # use std::sync::Arc;
/// # use sprag_core::{Client, MemoryStore};
/// # let locks = Client::new(Arc::new(MemoryStore::new()));
/// let config = locks.rw_lock("config")?;
/// let first = config.read().acquire().await?;
/// let second = config.read().acquire().await?;
/// assert!(config.write().try_acquire().await?.is_none());
/// # drop((first, second));
/// # Ok::<(), sprag_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    client: Client,
    name: LockName,
}

impl RwLock {
    /// Asks to read, beside other readers.
    pub fn read(&self) -> LockRequest {
        self.client.lock(&self.name).shared()
    }

    /// Asks to read, with the right to [upgrade](crate::LockGuard::upgrade) later. At most one
    /// at a time, beside plain readers.
    pub fn upgradable_read(&self) -> LockRequest {
        self.client.lock(&self.name).upgradable()
    }

    /// Asks to write, alone.
    pub fn write(&self) -> LockRequest {
        self.client.lock(&self.name)
    }
}

impl Client {
    /// A read-write lock.
    ///
    /// # Errors
    ///
    /// If the name is bad.
    pub fn rw_lock(&self, name: impl IntoLockName) -> Result<RwLock> {
        Ok(RwLock { client: self.clone(), name: name.into_lock_name()? })
    }
}
