//! [`MemoryStore`]: locks between the tasks of one process; the reference for all other stores.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::audit::{AuditEntry, AuditQuery, Trail, audit_entries};
use crate::capability::{Capability, Level};
use crate::clock::{BootClock, Clock};
use crate::entropy::OsEntropy;
use crate::error::Result;
use crate::id::{LeaseId, SessionId};
use crate::mailbox::Mailboxes;
use crate::name::LockName;
use crate::record::{Applied, Command, Context, Expiry, Record, apply};
use crate::store::{
    Attempt, Conversion, Converted, Evicted, Eviction, Listing, Page, Released, Renewal, Renewed,
    Request, Store,
};
use crate::view::LockView;

/// How many locks a page of [`Store::list`] has by default, and at most.
const PAGE: usize = 1000;

/// The machine behind a mutex.
///
/// Clones share the locks and the session; [`MemoryStore::connect`] shares the locks and has a
/// session of its own, as another process would.
///
/// # Guarantees
///
/// L3 within one process: the fences start again with the process.
///
/// # Examples
///
/// ```
/// # futures::executor::block_on(async {
/// use sprag_core::{LockName, MemoryStore, Store};
///
/// let store = MemoryStore::new();
/// assert!(!store.inspect(&LockName::new("report")?).await?.is_locked());
/// # Ok::<(), sprag_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    session: SessionId,
}

#[derive(Debug)]
struct Shared {
    capability: Capability,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    mailboxes: Mailboxes,
}

#[derive(Debug, Default)]
struct State {
    records: BTreeMap<LockName, Record>,
    dead: HashSet<SessionId>,
    trail: Trail,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// Makes an empty store.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(BootClock))
    }

    /// What every store in memory can do.
    pub const fn ability() -> Capability {
        Capability::full("memory", Level::Fenced)
    }

    /// Makes an empty store whose leases end by `clock`.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let capability = Self::ability();
        let (state, mailboxes) = (Mutex::default(), Mailboxes::default());
        let shared = Arc::new(Shared { capability, clock, state, mailboxes });
        Self { shared, session: SessionId::random(&OsEntropy) }
    }

    /// The same locks seen from another session, as another process would see them.
    #[must_use]
    pub fn connect(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), session: SessionId::random(&OsEntropy) }
    }

    /// Ends this session as the death of its process would: all it held or waited for is free.
    pub fn kill(&self) {
        let mut state = self.state();
        state.dead.insert(self.session);
        let names: Vec<_> = state.records.keys().cloned().collect();
        for name in names {
            self.shared.run(&mut state, &name, &Command::Reap);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, name: &LockName, command: &Command) -> Applied {
        self.shared.run(&mut self.state(), name, command)
    }
}

impl Shared {
    /// Applies a command under the mutex and wakes those it granted.
    fn run(&self, state: &mut State, name: &LockName, command: &Command) -> Applied {
        let record = state.records.get(name).cloned().unwrap_or_default();
        let applied = self.with_context(&state.dead, |context| apply(record, command, context));
        if applied.changed {
            // Free records stay: they carry the fence.
            state.records.insert(name.clone(), applied.record.clone());
            let unix_ms = self.clock.unix_micros() / 1000;
            state.trail.append(audit_entries(name, &applied, unix_ms));
        }
        // Whoever was granted, or lost its place, wants to know; the others sleep on.
        applied.events.iter().for_each(|event| self.mailboxes.notify(event.lease));
        applied
    }

    fn with_context<T>(&self, dead: &HashSet<SessionId>, run: impl FnOnce(&Context<'_>) -> T) -> T {
        run(&Context {
            now_ms: self.clock.now().as_millis(),
            expiry: Expiry::Clock,
            fence_floor: 0,
            max_waiters: self.capability.max_waiters,
            is_dead: &|session| dead.contains(&session),
        })
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn capability(&self) -> &Capability {
        &self.shared.capability
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        if request.queue {
            self.shared.mailboxes.open(request.lease);
        }
        let command = Command::acquire(request, self.session);
        let state = &mut *self.state();
        let Applied { record, outcome, .. } = self.shared.run(state, &request.name, &command);
        self.shared
            .with_context(&state.dead, |context| outcome.into_attempt(&record, request, context))
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        let renew = |renewal: &Renewal| {
            let applied = self.run(&renewal.name, &Command::renew(renewal, self.session));
            applied.outcome.into_renewed(&applied.record, renewal)
        };
        Ok(leases.iter().map(renew).collect())
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        self.shared.mailboxes.open(conversion.lease);
        let applied = self.run(&conversion.name, &Command::convert(conversion));
        let state = self.state();
        self.shared.with_context(&state.dead, |context| {
            applied.outcome.into_converted(conversion, context)
        })
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        self.shared.mailboxes.close(lease);
        Ok(self.run(name, &Command::Release { lease }).outcome.into_released())
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        self.run(name, &Command::Withdraw { lease });
        Ok(())
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        let state = self.state();
        let Some(record) = state.records.get(name) else {
            return Ok(LockView::free(name.clone()));
        };
        Ok(self.shared.with_context(&state.dead, |context| record.view(name, context)))
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let limit = if listing.limit == 0 { PAGE } else { listing.limit.min(PAGE) };
        let state = self.state();
        let start = listing.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let in_range = state.records.range((start, Bound::Unbounded));
        let mut views = self.shared.with_context(&state.dead, |context| {
            in_range
                .filter(|(name, _)| name.as_str().starts_with(&listing.prefix))
                .map(|(name, record)| record.view(name, context))
                .filter(|view| view.is_contended() || (!listing.contended && view.is_locked()))
                .take(limit + 1)
                .collect::<Vec<_>>()
        });
        let more = views.len() > limit;
        views.truncate(limit);
        let next = if more { views.last().map(|view| view.name.clone()) } else { None };
        Ok(Page { locks: views, next })
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        Ok(self.run(&eviction.name, &Command::evict(eviction)).outcome.into_evicted())
    }

    async fn changed(&self, _name: &LockName, lease: LeaseId) {
        self.shared.mailboxes.wait(lease).await;
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        Ok(self.state().trail.read(query))
    }

    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        self.state().trail.append(entries.iter().cloned());
        Ok(())
    }
}
