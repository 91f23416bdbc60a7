//! [`Harness`]: what a store brings along to be tested, one fresh place per case.
//!
//! ```
//! use std::sync::Arc;
//! use async_trait::async_trait;
//! use sprag_core::MemoryStore;
//! use sprag_testkit::harness::{Harness, Session};
//!
//! struct Memory(MemoryStore);
//!
//! #[async_trait]
//! impl Harness for Memory {
//!     async fn fresh() -> Self {
//!         Self(MemoryStore::new())
//!     }
//!
//!     async fn session(&self) -> Arc<Session> {
//!         let store = self.0.connect();
//!         let process = store.clone();
//!         Arc::new(Session::new(Arc::new(store), move || process.kill()))
//!     }
//! }
//! ```

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sprag_core::diagnosis::Finding;
use sprag_core::evictions::Evictions;
use sprag_core::store::{
    Attempt, Conversion, Converted, Evicted, Eviction, Listing, Page, Released, Renewal, Renewed,
    Request,
};
use sprag_core::{
    AuditEntry, AuditQuery, Capability, Client, Error, ErrorKind, LeaseId, LockName, LockView,
    Operation, Result, Store,
};
use tokio::sync::watch;

/// A place where locks live, made for one case and gone after it.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// Whether the tests of this kind of place were declined, by `SPRAG_SKIP`.
    fn skipped() -> bool
    where
        Self: Sized,
    {
        false
    }

    /// Makes an empty place that nobody else uses.
    async fn fresh() -> Self
    where
        Self: Sized;

    /// Opens another session on the place, as another process would.
    async fn session(&self) -> Arc<Session>;

    /// Another session, where nobody wants to kill it.
    async fn store(&self) -> Arc<dyn Store> {
        self.session().await
    }

    /// A client with a session of its own.
    async fn client(&self) -> Client {
        Client::new(self.store().await)
    }

    /// How other processes open the same place; `None` if they cannot.
    fn url(&self) -> Option<String> {
        None
    }

    /// A short lease, for cases that wait until it ends. Long enough for ten requests under load.
    fn ttl(&self) -> Duration {
        Duration::from_millis(400)
    }

    /// How often something is done that is done `many` times elsewhere: less often where each
    /// request takes long.
    fn times(&self, many: usize) -> usize {
        many
    }

    /// Whether the store notices the death of a process by itself, long before the TTL ends.
    fn sees_death(&self) -> bool {
        true
    }

    /// Writes the record of a lock by hand, past the store; `false` if the place has no such
    /// text.
    async fn write_record(&self, _name: &LockName, _text: &str) -> bool {
        false
    }
}

/// One session of a place: a store that can die like a process.
///
/// Once killed nothing reaches the store any more and every call fails as unavailable, so a client
/// on top of it behaves like one whose network cable was cut.
#[derive(Debug)]
pub struct Session {
    capability: Capability,
    alive: Mutex<Option<Alive>>,
    dead: watch::Sender<bool>,
}

struct Alive {
    store: Arc<dyn Store>,
    kill: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for Alive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Alive").field(&self.store).finish()
    }
}

impl Session {
    /// A session that ends when `store` is dropped and `kill` has run.
    ///
    /// `kill` does what the death of the process would do beyond closing everything; where the
    /// kernel does all of it, it is empty.
    pub fn new(store: Arc<dyn Store>, kill: impl FnOnce() + Send + 'static) -> Self {
        let capability = store.capability().clone();
        let alive = Mutex::new(Some(Alive { store, kill: Box::new(kill) }));
        Self { capability, alive, dead: watch::Sender::new(false) }
    }

    /// Ends the session as `kill -9` would: no release, no goodbye.
    pub fn kill(&self) {
        let alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.dead.send_replace(true);
        if let Some(Alive { store, kill }) = alive {
            drop(store);
            kill();
        }
    }

