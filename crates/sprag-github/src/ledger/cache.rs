//! [`Cache`]: entries that were read or written. They never change.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sprag_ledger::{Entry, Oid};

/// How many are kept.
const KEPT: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<HashMap<Oid, Entry>>);

impl Cache {
    pub(super) fn get(&self, oid: &Oid) -> Option<Entry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(oid).cloned()
    }

    pub(super) fn put(&self, oid: Oid, entry: Entry) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= KEPT {
            entries.clear();
        }
        entries.insert(oid, entry);
    }
}
