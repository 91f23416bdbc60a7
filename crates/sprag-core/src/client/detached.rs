//! Leases that are known by their id alone: those of the command line, without a guard.

use std::time::Duration;

use super::{Client, Released};
use crate::audit::{AuditEntry, AuditKind, STOPPED};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::fence::Fence;
use crate::id::LeaseId;
use crate::loss::Loss;
use crate::name::{IntoLockName, LockName};
use crate::store::{self, Bind, Grant, Renewal, Renewed};

impl Client {
    /// Renews a lease that is known by its id, for `ttl` from now. If it lasts for longer already, it
    /// stays so. What it lives by stays as it is.
    ///
    /// # Errors
    ///
    /// Lost if the lease is over, not-owner if it waits; unavailable if the store does not answer.
    ///
    /// # Cancel safety
    ///
    /// A future dropped half-way may have renewed the lease.
    pub async fn renew_lease(
        &self,
        name: impl IntoLockName,
        lease: LeaseId,
        ttl: Duration,
    ) -> Result<Grant> {
        let name = name.into_lock_name()?;
        let able = self.capability();
        if ttl < able.min_ttl || ttl > able.max_ttl {
            let (min, max) = (able.min_ttl, able.max_ttl);
            let message = format!("a TTL of {ttl:?} is not between {min:?} and {max:?}");
            return Err(Error::bad_input(Operation::Renew, message).on(&name));
        }
        let renewal = Renewal { name: name.clone(), lease, ttl, bind: Bind::Keep };
        let request = self.store().renew(std::slice::from_ref(&renewal));
        let answers = self.ask(Operation::Renew, request).await.map_err(|e| e.on(&name))?;
        match answers.into_iter().next() {
            Some(Renewed::Held(grant)) => Ok(grant),
            Some(Renewed::Waiting) => {
                let message = "the lease waits for the lock and does not hold it";
                Err(Error::new(ErrorKind::NotOwner, Operation::Renew, message).on(&name))
            }
            Some(Renewed::Lost(loss)) => Err(Error::lost(loss).on(&name)),
            Some(Renewed::Unknown) => Err(Error::unknown_renewal(&name)),
            None => Err(Error::lost(Loss::StateLost).on(&name)),
        }
    }

    /// Tells the audit trail that what ran under a lease that was taken away has
    /// [stopped](STOPPED): whoever took it by force may wait for that. Some time later, and only
    /// where the store keeps a trail.
    pub fn note_stopped(&self, name: &LockName, lease: LeaseId, fence: Fence) {
        let core = &self.inner.core;
        if self.capability().audit {
            let (unix_ms, holder) = (core.clock.unix_micros() / 1000, self.inner.holder.clone());
            let kind = AuditKind::Lost;
            let entry = AuditEntry::new(unix_ms, name.clone(), kind, fence, lease, holder);
            core.notes.add(entry.detail(STOPPED));
        }
    }

    /// Releases a lease that is known by its id.
    ///
    /// # Errors
    ///
    /// Unavailable if the store does not answer. A lease that is over is an answer.
    ///
    /// # Cancel safety
    ///
    /// A future dropped half-way may have released the lease.
    ///
    /// # Examples
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::{sync::Arc, time::Duration};
    /// # use sprag_core::{Client, MemoryStore, Released};
    /// # let locks = Client::new(Arc::new(MemoryStore::new()));
    /// let ticket = locks.lock("step").detached().acquire().await?.into_ticket().await?;
    /// locks.renew_lease("step", ticket.lease(), Duration::from_secs(60)).await?;
    /// assert_eq!(locks.release_lease("step", ticket.lease()).await?, Released::Freed);
    /// # Ok::<(), sprag_core::Error>(()) }).unwrap();
    /// ```
    pub async fn release_lease(&self, name: impl IntoLockName, lease: LeaseId) -> Result<Released> {
        let name = name.into_lock_name()?;
        let request = self.store().release(&name, lease);
        match self.ask(Operation::Release, request).await.map_err(|error| error.on(&name))? {
            store::Released::Freed => Ok(Released::Freed),
            store::Released::AlreadyGone(loss) => Ok(Released::AlreadyLost(loss)),
        }
    }
}
