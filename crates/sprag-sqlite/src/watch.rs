//! [`Watches`]: sees the end of the processes that our waiters wait for.
//!
//! Each waiter watches the one before it in the queue, and the first one watches the holders. When
//! one of them dies, exactly the next in line is told, within milliseconds and without polling: a
//! thread waits for the file lock of the session, which the kernel gives to it at that moment. A
//! waiter whose predecessor left the queue alive keeps watching the wrong one until it asks again, by
//! its timer.
//!
//! The kernel's reports about files are not used for this: a user may have 128 sources of them, and
//! a crowd of waiting processes would take them all.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sprag_core::record::Record;
use sprag_core::{LeaseId, SessionId};

use crate::session::{Presence, Session};

/// How many threads of this process watch at most. They are rarely more than a few: the waiters of
/// one queue watch the one process before them. Beyond this the timers of the waiters do it.
const MAX_THREADS: usize = 64;
/// A thread that only waits needs hardly any.
const STACK: usize = 64 << 10;

/// How many threads there are. Over all stores of this process: a thread cannot be ended before the
/// session that it watches.
static THREADS: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
pub(crate) struct Watches {
    session: Arc<Session>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What each waiter of this process waits for.
    waiting: HashMap<LeaseId, Vec<SessionId>>,
    /// The sessions for which there is a thread. They stay watched until they end: the next waiter
    /// is likely to wait for the same processes.
    watched: HashSet<SessionId>,
}

/// Told when a session has ended.
pub(crate) type Ended = Box<dyn FnOnce(SessionId) + Send>;

impl Watches {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches what is in the way of `lease`: the nearest live one of the sessions `before` it in
    /// the queue, else the holders. Returns whether one of these is gone already, so that asking
    /// again helps.
    pub(crate) fn watch(
        &self,
        record: &Record,
        before: &[SessionId],
        lease: LeaseId,
        ended: impl Fn() -> Ended,
    ) -> bool {
        let mut state = self.lock();
        // Dead waiters stay in the queue until it is their turn, so they are passed over here.
        let alive = before.iter().find(|session| self.add(&mut state, **session, &ended));
        if let Some(alive) = alive {
            state.waiting.insert(lease, vec![*alive]);
            return false;
        }
        let others = record.holders.iter().filter(|hold| hold.lease != lease);
        let sessions: Vec<_> = others.filter_map(|hold| hold.session).collect();
        // The machine takes dead holders away, so asking again is not asked for ever.
        let gone = sessions.iter().any(|session| !self.add(&mut state, *session, &ended));
        state.waiting.insert(lease, sessions);
        gone
    }

    /// Watches a session. Returns whether it is alive.
    fn add(&self, state: &mut State, session: SessionId, ended: impl Fn() -> Ended) -> bool {
        // Our own waiters see to themselves.
        if session == self.session.id || state.watched.contains(&session) {
            return true;
        }
        match self.session.presence(session) {
            Presence::Dead => false,
            Presence::Unknown => true,
            Presence::Alive(file) => {
                match spawn(session, file, ended()) {
                    Ok(started) if started => drop(state.watched.insert(session)),
                    Ok(_) => {}
                    Err(error) => tracing::debug!(%error, "a session is not watched"),
                }
                true
            }
        }
    }

    /// Stops watching for `lease`.
    pub(crate) fn unwatch(&self, lease: LeaseId) {
        self.lock().waiting.remove(&lease);
    }

    /// A session has ended. Returns the leases that waited for it.
    pub(crate) fn ended(&self, session: SessionId) -> Vec<LeaseId> {
        let mut state = self.lock();
        state.watched.remove(&session);
        let waited = state.waiting.iter().filter(|(_, sessions)| sessions.contains(&session));
        waited.map(|(lease, _)| *lease).collect()
    }
}

/// Starts a thread that waits for the end of a session, unless there are too many.
fn spawn(session: SessionId, file: File, ended: Ended) -> io::Result<bool> {
    let slot = Slot::take();
    let Some(slot) = slot else { return Ok(false) };
    let thread = std::thread::Builder::new().name("sprag-watch".into()).stack_size(STACK);
    thread.spawn(move || {
        let locked = wait(&file);
        // The lock and the place of this thread are free before anybody is told.
        drop((file, slot));
        match locked {
            Ok(()) => ended(session),
            // It counts as watched from here on, and a timer finds its end.
            Err(error) => tracing::warn!(%error, "a session is not watched"),
        }
    })?;
    Ok(true)
}

/// Waits until the file lock of a session is free.
fn wait(file: &File) -> io::Result<()> {
    loop {
        match file.lock_shared() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The right to have one of the threads.
struct Slot;

impl Slot {
    fn take() -> Option<Self> {
        let more = |threads| (threads < MAX_THREADS).then_some(threads + 1);
        THREADS.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(|_| Self)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::AcqRel);
    }
}
