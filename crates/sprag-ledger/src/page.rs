//! What is written behind a reference, and how it is read: JSON, a line for each thing.
//!
//! An entry of a lock has its whole record in the first line, and behind it what happened, for the
//! audit trail. An entry of a session has the number of its sign of life.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use sprag_core::record::Record;
use sprag_core::{AuditEntry, Error, ErrorKind, LockName, Operation, Result};

use crate::ledger::Entry;

/// The format of a session that this library writes, and the last it reads.
const SESSION_FORMAT: u32 = 1;

/// Writes the new record of a lock.
pub(crate) fn write_lock(name: &LockName, record: &Record, happened: &[AuditEntry]) -> Entry {
    let summary = match happened {
        [] => format!("{name:?}: {}", standing(record)),
        happened => {
            let told: Vec<_> = happened.iter().map(tell).collect();
            format!("{name:?}: {}", told.join("; "))
        }
    };
    let mut body = record.to_json();
    for entry in happened {
        body.push('\n');
        body.push_str(&entry.to_json());
    }
    Entry { summary, body }
}

/// Puts what happened before in front of what happened with this entry of a lock.
pub(crate) fn add_tail(entry: &mut Entry, tail: &[String]) {
    let (record, happened) = entry.body.split_once('\n').unwrap_or((&entry.body, ""));
    let lines = [record].into_iter().chain(tail.iter().map(String::as_str));
    let lines: Vec<_> = lines.chain(happened.lines()).collect();
    entry.body = lines.join("\n");
}

/// The newest of what happened with these entries, the newest entry first, as it is written; told
/// oldest first, each once, in so many bytes at most.
pub(crate) fn tail_of<'a>(history: impl Iterator<Item = &'a Entry>, bytes: usize) -> Vec<String> {
    let (mut tail, mut told, mut size) = (Vec::new(), HashSet::new(), 0);
    let lines =
        history.flat_map(|entry| entry.body.lines().skip(1).collect::<Vec<_>>().into_iter().rev());
    for line in lines.filter(|line| AuditEntry::from_json(line).is_ok()) {
        size += line.len() + 1;
        if size > bytes {
            break;
        }
        if told.insert(line) {
            tail.push(line.to_owned());
        }
    }
    tail.reverse();
    tail
}

/// Reads the record of a lock.
pub(crate) fn read_lock(entry: &Entry) -> Result<Record> {
    let line = entry.body.lines().next().unwrap_or_default();
    Ok(Record::from_json(line)?)
}

/// Reads what happened with an entry; what cannot be understood is left out, it only tells.
pub(crate) fn read_happened(entry: &Entry) -> Vec<AuditEntry> {
    let lines = entry.body.lines().skip(1);
    lines.filter_map(|line| AuditEntry::from_json(line).ok()).collect()
}

fn tell(entry: &AuditEntry) -> String {
    format!("{} by {}, fence {}", entry.kind, entry.holder.worker_id, entry.fence)
}

fn standing(record: &Record) -> String {
    format!("{} hold it, {} wait", record.holders.len(), record.waiters.len())
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Beat {
    format: u32,
    beat: u64,
}

/// Writes a session's sign of life.
pub(crate) fn write_session(beat: u64) -> Entry {
    let body = Beat { format: SESSION_FORMAT, beat };
    let body = serde_json::to_string(&body).unwrap_or_default();
    Entry { summary: format!("sign of life {beat}"), body }
}

/// Reads a session's sign of life.
pub(crate) fn read_session(entry: &Entry) -> Result<u64> {
    let beat: Option<Beat> = serde_json::from_str(entry.body.trim()).ok();
    beat.filter(|read| read.format <= SESSION_FORMAT).map(|read| read.beat).ok_or_else(|| {
        let what = "a session is damaged, or was written by a newer version of sprag";
        Error::new(ErrorKind::Corrupt, Operation::Inspect, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sprag_core::{AuditKind, Fence, Holder, LeaseId};

    #[test]
    fn a_lock_is_read_as_it_was_written() {
        let name = LockName::new("deploy").unwrap();
        let (lease, holder) = (LeaseId::from_u128(7), Holder::new("worker-1", "here"));
        let kind = AuditKind::Acquired;
        let happened = AuditEntry::new(5, name.clone(), kind, Fence::ZERO, lease, holder);
        let entry = write_lock(&name, &Record::default(), std::slice::from_ref(&happened));
        assert_eq!(entry.summary, r#""deploy": acquired by worker-1, fence 0"#);
        assert_eq!(read_lock(&entry).unwrap(), Record::default());
        assert_eq!(read_happened(&entry), [happened]);
        assert!(read_lock(&Entry { body: String::new(), ..entry }).is_err());
    }

    #[test]
    fn what_happened_before_is_taken_along_in_order() {
        let name = LockName::new("deploy").unwrap();
        let told = |at| {
            let (lease, holder) = (LeaseId::from_u128(7), Holder::new("worker-1", "here"));
            AuditEntry::new(at, name.clone(), AuditKind::Acquired, Fence::ZERO, lease, holder)
        };
        let entry = |happened: &[AuditEntry]| write_lock(&name, &Record::default(), happened);
        // The newest first; one was written twice.
        let history =
            [entry(&[told(5)]), entry(&[told(3), told(4)]), entry(&[told(3)]), entry(&[told(1)])];
        let tail = tail_of(history.iter(), 1 << 20);
        let mut root = entry(&[told(6)]);
        add_tail(&mut root, &tail);
        assert_eq!(read_happened(&root), [told(1), told(3), told(4), told(5), told(6)]);
        assert_eq!(read_lock(&root).unwrap(), Record::default());
        let line = told(5).to_json().len() + 1;
        assert_eq!(tail_of(history.iter(), 2 * line + 1), [told(4).to_json(), told(5).to_json()]);
        let mut silent = entry(&[]);
        add_tail(&mut silent, &[]);
        assert_eq!(silent, entry(&[]));
    }

    #[test]
    fn a_session_is_read_as_it_was_written_and_a_newer_one_is_not() {
        let entry = write_session(42);
        assert_eq!(read_session(&entry).unwrap(), 42);
        let body = entry.body.replace("\"format\":1", "\"format\":2");
        assert!(read_session(&Entry { body, ..entry }).unwrap_err().is_corrupt());
    }
}
