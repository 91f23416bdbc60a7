//! [`Notes`]: what only the client knows and the store's audit trail should say.
//!
//! Written down by the keeper, when it comes to it: no operation waits for a note, none fails
//! because of one, and notes that the store does not take are lost.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::audit::AuditEntry;

/// How many notes wait at most; further ones are dropped.
const MOST: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Notes {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<AuditEntry>,
    /// How many were taken and are on their way to the store.
    leaving: usize,
}

impl Notes {
    pub(crate) fn add(&self, entry: AuditEntry) {
        let mut state = self.lock();
        if state.waiting.len() < MOST {
            state.waiting.push(entry);
        }
        drop(state);
        self.wake.notify_one();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Whether nothing waits and nothing is on its way.
    pub(crate) fn is_settled(&self) -> bool {
        let state = self.lock();
        state.waiting.is_empty() && state.leaving == 0
    }

    /// Takes what there is; to be settled when the store has it or will not take it.
    pub(crate) fn take(&self) -> Vec<AuditEntry> {
        let mut state = self.lock();
        state.leaving += state.waiting.len();
        std::mem::take(&mut state.waiting)
    }

    /// So many that were taken are done with.
    pub(crate) fn settle(&self, count: usize) {
        self.lock().leaving -= count;
    }

    /// Waits until there is something, and takes it.
    pub(crate) async fn next(&self) -> Vec<AuditEntry> {
        loop {
            let taken = self.take();
            if !taken.is_empty() {
                return taken;
            }
            self.wake.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
