//! [`Call`]: one request, as it was made.

use sprag_core::store::{Conversion, Eviction, Listing, Renewal, Request};
use sprag_core::{AuditEntry, AuditQuery, LeaseId, LockName, Store};

/// The requests of a [`Store`], without what they ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// [`Store::try_acquire`].
    TryAcquire,
    /// [`Store::renew`].
    Renew,
    /// [`Store::convert`].
    Convert,
    /// [`Store::release`].
    Release,
    /// [`Store::withdraw`].
    Withdraw,
    /// [`Store::inspect`].
    Inspect,
    /// [`Store::list`].
    List,
    /// [`Store::evict`].
    Evict,
    /// [`Store::audit`].
    Audit,
    /// [`Store::note`].
    Note,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Store::try_acquire`].
    TryAcquire(Box<Request>),
    /// [`Store::renew`].
    Renew(Vec<Renewal>),
    /// [`Store::convert`].
    Convert(Conversion),
    /// [`Store::release`].
    Release(LockName, LeaseId),
    /// [`Store::withdraw`].
    Withdraw(LockName, LeaseId),
    /// [`Store::inspect`].
    Inspect(LockName),
    /// [`Store::list`].
    List(Listing),
    /// [`Store::evict`].
    Evict(Eviction),
    /// [`Store::audit`].
    Audit(AuditQuery),
    /// [`Store::note`].
    Note(Vec<AuditEntry>),
}

impl Call {
    /// Which request it is.
    pub const fn op(&self) -> Op {
        match self {
            Self::TryAcquire(_) => Op::TryAcquire,
            Self::Renew(_) => Op::Renew,
            Self::Convert(_) => Op::Convert,
            Self::Release(..) => Op::Release,
            Self::Withdraw(..) => Op::Withdraw,
            Self::Inspect(_) => Op::Inspect,
            Self::List(_) => Op::List,
            Self::Evict(_) => Op::Evict,
            Self::Audit(_) => Op::Audit,
            Self::Note(_) => Op::Note,
        }
    }

    /// Makes the request once more and drops the answer.
    pub(super) async fn send_to(&self, store: &dyn Store) {
        match self {
            Self::TryAcquire(request) => drop(store.try_acquire(request).await),
            Self::Renew(leases) => drop(store.renew(leases).await),
            Self::Convert(conversion) => drop(store.convert(conversion).await),
            Self::Release(name, lease) => drop(store.release(name, *lease).await),
            Self::Withdraw(name, lease) => drop(store.withdraw(name, *lease).await),
            Self::Inspect(name) => drop(store.inspect(name).await),
            Self::List(listing) => drop(store.list(listing).await),
            Self::Evict(eviction) => drop(store.evict(eviction).await),
            Self::Audit(query) => drop(store.audit(query).await),
            Self::Note(entries) => drop(store.note(entries).await),
        }
    }
}
