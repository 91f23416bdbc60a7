//! [`Registry`]: every lease of a client, and when the keeper has to look at it.

use std::collections::{BTreeSet, HashMap, VecDeque, hash_map};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::adoption::Adoption;
use super::lease::Lease;
use super::tenure::Phase;
use crate::clock::Moment;
use crate::id::{LeaseId, PartyId};
use crate::mutant::mutant;

/// How many leases that could not be released are remembered, to be reported at shutdown.
const MOST_LEFT: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct Registry {
    inner: Mutex<Inner>,
    /// When the keeper will wake up by itself, in milliseconds. Whoever has something earlier
    /// wakes it; most acquires do not.
    planned: AtomicU64,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    leases: HashMap<LeaseId, Entry>,
    /// The same by party: of thousands that wait, each belongs to another one.
    parties: BTreeSet<(PartyId, LeaseId)>,
    schedule: BTreeSet<(Moment, LeaseId)>,
    /// Those that could not be released, oldest first.
    left: VecDeque<LeaseId>,
    closed: bool,
}

impl Inner {
    fn remove(&mut self, id: LeaseId) {
        if let Some(entry) = self.leases.remove(&id) {
            self.schedule.remove(&(entry.due, id));
            self.parties.remove(&(entry.lease.party, id));
        }
        self.left.retain(|left| *left != id);
    }
}

#[derive(Debug)]
struct Entry {
    lease: Arc<Lease>,
    due: Moment,
    #[expect(dead_code, reason = "kept only to be dropped")]
    adoption: Option<Adoption>,
}

impl Entry {
    /// Whether it is about this one. Another with the same id was adopted from a ticket, before or
    /// after it.
    fn is_of(&self, lease: &Lease) -> bool {
        std::ptr::eq(&raw const *self.lease, lease)
    }
}

/// What became of a lease that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Insertion {
    Done,
    /// There is one of this id already, which stays.
    Known,
    /// The client was shut down.
    Closed,
}

impl Registry {
    /// Adds a lease.
    pub(crate) fn insert(&self, lease: &Arc<Lease>, adoption: Option<Adoption>) -> Insertion {
        let mut inner = self.lock();
        if inner.closed {
            return Insertion::Closed;
        }
        match inner.leases.entry(lease.id) {
            hash_map::Entry::Occupied(_) if !mutant!("lease_per_client") => Insertion::Known,
            slot => {
                let lease = Arc::clone(lease);
                let of_party = (lease.party, lease.id);
                slot.insert_entry(Entry { lease, due: Moment::NEVER, adoption });
                inner.parties.insert(of_party);
                Insertion::Done
            }
        }
    }

    pub(crate) fn remove(&self, lease: &Lease) {
        let mut inner = self.lock();
        if inner.leases.get(&lease.id).is_some_and(|entry| entry.is_of(lease)) {
            inner.remove(lease.id);
        }
    }

    /// Keeps a lease that could not be released until the store has freed it. Of very many the
    /// oldest are forgotten sooner.
    pub(crate) fn leave(&self, lease: &Lease, now: Moment) {
        lease.with(|tenure| tenure.leave_to_store(now));
        self.reschedule(lease);
        let mut inner = self.lock();
        let known = inner.leases.get(&lease.id).is_some_and(|entry| entry.is_of(lease));
        if known && !inner.left.contains(&lease.id) {
            inner.left.push_back(lease.id);
        }
        if inner.left.len() > MOST_LEFT
            && let Some(oldest) = inner.left.front().copied()
        {
            inner.remove(oldest);
        }
    }

    /// Whether the lease is one of this client's and held right now.
    pub(crate) fn is_holding(&self, id: LeaseId) -> bool {
        let lease = self.lock().leases.get(&id).map(|entry| Arc::clone(&entry.lease));
        lease.is_some_and(|lease| lease.with(|tenure| *tenure.phase() == Phase::Holding))
    }

    /// Whether any lease of this client is held right now.
    pub(crate) fn is_holding_any(&self) -> bool {
        self.all().iter().any(|lease| lease.with(|tenure| *tenure.phase() == Phase::Holding))
    }

    /// Has a lease that is held renewed at once, or all of them: whether it was taken away is not known.
    pub(crate) fn hurry(&self, id: Option<LeaseId>) {
        let one = |id| self.lock().leases.get(&id).map(|entry| Arc::clone(&entry.lease));
        let leases = id.map_or_else(|| self.all(), |id| one(id).into_iter().collect());
        for lease in leases {
            if lease.with(|tenure| tenure.doubt()) {
                self.reschedule(&lease);
            }
        }
    }

    /// Whether the party holds anything through this client right now.
    pub(crate) fn is_party_holding(&self, party: PartyId) -> bool {
        let leases: Vec<_> = {
            let inner = self.lock();
            let of_party = (party, LeaseId::from_u128(0))..=(party, LeaseId::from_u128(u128::MAX));
            let ids = inner.parties.range(of_party).map(|(_, id)| id);
            ids.filter_map(|id| Some(Arc::clone(&inner.leases.get(id)?.lease))).collect()
        };
        leases.iter().any(|lease| lease.with(|tenure| *tenure.phase() == Phase::Holding))
    }

    /// Takes note of when the lease wants to be looked at.
    pub(crate) fn reschedule(&self, lease: &Lease) {
        let due = lease.with(|tenure| tenure.due());
        let mut guard = self.lock();
        let inner = &mut *guard;
        let Some(entry) = inner.leases.get_mut(&lease.id) else { return };
        if !entry.is_of(lease) {
            return;
        }
        inner.schedule.remove(&(entry.due, lease.id));
        entry.due = due;
        if due < Moment::NEVER {
            inner.schedule.insert((due, lease.id));
        }
        drop(guard);
        if due.as_millis() < self.planned.load(Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    /// The leases due until `horizon`; they are off the schedule until they are put back.
    pub(crate) fn take_due(&self, horizon: Moment) -> Vec<Arc<Lease>> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let mut due = Vec::new();
        while let Some(&(moment, id)) = inner.schedule.first()
            && moment <= horizon
        {
            inner.schedule.pop_first();
            if let Some(entry) = inner.leases.get_mut(&id) {
                entry.due = Moment::NEVER;
                due.push(Arc::clone(&entry.lease));
            }
        }
        due
    }

    /// The earliest moment on the schedule.
    pub(crate) fn earliest(&self) -> Moment {
        self.lock().schedule.first().map_or(Moment::NEVER, |(moment, _)| *moment)
    }

    /// Tells until when the keeper is going to sleep; waits for somebody who is earlier.
    pub(crate) async fn woken_before(&self, planned: Moment) {
        self.planned.store(planned.as_millis(), Ordering::SeqCst);
        // Somebody may have come between the look at the schedule and the plan.
        if self.earliest() < planned {
            return;
        }
        self.wake.notified().await;
    }

    /// Refuses further leases and gives out all there are.
    pub(crate) fn close(&self) -> Vec<Arc<Lease>> {
        self.lock().closed = true;
        self.all()
    }

    /// All leases there are.
    pub(crate) fn all(&self) -> Vec<Arc<Lease>> {
        let inner = self.lock();
        let mut leases: Vec<_> =
            inner.leases.values().map(|entry| Arc::clone(&entry.lease)).collect();
        // The map has an order of its own in each process; a simulation wants the same again.
        leases.sort_unstable_by_key(|lease| lease.id);
        leases
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().leases.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
