//! What the server tells beside what was asked: in an answer ([`Ear`]), or unasked ([`Hearer`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use sprag_core::LeaseId;
use sprag_core::wakeups::Wakeups;
use tokio_postgres::Row;

use crate::advisory::{Holdings, Life};

/// Hears who of this process was granted a lock by the answer to somebody else. The caller of that
/// may be gone, so it is heard here.
#[derive(Clone)]
pub(super) struct Ear {
    pub(super) wakeups: Arc<Wakeups>,
    /// Where locks end with their session.
    pub(super) holdings: Option<Arc<Holdings>>,
}

#[derive(Deserialize)]
struct Heard {
    #[serde(default)]
    told: Vec<String>,
    #[serde(default)]
    session: String,
}

impl Ear {
    /// Whether anybody was granted a lock by it.
    pub(super) fn hear(&self, row: &Row) -> bool {
        // Whoever asked complains about an answer of another form.
        let Ok(Some(text)) = row.try_get::<_, Option<&str>>(0) else { return false };
        // Most answers tell nothing, and are not worth being read twice.
        if !text.starts_with('{') || !text.contains("\"told\"") {
            return false;
        }
        // Whoever asked complains about an answer that makes no sense.
        let Ok(Heard { told, session }) = serde_json::from_str(text) else { return false };
        for one in &told {
            match &self.holdings {
                Some(holdings) => holdings.hand(one, &session),
                None => self.wakeups.hear(one),
            }
        }
        !told.is_empty()
    }
}

/// What the server tells on a connection beside its answers.
#[derive(Clone)]
pub(super) enum Hearer {
    /// Locks that end with their session.
    Session(Life),
    /// Leases.
    Leases(Listening),
}

impl Hearer {
    pub(super) fn hear(&self, payload: &str) {
        match self {
            Self::Session(life) => life.hear(payload),
            Self::Leases(listening) => listening.wakeups.hear(payload),
        }
    }

    /// How many of this process wait for what may be told on this connection.
    pub(super) fn waiters(&self) -> usize {
        match self {
            Self::Session(life) => life.waiters(),
            Self::Leases(listening) if listening.is_on() => listening.wakeups.mailboxes.count(),
            Self::Leases(_) => 0,
        }
    }

    /// The connection has ended.
    pub(super) fn end(&self) {
        match self {
            Self::Session(life) => life.end(),
            // On another one it may be their turn, or they ask to be told.
            Self::Leases(listening) => listening.wakeups.mailboxes.notify_all(),
        }
    }
}

/// Whether this process is told on a connection what its waiters were granted. It asks for that once one
/// of them has to wait: most connections never need it.
#[derive(Clone)]
pub(super) struct Listening {
    wakeups: Arc<Wakeups>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Off,
    /// It was asked for; these waiters may miss a message until it is answered.
    Asked(Vec<LeaseId>),
    On,
}

impl Listening {
    pub(super) fn new(wakeups: Arc<Wakeups>) -> Self {
        Self { wakeups, state: Arc::default() }
    }

    /// Whether everything that is told from now on is heard.
    pub(super) fn is_on(&self) -> bool {
        matches!(*self.state(), State::On)
    }

    /// Somebody wants it; a lease may wait that was asked for before this was on. Whether it is to be asked
    /// for now.
    pub(super) fn add(&self, lease: Option<LeaseId>) -> bool {
        let mut state = self.state();
        match &mut *state {
            State::Off => *state = State::Asked(lease.into_iter().collect()),
            State::Asked(early) => {
                early.extend(lease);
                return false;
            }
            State::On => {
                // It may have been told in between.
                lease.into_iter().for_each(|lease| self.wakeups.mailboxes.notify(lease));
                return false;
            }
        }
        true
    }

    /// It is on, or it failed. Waiters that may have missed a message look.
    pub(super) fn answered(&self, is_on: bool) {
        let next = if is_on { State::On } else { State::Off };
        let before = std::mem::replace(&mut *self.state(), next);
        if let (true, State::Asked(early)) = (is_on, before) {
            early.into_iter().for_each(|lease| self.wakeups.mailboxes.notify(lease));
            // So may holders.
            self.wakeups.evictions.tell_gap();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
