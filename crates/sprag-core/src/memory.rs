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
use crate::evictions::{EvictionFeed, Evictions};
use crate::id::{LeaseId, SessionId};
use crate::mailbox::Mailboxes;
use crate::mutant::mutant;
use crate::name::LockName;
use crate::record::{Applied, Command, Context, EventKind, Expiry, Outcome, Record, apply};
use crate::store::{
    Attempt, Conversion, Converted, Evicted, Eviction, Listing, Page, Released, Renewal, Renewed,
    Request, Store,
};
use crate::view::LockView;

/// How many locks a page of [`Store::list`] has by default, and at most.
const PAGE: usize = 1000;
/// How many records of free locks are kept; beyond that the older half is forgotten.
const MAX_FREE: usize = 10_000;

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
    evictions: EvictionFeed,
}

#[derive(Debug, Default)]
struct State {
    records: BTreeMap<LockName, Kept>,
    dead: HashSet<SessionId>,
    trail: Trail,
    /// How many records are of free locks.
    free: usize,
    /// How many changes there were.
    changes: u64,
    /// Above every fence of a record that was forgotten.
    fence_floor: u64,
}

#[derive(Debug, Default)]
struct Kept {
    record: Record,
    /// Which change was its last.
    changed: u64,
}

impl State {
    /// Puts a record back. A free one is kept as well: it carries the fence, and why the last
    /// leases were lost.
    fn keep(&mut self, name: &LockName, record: Record) {
        self.changes += 1;
        let changed = self.changes;
        self.free += usize::from(record.is_free());
        let before = self.records.insert(name.clone(), Kept { record, changed });
        self.free -= usize::from(before.is_some_and(|before| before.record.is_free()));
        if self.free > MAX_FREE {
            self.forget();
        }
    }

