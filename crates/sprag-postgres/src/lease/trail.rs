//! The audit trail: rows that the functions write, with a growing number for each.

use sprag_core::audit::{AuditEntry, AuditQuery, TRAIL_LENGTH, audit_entry};
use sprag_core::record::Event;
use sprag_core::{LockName, Operation, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::store::PostgresStore;
use crate::error::strange_answer;
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
    let entries = format!("[{}]", entries.join(",")).replace("\\u0000", "\u{2400}");
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
    let entries =
        rows.iter().map(|row| entry(row).map_err(|e| strange_answer(e).during(Operation::Audit)));
    let mut entries: Vec<_> = entries.collect::<Result<_>>()?;
    if newest {
        entries.reverse();
    }
    Ok(entries)
}

type Strange = Box<dyn std::error::Error + Send + Sync>;

fn entry(row: &Row) -> Result<AuditEntry, Strange> {
    let mut entry = match row.get::<_, Option<&str>>(4) {
        Some(noted) => AuditEntry::from_json(noted)?,
        None => {
            let name = LockName::new(row.get::<_, &str>(1))?;
            let event = Event::read(row.get::<_, Option<&str>>(3).unwrap_or_default())?;
            audit_entry(&name, &event, u64::try_from(row.get::<_, i64>(2))?)
        }
    };
    entry.sequence = u64::try_from(row.get::<_, i64>(0))?;
    Ok(entry)
}
