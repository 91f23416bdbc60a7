//! The audit trail: rows that the functions write, with a growing number for each.

use sprag_core::audit::{AuditEntry, AuditKind, AuditQuery, TRAIL_LENGTH, audit_entry};
use sprag_core::record::{Corrupt, Event};
use sprag_core::{Fence, Holder, LeaseId, LockName, Operation, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::store::PostgresStore;
use super::zeros::without_zeros;
use crate::error::Misfit;
use crate::link::Call;

const NOTE: &str = "SELECT sprag.note_v1($1, $2::text::jsonb)::text";

/// The newest entries of a lock, or of all, newest first.
const NEWEST: &str =
    "SELECT number, its_name, its_ms, its_event, noted FROM sprag.newest_v1($1, $2, $3)";
/// The entries after one that was seen, oldest first.
const NEXT: &str =
    "SELECT number, its_name, its_ms, its_event, noted FROM sprag.next_v1($1, $2, $3, $4)";

/// Adds what only the client knows.
pub(super) async fn note(store: &PostgresStore, entries: &[AuditEntry]) -> Result<()> {
    let entries: Vec<_> = entries.iter().map(AuditEntry::to_json).collect();
    let entries = without_zeros(format!("[{}]", entries.join(",")));
    let call = Call::new(NOTE).text(&store.namespace).text(entries);
    store.ask(Operation::Audit, call).await.map(drop)
}

/// What the query asks for, oldest first.
pub(super) async fn read(store: &PostgresStore, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
    let newest = query.after == 0;
    let name = query.name.as_ref().map(LockName::to_string);
    let page = i64::try_from(query.page().min(TRAIL_LENGTH)).unwrap_or(i64::MAX);
    let mut call = Call::new(if newest { NEWEST } else { NEXT }).text(&store.namespace);
    call = call.with(name, Type::TEXT).with(page, Type::INT8);
    if !newest {
        call = call.with(i64::try_from(query.after).unwrap_or(i64::MAX), Type::INT8);
    }
    let rows = store.ask(Operation::Audit, call).await?;
    let entries = rows.iter().map(|row| entry(row).map_err(|e| store.misfit(&e)));
    let mut entries: Vec<_> =
        entries.collect::<Result<_>>().map_err(|error| error.during(Operation::Audit))?;
    if newest {
        entries.reverse();
    }
    Ok(entries)
}

/// One entry. What it says may be damaged: then it is told that something was, and the others are told.
fn entry(row: &Row) -> Result<AuditEntry, Misfit> {
    let (sequence, at_ms): (i64, i64) = (row.try_get(0)?, row.try_get(2)?);
    let name = LockName::new(row.try_get::<_, &str>(1)?)?;
    let (event, noted) = (row.try_get(3)?, row.try_get(4)?);
    let at_ms = u64::try_from(at_ms).unwrap_or_default();
    let mut entry = told(&name, at_ms, event, noted).unwrap_or_else(|error| {
        let (kind, nobody) = (AuditKind::Unreadable, Holder::new("unknown", "unknown"));
        let lease = LeaseId::from_u128(0);
        AuditEntry::new(at_ms, name, kind, Fence::ZERO, lease, nobody).detail(error.to_string())
    });
    entry.sequence = u64::try_from(sequence).unwrap_or_default();
    Ok(entry)
}

fn told(
    name: &LockName,
    at_ms: u64,
    event: Option<&str>,
    noted: Option<&str>,
) -> Result<AuditEntry, Corrupt> {
    match noted {
        Some(noted) => AuditEntry::from_json(noted),
        None => Ok(audit_entry(name, &Event::read(event.unwrap_or_default())?, at_ms)),
    }
}
