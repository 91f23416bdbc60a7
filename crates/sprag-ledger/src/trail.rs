//! The audit trail: what the chains of the locks tell.

use std::collections::HashSet;

use sprag_core::audit::TRAIL_LENGTH;
use sprag_core::store::LEFT_OUT;
use sprag_core::{AuditEntry, AuditQuery, LockName, Result};

use crate::library::Library;
use crate::page;
use crate::ref_name::RefName;

/// How many things that happened to one lock in one millisecond keep their order.
const PLACES: u64 = 16;
/// How many numbers a millisecond has.
const PER_MILLI: u64 = 4096;

/// What the query asks for, oldest first.
pub(crate) fn read(library: &Library, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
    let names = match &query.name {
        Some(name) => vec![name.clone()],
        None => {
            let found = library.ledger.list(RefName::locks())?;
            found.iter().filter_map(|(at, _)| at.to_lock()).collect()
        }
    };
    let mut entries = Vec::new();
    for name in &names {
        // What is older than the page cannot be asked for, as each entry tells one thing or more,
        // but for those that tell nothing.
        let limit = if query.after > 0 { TRAIL_LENGTH } else { query.page().saturating_mul(4) };
        match of_one(library, name, limit) {
            // One that cannot be read must not hide what happened to all others.
            Err(error) if error.is_corrupt() && query.name.is_none() => {
                let lock = name.as_str();
                tracing::warn!(target: LEFT_OUT, lock, %error, "a history is left out");
            }
            told => entries.extend(told?),
        }
    }
    entries.sort_by_key(|entry| entry.sequence);
    let forgotten = entries.len().saturating_sub(TRAIL_LENGTH);
    entries.drain(..forgotten);
    entries.retain(|entry| entry.sequence > query.after);
    let surplus = entries.len().saturating_sub(query.page());
    if query.after > 0 {
        entries.truncate(query.page());
    } else {
        entries.drain(..surplus);
    }
    Ok(entries)
}

/// The trail of one lock, numbered so that it grows along the chain and hardly ever meets the
/// numbers of another lock.
fn of_one(library: &Library, name: &LockName, limit: usize) -> Result<Vec<AuditEntry>> {
    let history = library.ledger.history(&RefName::lock(name), limit)?;
    let own =
        name.as_str().bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31) ^ u64::from(byte));
    let own = own % (PER_MILLI / PLACES) * PLACES;
    let (mut entries, mut last_ms, mut place) = (Vec::new(), 0, 0);
    let mut told = HashSet::new();
    for (_, entry) in history.iter().rev() {
        for mut entry in page::read_happened(entry) {
            // A note whose answer was late or lost is asked for again, and written again.
            if !told.insert(entry.to_json()) {
                continue;
            }
            // Clocks of different writers disagree; the chain does not.
            place = if entry.at_unix_ms > last_ms { 0 } else { (place + 1).min(PLACES - 1) };
            last_ms = last_ms.max(entry.at_unix_ms);
            entry.sequence = last_ms * PER_MILLI + own + place;
            entries.push(entry);
        }
    }
    Ok(entries)
}
