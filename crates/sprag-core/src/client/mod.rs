//! [`Client`]: waiting, renewing and releasing, the same over every store.
//!
//! ```text
//!   LockRequest --validate--> Store::try_acquire --granted--> LockGuard
//!        |                         ^      | queued                |  drop, cancel, panic
//!        |                         |      v                       v
//!        `---- Lease (registry) ---+-- changed / timer        Keeper thread: renew, release
//! ```
//!
//! The happy path runs in the caller's task: one request to acquire, one to release, no hop.
//! What must outlive the caller is the [`Keeper`]'s: it knows each lease before its first request
//! is sent, so a future dropped half-way, a panic or a runtime that ends leaves nothing behind.

mod acquire;
mod adoption;
mod core;
mod detached;
mod guard;
mod keeper;
mod lease;
mod meter;
mod notes;
mod own;
mod registry;
mod request;
mod suspicion;
mod telemetry;
mod tenure;
mod ticket;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub use self::guard::{LockGuard, LockState, Released};
pub use self::keeper::Keeper;
pub use self::request::{LockRequest, Wait};
pub use self::tenure::margin;
pub use self::ticket::Ticket;

use self::adoption::Adoption;
use self::core::Core;
use self::keeper::{Flush, Order};
use self::lease::Lease;
use self::notes::Notes;
use self::registry::{Insertion, Registry};
use self::telemetry::Telemetry;
use crate::audit::{AuditEntry, AuditQuery};
use crate::capability::Capability;
use crate::clock::{BootClock, Clock};
use crate::entropy::{Entropy, OsEntropy};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::fence::Fence;
use crate::holder::Holder;
use crate::id::{LeaseId, PartyId};
use crate::loss::Loss;
use crate::name::{IntoLockName, LockName};
use crate::store::{self, Evicted, Eviction, Listing, Page, Store};
use crate::view::LockView;

/// How long dropping the last handle may wait for releases to reach the store.
const FLUSH_ON_DROP: Duration = Duration::from_millis(500);

/// Locks of one store, as one process uses them. Cheap to clone; all clones are one client.
///
/// # Examples
///
/// ```
/// # futures::executor::block_on(async {
/// use std::{sync::Arc, time::Duration};
/// use sprag_core::{Client, MemoryStore};
///
/// let locks = Client::new(Arc::new(MemoryStore::new()));
/// let guard = locks.lock("report").ttl(Duration::from_secs(30)).acquire().await?;
/// guard.ensure_valid()?;
/// guard.release().await?;
/// # Ok::<(), sprag_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

/// What clients and guards share. Dropping the last of them ends the keeper.
#[derive(Debug)]
struct Inner {
    core: Arc<Core>,
    orders: UnboundedSender<Order>,
    holder: Holder,
    allow_force: bool,
    /// The first half of the party of every task of this client.
    party_base: u128,
    /// The process that made it: a forked child has a copy, and no keeper.
    process: u32,
    /// Whether somebody else runs the keeper: then nobody may block to wait for it.
    driven: bool,
}

/// Options of a [`Client`].
#[derive(Debug)]
pub struct ClientBuilder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    holder: Option<Holder>,
    allow_force: bool,
}

impl ClientBuilder {
    /// Names the worker that all locks are taken for; by default this process.
    #[must_use]
    pub fn holder(mut self, holder: Holder) -> Self {
        self.holder = Some(holder);
        self
    }

    /// Allows [`Strategy::ForceAcquire`](crate::Strategy::ForceAcquire). Off by default: force
    /// breaks exclusion.
    #[must_use]
    pub fn allow_force(mut self, allow: bool) -> Self {
        self.allow_force = allow;
        self
    }

    /// Uses another clock, for tests and simulations.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Uses another source of random numbers, for tests and simulations.
    #[must_use]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// Makes the client and starts its thread.
    ///
    /// # Errors
    ///
    /// Unavailable if the operating system refuses another thread.
    pub fn build(self) -> Result<Client> {
        let refused = |error: std::io::Error| {
            Error::new(ErrorKind::Unavailable, Operation::Open, "cannot start the client's thread")
                .caused_by(error)
        };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(refused)?;
        let (client, keeper) = self.assemble(runtime.handle().clone(), false);
        std::thread::Builder::new()
            .name("sprag-keeper".into())
            .spawn(move || runtime.block_on(keeper.run()))
            .map_err(refused)?;
        Ok(client)
    }

