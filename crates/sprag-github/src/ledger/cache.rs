//! [`Cache`]: entries that were read or written. They never change.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sprag_ledger::{Entry, Oid};

/// How many are kept.
const KEPT: usize = 4096;

/// An entry, and the comment that shows it.
pub(super) type Noted = (Entry, Option<u64>);

#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<HashMap<Oid, Noted>>);

impl Cache {
    pub(super) fn get(&self, oid: &Oid) -> Option<Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(oid).cloned()
    }

    pub(super) fn put(&self, oid: Oid, entry: Noted) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= KEPT {
            entries.clear();
        }
        entries.insert(oid, entry);
    }
}
