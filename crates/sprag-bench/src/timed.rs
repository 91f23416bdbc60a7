//! [`Timed`]: a store with a stopwatch on the requests that decide about waiting.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{mem, sync::Arc};

use async_trait::async_trait;
use sprag_core::evictions::Evictions;
use sprag_core::store::{
    Attempt, Conversion, Converted, Evicted, Eviction, Listing, Page, Released, Renewal, Renewed,
    Request,
};
use sprag_core::{Capability, LeaseId, LockName, LockView, Result, Store};

use crate::now_nanos;

/// How long single requests took, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Timings {
    acquire: Mutex<Vec<u64>>,
    release: Mutex<Vec<u64>>,
}

impl Timings {
    /// Hands out what was measured since the last time: acquires, then releases.
    pub(crate) fn take(&self) -> (Vec<u64>, Vec<u64>) {
        (mem::take(&mut *lock(&self.acquire)), mem::take(&mut *lock(&self.release)))
    }
}

fn lock(micros: &Mutex<Vec<u64>>) -> MutexGuard<'_, Vec<u64>> {
    micros.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes down the time since `start`.
fn note(micros: &Mutex<Vec<u64>>, start: u64) {
    lock(micros).push((now_nanos() - start) / 1000);
}

/// Passes everything on to another store.
#[derive(Debug)]
pub(crate) struct Timed<S> {
    store: S,
    timings: Arc<Timings>,
}

impl<S> Timed<S> {
    pub(crate) fn new(store: S, timings: Arc<Timings>) -> Self {
        Self { store, timings }
    }
}

#[async_trait]
impl<S: Store> Store for Timed<S> {
    fn capability(&self) -> &Capability {
        self.store.capability()
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        let start = now_nanos();
        let answer = self.store.try_acquire(request).await;
        note(&self.timings.acquire, start);
        answer
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        self.store.renew(leases).await
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        self.store.convert(conversion).await
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        let start = now_nanos();
        let answer = self.store.release(name, lease).await;
        note(&self.timings.release, start);
        answer
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        self.store.withdraw(name, lease).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        self.store.inspect(name).await
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        self.store.list(listing).await
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        self.store.evict(eviction).await
    }

    async fn changed(&self, name: &LockName, lease: LeaseId) {
        self.store.changed(name, lease).await;
    }

    fn lifeline(&self) -> Option<std::os::fd::OwnedFd> {
        self.store.lifeline()
    }

    fn is_severed(&self, lease: LeaseId) -> bool {
        self.store.is_severed(lease)
    }

    fn evictions(&self) -> Option<Evictions> {
        self.store.evictions()
    }

    async fn severed(&self) {
        self.store.severed().await;
    }
}