    /// Makes the client and gives out its keeper, to be run by the caller on the current tokio
    /// runtime. For simulations, where threads would bring chance in.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn drive(self) -> (Client, Keeper) {
        self.assemble(tokio::runtime::Handle::current(), true)
    }

    fn assemble(self, timers: tokio::runtime::Handle, driven: bool) -> (Client, Keeper) {
        let (orders, received) = unbounded_channel();
        let telemetry = Telemetry { store: self.store.capability().store };
        let core = Arc::new(Core {
            store: self.store,
            clock: self.clock,
            entropy: self.entropy,
            registry: Registry::default(),
            notes: Notes::default(),
            telemetry,
            timers,
        });
        let inner = Inner {
            core: Arc::clone(&core),
            orders,
            holder: self.holder.unwrap_or_else(Holder::this_process),
            allow_force: self.allow_force,
            party_base: core.entropy.next_u128(),
            process: std::process::id(),
            driven,
        };
        (Client { inner: Arc::new(inner) }, Keeper { core, orders: received })
    }
}

impl Client {
    /// A client with default options.
    ///
    /// # Panics
    ///
    /// If the operating system refuses another thread; [`Client::builder`] returns that as an
    /// error.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::builder(store).build().expect("the operating system gives the client a thread")
    }

    /// A client with other options.
    pub fn builder(store: Arc<dyn Store>) -> ClientBuilder {
        let (clock, entropy) = (Arc::new(BootClock), Arc::new(OsEntropy));
        ClientBuilder { store, clock, entropy, holder: None, allow_force: false }
    }

    /// What the store can do.
    pub fn capability(&self) -> &Capability {
        self.inner.core.store.capability()
    }

    /// The store behind this client.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.core.store
    }

    /// Keeps this process's session alive in whichever process has it open: see
    /// [`Store::lifeline`].
    pub fn lifeline(&self) -> Option<std::os::fd::OwnedFd> {
        self.inner.core.store.lifeline()
    }

    /// The clock this client decides by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.core.clock
    }

    /// Begins a request for a lock. Nothing happens before `acquire` or `try_acquire`.
    pub fn lock(&self, name: impl IntoLockName) -> LockRequest {
        LockRequest::new(self.clone(), name.into_lock_name())
    }

    /// Looks at one lock.
    ///
    /// # Errors
    ///
    /// If the name is bad or the store does not answer.
    pub async fn inspect(&self, name: impl IntoLockName) -> Result<LockView> {
        let name = name.into_lock_name()?;
        let request = self.inner.core.store.inspect(&name);
        self.ask(Operation::Inspect, request).await.map_err(|error| error.on(&name))
    }

    /// Lists locks that are held or waited for, a page at a time.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn list(&self, listing: &Listing) -> Result<Page> {
        self.ask(Operation::List, self.inner.core.store.list(listing)).await
    }

    /// Breaks the holders that carry exactly this fence. They are told at their next renewal.
    ///
    /// # Errors
    ///
    /// Not-owner if nobody holds the lock with this fence (any more); unavailable if the store
    /// does not answer.
    pub async fn evict(
        &self,
        name: impl IntoLockName,
        fence: Fence,
        reason: &str,
    ) -> Result<Vec<Holder>> {
        let name = name.into_lock_name()?;
        let by = self.inner.holder.worker_id.clone();
        let eviction = Eviction { name: name.clone(), fence, by, reason: reason.to_owned() };
        let request = self.inner.core.store.evict(&eviction);
        match self.ask(Operation::Evict, request).await.map_err(|error| error.on(&name))? {
            Evicted::Broken(holders) => {
                self.inner.core.telemetry.broke();
                Ok(holders)
            }
            Evicted::NotHeld => {
                let message = format!("nobody holds it with fence {fence}; look at it again");
                Err(Error::new(ErrorKind::NotOwner, Operation::Evict, message).on(&name))
            }
        }
    }

    /// Reads the audit trail: who got, lost, gave back or broke which lock, oldest first.
    ///
    /// To follow it, ask again with the last sequence seen as `after`.
    ///
    /// # Errors
    ///
    /// Unsupported if the store keeps none; unavailable if it does not answer.
    ///
    /// # Examples
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::sync::Arc;
    /// # use sprag_core::{AuditKind, AuditQuery, Client, MemoryStore};
    /// # let locks = Client::new(Arc::new(MemoryStore::new()));
    /// let guard = locks.lock("report").acquire().await?;
    /// guard.release().await?;
    /// let trail = locks.audit(&AuditQuery::default()).await?;
    /// assert_eq!([trail[0].kind, trail[1].kind], [AuditKind::Acquired, AuditKind::Released]);
    /// # Ok::<(), sprag_core::Error>(()) }).unwrap();
    /// ```
    pub async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        if !self.capability().audit {
            return Err(store::no_trail(self.capability()));
        }
        self.ask(Operation::Audit, self.inner.core.store.audit(query)).await
    }

    /// Gives up everything: guards are lost, waiters return, further acquires are refused.
    /// Returns the locks that could not be released within `timeout`; the store frees them when
    /// their TTL ends.
    pub async fn shutdown(&self, timeout: Duration) -> Vec<LockName> {
        let core = &self.inner.core;
        for lease in core.registry.close() {
            lease.with(|tenure| {
                tenure.lose(Loss::ShutDown);
                tenure.end();
            });
            lease.nudge.notify_one();
            self.inner.order(Order::Release(lease));
        }
        let (tell, told) = tokio::sync::oneshot::channel::<()>();
        self.inner.order(Order::Flush(Flush::new(tell)));
        let limit = core.sleep(timeout);
        tokio::select! {
            biased;
            _ = told => {}
            () = limit => {}
        }
        core.registry.close().into_iter().map(|lease| lease.name.clone()).collect()
    }

    async fn ask<T>(
        &self,
        operation: Operation,
        request: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        self.inner.core.request(operation, Duration::MAX, request).await
    }

    /// Makes a lease known to the keeper, before anything is sent.
    fn register(&self, lease: Lease, adoption: Option<Adoption>) -> Result<Pending> {
        let lease = Arc::new(lease);
        match self.inner.core.registry.insert(&lease, adoption) {
            Insertion::Done => {
                Ok(Pending { inner: Arc::clone(&self.inner), lease, settled: false })
            }
            // Its guard is here, or its release is on its way.
            Insertion::Known => Err(Error::lost(Loss::Adopted).on(&lease.name)),
            Insertion::Closed => {
                let message = "the client was shut down; make a new one";
                let error = Error::new(ErrorKind::ShutDown, Operation::Acquire, message);
                Err(error.on(&lease.name))
            }
        }
    }

    fn new_lease_id(&self) -> LeaseId {
        if crate::mutant::mutant!("lease_per_client") {
            return LeaseId::from_u128(self.inner.party_base);
        }
        LeaseId::random(&*self.inner.core.entropy)
    }

    /// The party of the running task, or of the running thread outside any task.
    fn current_party(&self) -> PartyId {
        // Only compared for equality, and only while this process lives.
        let mut hasher = DefaultHasher::new();
        let task = tokio::task::try_id();
        // A task and a thread may have the same number.
        task.is_some().hash(&mut hasher);
        match task {
            Some(task) => task.hash(&mut hasher),
            None => std::thread::current().id().hash(&mut hasher),
        }
        PartyId::from_u128(self.inner.party_base ^ u128::from(hasher.finish()))
    }
}

