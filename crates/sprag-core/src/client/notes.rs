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
    waiting: Mutex<Vec<AuditEntry>>,
    wake: Notify,
}

impl Notes {
    pub(crate) fn add(&self, entry: AuditEntry) {
        let mut waiting = self.lock();
        if waiting.len() < MOST {
            waiting.push(entry);
        }
        drop(waiting);
        self.wake.notify_one();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Takes what there is.
    pub(crate) fn take(&self) -> Vec<AuditEntry> {
        std::mem::take(&mut self.lock())
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

    fn lock(&self) -> MutexGuard<'_, Vec<AuditEntry>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
