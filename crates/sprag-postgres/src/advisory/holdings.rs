//! [`Holdings`]: what this process holds, and in which session.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::wakeups::Wakeups;
use sprag_core::{LeaseId, LockName};

use super::bare::{Line, Sights, Visits};
use super::pulse::Pulse;
use super::watched::Watched;

/// The locks of one store, over all its sessions.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    held: Mutex<HashMap<LeaseId, Holding>>,
    /// Who was granted a lock while it waited, or promised one, and in which session.
    handed: Mutex<HashMap<LeaseId, String>>,
    pub(crate) pulse: Pulse,
    pub(crate) wakeups: Wakeups,
    pub(crate) watched: Watched,
    pub(crate) visits: Visits,
    pub(crate) sights: Sights,
}

#[derive(Debug)]
struct Holding {
    session: String,
    name: LockName,
    /// When its time is over, unless it is renewed.
    until: Moment,
    /// If it was bare when it was let in.
    line: Option<Line>,
}

impl Holdings {
    /// Holds a lock until then.
    pub(super) fn keep(&self, lease: LeaseId, name: &LockName, session: String, until: Moment) {
        self.keep_bare(lease, name, session, until, None);
    }

    /// The same; `line` is how the server has noted it if it is bare.
    pub(super) fn keep_bare(
        &self,
        lease: LeaseId,
        name: &LockName,
        session: String,
        until: Moment,
        line: Option<Line>,
    ) {
        let mut held = guarded(&self.held);
        // A renewal to less does not end it earlier.
        let until = held.get(&lease).map_or(until, |before| before.until.max(until));
        held.insert(lease, Holding { session, name: name.clone(), until, line });
    }

    /// How the server has noted a lock that may still be bare.
    pub(super) fn line(&self, lease: LeaseId) -> Option<Line> {
        guarded(&self.held).get(&lease)?.line.clone()
    }

    /// Holds it no longer.
    pub(super) fn leave(&self, lease: LeaseId) {
        self.wakeups.close(lease);
        guarded(&self.held).remove(&lease);
        guarded(&self.handed).remove(&lease);
    }

    /// Whether a lock is held in a session that may be over.
    pub(super) fn is_severed(&self, lease: LeaseId) -> bool {
        let held = guarded(&self.held);
        held.get(&lease).is_some_and(|holding| !self.pulse.is_sure(&holding.session))
            || self.wakeups.is_severed(lease)
    }

    /// Whether so many locks are held that a further one is too many. What was held in a session
    /// that is over takes no room.
    pub(super) fn is_full(&self, lease: LeaseId, most: usize) -> bool {
        let held = guarded(&self.held);
        let sure = |holding: &&Holding| self.pulse.is_sure(&holding.session);
        held.len() >= most
            && !held.contains_key(&lease)
            && held.values().filter(sure).count() >= most
    }

    /// The locks whose time is over, in a session.
    pub(super) fn overdue(&self, session: &str) -> Vec<String> {
        let now = BootClock.now();
        let held = guarded(&self.held);
        let over = held.values().filter(|it| it.session == session && it.until <= now);
        over.map(|holding| holding.name.to_string()).collect()
    }

    /// A waiter of this process was granted the lock in a session, or is to ask. Its heir is let in
    /// in the same session.
    pub(crate) fn hand(&self, told: &str, session: &str) {
        for lease in told.split(':').step_by(2).filter_map(|lease| lease.parse().ok()) {
            guarded(&self.handed).insert(lease, session.to_owned());
        }
        self.wakeups.hear(told);
    }

    /// The session in which a waiter was granted the lock, if it is sure to have it.
    pub(super) fn handed(&self, lease: LeaseId) -> Option<String> {
        let session = guarded(&self.handed).remove(&lease)?;
        self.pulse.is_sure(&session).then_some(session)
    }
}

fn guarded<T>(map: &Mutex<T>) -> MutexGuard<'_, T> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}
