//! [`Watches`]: sees the end of the processes that our waiters wait for.
//!
//! Each waiter watches the one before it in the queue, and the first one watches the holders.
//! Whoever dies, exactly the next in line is told, within milliseconds and without polling: the
//! kernel reports the close of the dead process's session file. A waiter whose predecessor left
//! the queue alive keeps watching the wrong one until it asks again, by its timer.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use sprag_core::record::Record;
use sprag_core::{LeaseId, SessionId};

use crate::session::Session;

/// How many processes are watched; beyond them the timers of the waiters do it.
const MAX_WATCHED: usize = 1024;
/// The close is reported just before the lock is dropped; so it is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How often it is looked at again: a file may also be closed by a guardian's twin.
const MAX_LOOKS: u32 = 20;
/// How often all are looked at where the kernel does not report.
const WITHOUT_REPORTS: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Watches {
    session: Arc<Session>,
    /// Made when first needed; `None` inside where the user has no more inotify instances.
    reports: OnceLock<Option<OwnedFd>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What each waiter of this process waits for.
    waiting: HashMap<LeaseId, Vec<SessionId>>,
    /// The watched sessions. They stay watched until they end: the next waiter is likely to wait
    /// for the same processes.
    watched: HashMap<SessionId, Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    /// The kernel's name for the watch.
    report: Option<i32>,
    /// How often it is still to be looked at.
    looks: u32,
}

impl Watches {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session, reports: OnceLock::new(), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the reports come from.
    pub(crate) fn source(&self) -> Option<BorrowedFd<'_>> {
        let start = || init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        self.reports.get_or_init(start).as_ref().map(AsFd::as_fd)
    }

    /// Watches who is in the way of `lease`: the nearest live one of the sessions `before` it in
    /// the queue, else the holders. Returns whether one of these is gone already, so that asking
    /// again helps.
    pub(crate) fn watch(&self, record: &Record, before: &[SessionId], lease: LeaseId) -> bool {
        let mut state = self.lock();
        // Dead waiters stay in the queue until it is their turn, so they are passed over here.
        if let Some(alive) = before.iter().find(|session| self.add(&mut state, **session)) {
            state.waiting.insert(lease, vec![*alive]);
            return false;
        }
        let others = record.holders.iter().filter(|hold| hold.lease != lease);
        let sessions: Vec<_> = others.filter_map(|hold| hold.session).collect();
        // The machine takes dead holders away, so asking again is not asked for ever.
        let gone = sessions.iter().any(|session| !self.add(&mut state, *session));
        state.waiting.insert(lease, sessions);
        gone
    }

    /// Watches a session. Returns whether it is alive.
    fn add(&self, state: &mut State, session: SessionId) -> bool {
        // Our own waiters see to themselves.
        if session == self.session.id || state.watched.contains_key(&session) {
            return true;
        }
        if state.watched.len() >= MAX_WATCHED {
            return !self.session.is_dead(session);
        }
        let path = self.session.directory.join(session.to_string());
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::DELETE_SELF | WatchFlags::ATTRIB;
        let report = self.source().and_then(|reports| add_watch(reports, &path, flags).ok());
        // Watched first, examined second: an end in between is seen by one of the two.
        if self.session.is_dead(session) {
            return false;
        }
        state.watched.insert(session, Watched { report, looks: 0 });
        true
    }

    /// Stops watching for `lease`.
    pub(crate) fn unwatch(&self, lease: LeaseId) {
        self.lock().waiting.remove(&lease);
    }

    /// The kernel reports that something happened to a session file.
    pub(crate) fn suspect(&self, report: i32) {
        let mut state = self.lock();
        let watched = state.watched.values_mut().find(|watched| watched.report == Some(report));
        if let Some(watched) = watched {
            watched.looks = MAX_LOOKS;
        }
    }

    /// Looks at the suspects. Returns the leases to be woken, and when to look again.
    pub(crate) fn examine(&self) -> (Vec<LeaseId>, Option<Duration>) {
        let mut state = self.lock();
        let State { waiting, watched } = &mut *state;
        let mut dead = Vec::new();
        watched.retain(|session, watched| {
            if (watched.looks > 0 || watched.report.is_none()) && self.session.is_dead(*session) {
                dead.push(*session);
                return false;
            }
            watched.looks = watched.looks.saturating_sub(1);
            true
        });
        let pause = if watched.values().any(|watched| watched.looks > 0) {
            Some(LOOK_AGAIN)
        } else if self.source().is_none()
            || watched.values().any(|watched| watched.report.is_none())
        {
            Some(WITHOUT_REPORTS)
        } else {
            None
        };
        let released =
            waiting.iter().filter(|(_, sessions)| sessions.iter().any(|s| dead.contains(s)));
        (released.map(|(lease, _)| *lease).collect(), pause)
    }
}
