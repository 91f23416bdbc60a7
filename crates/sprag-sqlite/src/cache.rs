//! [`Cache`]: the last records without a queue that a connection wrote, so that it need not read
//! them again.
//!
//! It never decides anything. What was decided from a remembered record is written only if the
//! row still has exactly the remembered text, in the same statement; otherwise the row is read.

use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::take;

use sprag_core::LockName;
use sprag_core::record::Record;

/// How many records are remembered.
const MAX_RECORDS: usize = 256;
/// The longest text that is remembered: many holders change too often to be worth it.
const MAX_TEXT: usize = 4096;

/// A record as this connection wrote or read it last.
#[derive(Debug)]
struct Cached {
    version: i64,
    /// Empty while somebody has taken it out.
    text: String,
    record: Record,
    /// Whether nobody else wrote it between our last two looks. If somebody did, it is likely to
    /// be so again, and a try with the remembered record would only cost time.
    likely_current: bool,
}

/// A record that was taken out.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) version: i64,
    pub(crate) text: String,
    pub(crate) record: Record,
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    records: RefCell<HashMap<String, Cached>>,
    /// The numbers of rows that were read.
    ids: RefCell<HashMap<String, i64>>,
}

impl Cache {
    /// The number that the row of a lock had.
    pub(crate) fn id(&self, name: &LockName) -> Option<i64> {
        self.ids.borrow().get(name.as_str()).copied()
    }

    /// Remembers the number of a row.
    pub(crate) fn remember_id(&self, name: &LockName, id: i64) {
        let mut ids = self.ids.borrow_mut();
        if ids.len() >= MAX_RECORDS {
            ids.clear();
        }
        ids.insert(name.as_str().to_owned(), id);
    }

    /// Takes out the record, if it is worth trying to write without reading, and `fits`. Until it is
    /// remembered again nothing is known about the lock.
    pub(crate) fn take(
        &self,
        name: &LockName,
        fits: impl FnOnce(&Record) -> bool,
    ) -> Option<Taken> {
        let mut records = self.records.borrow_mut();
        let cached = records.get_mut(name.as_str()).filter(|cached| cached.likely_current)?;
        if cached.text.is_empty() || !fits(&cached.record) {
            return None;
        }
        let (text, record) = (take(&mut cached.text), take(&mut cached.record));
        Some(Taken { version: cached.version, text, record })
    }

    /// The record with exactly this text, which need not be parsed again.
    pub(crate) fn with_text(&self, name: &str, text: &str) -> Option<Record> {
        let mut records = self.records.borrow_mut();
        let cached = records.get_mut(name).filter(|cached| cached.text == text)?;
        cached.likely_current = true;
        Some(cached.record.clone())
    }

    /// Remembers what was written. A transaction that fails later leaves a wrong memory, which
    /// the comparison finds out.
    pub(crate) fn remember(&self, name: &LockName, version: i64, text: String, record: Record) {
        let mut records = self.records.borrow_mut();
        if text.len() > MAX_TEXT {
            records.remove(name.as_str());
        } else if let Some(cached) = records.get_mut(name.as_str()) {
            *cached = Cached { version, text, record, likely_current: cached.likely_current };
        } else {
            if records.len() >= MAX_RECORDS {
                records.clear();
            }
            let cached = Cached { version, text, record, likely_current: true };
            records.insert(name.as_str().to_owned(), cached);
        }
    }

    /// Forgets a record: it has a queue, which is not remembered.
    pub(crate) fn forget(&self, name: &LockName) {
        self.records.borrow_mut().remove(name.as_str());
    }

    /// Somebody else wrote it.
    pub(crate) fn mistrust(&self, name: &LockName) {
        if let Some(cached) = self.records.borrow_mut().get_mut(name.as_str()) {
            cached.likely_current = false;
        }
    }
}