    /// Forgets the older half of the free records. Their fences do not come again.
    fn forget(&mut self) {
        let free = self.records.values().filter(|kept| kept.record.is_free());
        let mut ages: Vec<_> = free.map(|kept| kept.changed).collect();
        let middle = ages.len() / 2;
        let (_, &mut middle, _) = ages.select_nth_unstable(middle);
        let old = |kept: &Kept| kept.record.is_free() && kept.changed < middle;
        let (floor, free) = (&mut self.fence_floor, &mut self.free);
        self.records.retain(|_, kept| {
            let old = old(kept);
            if old && !mutant!("floor_not_raised") {
                *floor = (*floor).max(kept.record.fence.get() + 1);
            }
            *free -= usize::from(old);
            !old
        });
    }
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
        let evictions = EvictionFeed::default();
        let shared = Arc::new(Shared { capability, clock, state, mailboxes, evictions });
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
        let record = state.records.get(name).map(|kept| kept.record.clone()).unwrap_or_default();
        let applied = self.with_context(state, |context| apply(record, command, context));
        if applied.changed {
            state.keep(name, applied.record.clone());
            let unix_ms = self.clock.unix_micros() / 1000;
            state.trail.append(audit_entries(name, &applied, unix_ms));
        }
        // Whoever was granted, or lost its place, wants to know; the others sleep on.
        for event in &applied.events {
            self.mailboxes.notify(event.lease);
            if event.is_eviction() {
                self.evictions.tell(event.lease);
            }
            if matches!(event.kind, EventKind::Gone(_)) {
                self.mailboxes.close(event.lease);
            }
        }
        applied
    }

    fn with_context<T>(&self, state: &State, run: impl FnOnce(&Context<'_>) -> T) -> T {
        run(&Context {
            now_ms: self.clock.now().as_millis(),
            expiry: Expiry::Clock,
            fence_floor: state.fence_floor,
            max_waiters: self.capability.max_waiters,
            is_dead: &|session| state.dead.contains(&session),
            is_silent: &|_| false,
        })
    }

    /// Who does not wait needs no wake-up.
    fn close_unless_waiting(&self, lease: LeaseId, outcome: &Outcome) {
        if !matches!(outcome, Outcome::Queued { .. }) {
            self.mailboxes.close(lease);
        }
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
        self.shared.close_unless_waiting(request.lease, &outcome);
        self.shared.with_context(state, |context| outcome.into_attempt(&record, request, context))
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
        let outcome = self.run(&conversion.name, &Command::convert(conversion)).outcome;
        self.shared.close_unless_waiting(conversion.lease, &outcome);
        let state = self.state();
        self.shared.with_context(&state, |context| outcome.into_converted(conversion, context))
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
        let Some(kept) = state.records.get(name) else {
            return Ok(LockView::free(name.clone()));
        };
        Ok(self.shared.with_context(&state, |context| kept.record.view(name, context)))
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let limit = if listing.limit == 0 { PAGE } else { listing.limit.min(PAGE) };
        let state = self.state();
        let start = listing.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let in_range = state.records.range((start, Bound::Unbounded));
        let mut views = self.shared.with_context(&state, |context| {
            in_range
                .filter(|(name, _)| name.as_str().starts_with(&listing.prefix))
                .map(|(name, kept)| kept.record.view(name, context))
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

    fn evictions(&self) -> Option<Evictions> {
        Some(self.shared.evictions.subscribe())
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        Ok(self.state().trail.read(query))
    }

    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        self.state().trail.append(entries.iter().cloned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::executor::block_on;

    use super::*;
    use crate::{Client, Fence, Holder, Mode, PartyId, store::Takeover};

    fn request(name: &str) -> Request {
        Request {
            name: LockName::new(name).unwrap(),
            lease: LeaseId::random(&OsEntropy),
            party: PartyId::from_u128(1),
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(60),
            queue: true,
            priority: 0,
            holder: Holder::default(),
            detached: false,
            fixed: false,
            takeover: Takeover::No,
            resize: false,
        }
    }

    fn acquire(store: &MemoryStore, request: &Request) -> Fence {
        match block_on(store.try_acquire(request)).unwrap() {
            Attempt::Granted(grant) => grant.fence,
            other => panic!("not granted: {other:?}"),
        }
    }

    #[test]
    fn free_records_are_bounded_and_no_fence_comes_again() {
        let store = MemoryStore::new();
        let held = request("held");
        acquire(&store, &held);
        let mut last = Fence::ZERO;
        for number in 0..3 * MAX_FREE {
            // The first one is used often and then forgotten.
            let name = if number < 100 { "first".into() } else { format!("lock/{number}") };
            let request = request(&name);
            last = last.max(acquire(&store, &request));
            block_on(store.release(&request.name, request.lease)).unwrap();
        }
        let count = |state: &State| (state.records.len(), state.free);
        let (records, free) = count(&store.state());
        assert!(free <= MAX_FREE && records == free + 1, "{records} records, {free} free");
        let first = request("first");
        assert!(!store.state().records.contains_key(&first.name));
        assert!(acquire(&store, &first).get() > 100);
        assert_eq!(block_on(store.inspect(&held.name)).unwrap().holders[0].lease, held.lease);
    }

    #[test]
    fn nobody_leaves_a_mailbox_behind() {
        let store = MemoryStore::new();
        let (holder, waiter) = (request("job"), request("job"));
        let fence = acquire(&store, &holder);
        assert!(matches!(block_on(store.try_acquire(&waiter)).unwrap(), Attempt::Queued(_)));
        assert_eq!(store.shared.mailboxes.count(), 1);
        // Killed while it waits; and one that is evicted after it has waited.
        let other = store.connect();
        assert!(matches!(
            block_on(other.try_acquire(&request("job"))).unwrap(),
            Attempt::Queued(_)
        ));
        other.kill();
        let by = String::from("test");
        let eviction = Eviction { name: holder.name.clone(), fence, by: by.clone(), reason: by };
        block_on(store.evict(&eviction)).unwrap();
        acquire(&store, &waiter);
        block_on(store.release(&waiter.name, waiter.lease)).unwrap();
        assert_eq!(store.shared.mailboxes.count(), 0);
        let client = Client::new(Arc::new(store.clone()));
        drop(block_on(client.lock("job").acquire()).unwrap());
        block_on(client.shutdown(Duration::from_secs(9)));
        assert_eq!(store.shared.mailboxes.count(), 0);
    }
}
