//! [`Cache`]: commits that were read or written. They never change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sprag_ledger::Oid;

use super::message::Message;

/// How many are kept.
const KEPT: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<HashMap<Oid, Arc<Message>>>);

impl Cache {
    pub(super) fn get(&self, oid: &Oid) -> Option<Arc<Message>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(oid).cloned()
    }

    pub(super) fn put(&self, oid: Oid, message: Message) -> Arc<Message> {
        let mut messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() >= KEPT {
            messages.clear();
        }
        let message = Arc::new(message);
        messages.insert(oid, Arc::clone(&message));
        message
    }
}