    fn store(&self) -> Option<Arc<dyn Store>> {
        let alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        alive.as_ref().map(|alive| Arc::clone(&alive.store))
    }

    async fn killed(&self) {
        let mut dead = self.dead.subscribe();
        // Fails only when the sender is gone, and that is part of `self`.
        drop(dead.wait_for(|dead| *dead).await);
    }

    /// Asks the store, unless and until the session is dead.
    async fn ask<T, F>(
        &self,
        operation: Operation,
        ask: impl FnOnce(Arc<dyn Store>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
    {
        let gone = || Error::new(ErrorKind::Unavailable, operation, "the session was killed");
        let store = self.store().ok_or_else(gone)?;
        tokio::select! {
            biased;
            () = self.killed() => Err(gone()),
            answer = ask(store) => answer,
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Session {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        let ask = |store: Arc<dyn Store>| async move { store.try_acquire(request).await };
        self.ask(Operation::Acquire, ask).await
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        let ask = |store: Arc<dyn Store>| async move { store.renew(leases).await };
        self.ask(Operation::Renew, ask).await
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        let ask = |store: Arc<dyn Store>| async move { store.convert(conversion).await };
        self.ask(Operation::Convert, ask).await
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        let ask = |store: Arc<dyn Store>| async move { store.release(name, lease).await };
        self.ask(Operation::Release, ask).await
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        let ask = |store: Arc<dyn Store>| async move { store.withdraw(name, lease).await };
        self.ask(Operation::Release, ask).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        let ask = |store: Arc<dyn Store>| async move { store.inspect(name).await };
        self.ask(Operation::Inspect, ask).await
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let ask = |store: Arc<dyn Store>| async move { store.list(listing).await };
        self.ask(Operation::List, ask).await
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        let ask = |store: Arc<dyn Store>| async move { store.evict(eviction).await };
        self.ask(Operation::Evict, ask).await
    }

    async fn changed(&self, name: &LockName, lease: LeaseId) {
        let Some(store) = self.store() else { return std::future::pending().await };
        tokio::select! {
            biased;
            () = self.killed() => {
                drop(store);
                std::future::pending::<()>().await;
            }
            () = async { store.changed(name, lease).await } => {}
        }
    }

    fn lifeline(&self) -> Option<std::os::fd::OwnedFd> {
        self.store()?.lifeline()
    }

    fn is_severed(&self, lease: LeaseId) -> bool {
        // Who is dead does not hear of it; its clock tells it.
        self.store().is_some_and(|store| store.is_severed(lease))
    }

    async fn severed(&self) {
        let Some(store) = self.store() else { return std::future::pending().await };
        tokio::select! {
            biased;
            () = self.killed() => {
                drop(store);
                std::future::pending::<()>().await;
            }
            () = async { store.severed().await } => {}
        }
    }

    fn evictions(&self) -> Option<Evictions> {
        self.store()?.evictions()
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        let ask = |store: Arc<dyn Store>| async move { store.audit(query).await };
        self.ask(Operation::Audit, ask).await
    }

    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        let ask = |store: Arc<dyn Store>| async move { store.note(entries).await };
        self.ask(Operation::Audit, ask).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.ask(Operation::Inspect, |store: Arc<dyn Store>| async move { store.diagnose().await })
            .await
    }
}

/// How long a case may take, so that one that hangs is reported by its name.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs one case on a runtime of its own, with two threads.
///
/// # Panics
///
/// If the case does, or hangs.
pub fn run(case: impl Future<Output = ()> + 'static) {
    run_boxed(Box::pin(case));
}

/// Compiled once, and not for each case of each store.
fn run_boxed(case: Pin<Box<dyn Future<Output = ()>>>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    let runtime = runtime.expect("the operating system gives the case two threads");
    let done = runtime.block_on(async { tokio::time::timeout(LIMIT, case).await });
    assert!(done.is_ok(), "the case hangs for {LIMIT:?}");
}