impl Inner {
    fn order(&self, order: Order) {
        // Fails only when the keeper is gone, and then so is the process or the simulation.
        drop(self.orders.send(order));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let forked = self.process != std::process::id();
        // The last word of a process that did not get the lock is a note.
        let quiet = self.core.registry.len() == 0 && self.core.notes.is_settled();
        if self.driven || forked || quiet {
            return;
        }
        let (tell, told) = std::sync::mpsc::channel::<()>();
        self.order(Order::Flush(Flush::new(tell)));
        // Nothing is ever sent: the wait ends when the keeper drops its end, or with the time.
        match told.recv_timeout(FLUSH_ON_DROP) {
            Ok(()) | Err(_) => {}
        }
    }
}

/// A lease whose request may be on its way. Dropping it cleans up, whatever the store did.
#[derive(Debug)]
struct Pending {
    inner: Arc<Inner>,
    lease: Arc<Lease>,
    settled: bool,
}

impl Pending {
    /// Turns the lease that was offered into a guard; gives it back if it is too late.
    fn enter(mut self) -> Result<LockGuard, Self> {
        let now = self.inner.core.now();
        if self.lease.with(|tenure| tenure.enter(now)).is_none() {
            return Err(self);
        }
        self.settled = true;
        self.inner.core.registry.reschedule(&self.lease);
        Ok(LockGuard::new(Arc::clone(&self.inner), Arc::clone(&self.lease)))
    }

    /// The store has no trace of the lease: there is nothing to clean up.
    fn forget(mut self) {
        self.settled = true;
        self.lease.with(|tenure| tenure.end());
        self.inner.core.registry.remove(&self.lease);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.settled || !self.lease.is_own_process() {
            return;
        }
        if crate::mutant::mutant!("cancel_leaks") {
            self.inner.core.registry.remove(&self.lease);
            return;
        }
        self.inner.order(Order::Release(Arc::clone(&self.lease)));
    }
}
