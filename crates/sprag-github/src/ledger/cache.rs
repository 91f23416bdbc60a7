//! [`Cache`]: commits that were read or written. They never change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sprag_ledger::Oid;

use super::message::Message;

/// How many are kept, and how many bytes.
const KEPT: usize = 4096;
const KEPT_BYTES: usize = 32 << 20;

#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    messages: HashMap<Oid, Arc<Message>>,
    bytes: usize,
}

impl Cache {
    pub(super) fn get(&self, oid: &Oid) -> Option<Arc<Message>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).messages.get(oid).cloned()
    }

    pub(super) fn put(&self, oid: Oid, message: Message) -> Arc<Message> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let size = message.size();
        if kept.messages.len() >= KEPT || kept.bytes + size > KEPT_BYTES {
            *kept = Kept::default();
        }
        let message = Arc::new(message);
        if kept.messages.insert(oid, Arc::clone(&message)).is_none() {
            kept.bytes += size;
        }
        message
    }
}
