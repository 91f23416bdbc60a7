//! [`Client::adopt`]: a ticket becomes a guard, for one who comes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::lease::Lease;
use super::tenure::Tenure;
use super::{Client, LockGuard, Pending, Ticket};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::LeaseId;
use crate::loss::Loss;
use crate::store::{Bind, Renewal, Renewed, Store};

impl Client {
    /// Takes over a lease from a [`Ticket`], which another process may have made. From then on
    /// it is renewed here and ends with this process.
    ///
    /// # Errors
    ///
    /// Lost if the lease is over, or if somebody else has adopted it already ([`Loss::Adopted`]);
    /// unavailable if the store does not answer. Then the ticket may be tried again here, but
    /// perhaps not by others: if the store did it, the lease ends with this process or its TTL.
    /// Unsupported on a store without detached leases.
    ///
    /// # Cancel safety
    ///
    /// A future dropped half-way is as good as one that was not answered.
    pub async fn adopt(&self, ticket: Ticket) -> Result<LockGuard> {
        let core = &self.inner.core;
        let on_ticket = |error: Error| error.on(&ticket.name).at(core.telemetry.store);
        if !core.store.capability().detached {
            let message = "this store has no detached leases, and so no tickets";
            return Err(on_ticket(Error::new(ErrorKind::Unsupported, Operation::Renew, message)));
        }
        let lost = |loss: Loss| on_ticket(Error::lost(loss));
        let lease = Lease::new(
            ticket.lease,
            self.current_party(),
            ticket.name.clone(),
            ticket.mode,
            self.inner.holder.clone(),
            Tenure::new(ticket.ttl, true, None),
            core.telemetry,
        );
        let adoption = Adoption::begin(&core.store, ticket.lease);
        let adoption = adoption.ok_or_else(|| lost(Loss::Adopted))?;
        let adopting = Adopting(Some(self.register(lease, Some(adoption))?));
        let renewal = Renewal {
            name: ticket.name.clone(),
            lease: ticket.lease,
            ttl: ticket.ttl,
            bind: Bind::Attach,
        };
        let sent = core.now();
        let request = core.store.renew(std::slice::from_ref(&renewal));
        let answers = self.ask(Operation::Renew, request).await.map_err(on_ticket)?;
        match answers.into_iter().next() {
            Some(Renewed::Held(grant)) => {
                let pending = adopting.succeeded();
                pending.lease.with(|tenure| {
                    tenure.asked(sent);
                    tenure.offered(grant, core.now());
                });
                let guard = pending.enter().map_err(|_| lost(Loss::Expired))?;
                core.telemetry.adopted(ticket.mode);
                guard.begin_span();
                Ok(guard)
            }
            Some(Renewed::Lost(loss)) => Err(lost(loss)),
            Some(Renewed::Unknown) => Err(on_ticket(Error::unknown_renewal(&ticket.name))),
            Some(Renewed::Waiting) | None => Err(lost(Loss::StateLost)),
        }
    }
}

/// A lease that may be somebody else's. Until the store has said that it is ours, it is only
/// forgotten: a release by its id would free what another holds.
struct Adopting(Option<Pending>);

impl Adopting {
    fn succeeded(mut self) -> Pending {
        self.0.take().expect("it is taken once")
    }
}

impl Drop for Adopting {
    fn drop(&mut self) {
        if let Some(pending) = self.0.take() {
            pending.forget();
        }
    }
}

/// What is adopted through which store of this process. To the store all clients that share it are
/// one session, to which it would give the lease again and again.
static ADOPTED: Mutex<BTreeSet<(usize, LeaseId)>> = Mutex::new(BTreeSet::new());

fn adopted() -> MutexGuard<'static, BTreeSet<(usize, LeaseId)>> {
    ADOPTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right of one client to adopt a lease; kept for as long as the client knows the lease.
#[derive(Debug)]
pub(super) struct Adoption((usize, LeaseId));

impl Adoption {
    fn begin(store: &Arc<dyn Store>, lease: LeaseId) -> Option<Self> {
        let key = (Arc::as_ptr(store).cast::<()>().addr(), lease);
        adopted().insert(key).then(|| Self(key))
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        adopted().remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::{Client, Loss, MemoryStore, Store};

    #[tokio::test]
    async fn clients_that_share_a_session_do_not_share_a_ticket() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let (one, other) = (Client::new(Arc::clone(&store)), Client::new(store));
        let ticket = one.lock("report").acquire().await.unwrap().into_ticket().await.unwrap();
        let guard = one.adopt(ticket.clone()).await.unwrap();
        for client in [&one, &other] {
            let error = client.adopt(ticket.clone()).await.unwrap_err();
            assert_eq!(error.loss(), Some(&Loss::Adopted), "{error:?}");
        }
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }

    #[tokio::test]
    async fn a_ticket_goes_on_from_one_to_the_next() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let (one, other) = (Client::new(Arc::clone(&store)), Client::new(store));
        let mut guard = one.lock("report").acquire().await.unwrap();
        for client in [&one, &one, &other, &one] {
            // What still listens to the one before is in nobody's way.
            let _lost = guard.lost();
            guard = client.adopt(guard.into_ticket().await.unwrap()).await.unwrap();
        }
        guard.extend(Duration::from_secs(60)).await.unwrap();
        guard.release().await.unwrap();
        assert!(one.lock("report").try_acquire().await.unwrap().is_some());
    }
}
