//! The audit trail: a stream that the scripts write, with a growing number for each entry.

use sprag_core::audit::{AuditEntry, AuditQuery, TRAIL_LENGTH, audit_entry};
use sprag_core::record::Event;
use sprag_core::{LockName, Operation, Result};

use crate::error::strange_answer;
use crate::script::{Call, Script};
use crate::store::RedisStore;

/// How many entries are fetched at once.
const CHUNK: usize = 1000;

/// Adds what only the client knows.
pub(crate) async fn note(store: &RedisStore, entries: &[AuditEntry]) -> Result<()> {
    let keys = vec![store.keys.trail(), store.keys.trail_counter()];
    let arguments = entries.iter().map(AuditEntry::to_json).collect();
    let call = Call::Script { script: Script::Note, keys, arguments };
    store.way.ask::<u64>(Operation::Audit, &store.keys.trail(), call).await.map(drop)
}

/// What the query asks for, oldest first.
pub(crate) async fn read(store: &RedisStore, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
    let newest_first = query.after == 0;
    let (trail, chunk) = (store.keys.trail(), CHUNK.to_string());
    let mut found = Vec::new();
    let mut seen = 0;
    let mut edge = if newest_first { "+".to_owned() } else { format!("({}-0", query.after) };
    while found.len() < query.page() && seen < TRAIL_LENGTH {
        let words = if newest_first {
            ["XREVRANGE", &trail, &edge, "-", "COUNT", &chunk]
        } else {
            ["XRANGE", &trail, &edge, "+", "COUNT", &chunk]
        };
        let reply: Vec<(String, Vec<String>)> =
            store.way.ask(Operation::Audit, &trail, Call::plain(&words)).await?;
        let Some((last, _)) = reply.last() else { break };
        edge = format!("({last}");
        let room = TRAIL_LENGTH - seen;
        seen += reply.len();
        for (id, fields) in reply.iter().take(room) {
            let field = |name: &str| {
                let found = fields.chunks_exact(2).find(|pair| pair[0] == name);
                found.map(|pair| pair[1].clone()).unwrap_or_default()
            };
            let entry = entry(id, field).map_err(|e| strange_answer(e).during(Operation::Audit))?;
            if query.name.as_ref().is_none_or(|name| *name == entry.name) {
                found.push(entry);
            }
        }
    }
    found.truncate(query.page());
    if newest_first {
        found.reverse();
    }
    Ok(found)
}

type Strange = Box<dyn std::error::Error + Send + Sync>;

fn entry(id: &str, field: impl Fn(&str) -> String) -> Result<AuditEntry, Strange> {
    let noted = field("entry");
    let mut entry = if noted.is_empty() {
        let name = LockName::new(field("name"))?;
        audit_entry(&name, &Event::read(&field("event"))?, field("at").parse()?)
    } else {
        AuditEntry::from_json(&noted)?
    };
    entry.sequence = id.split('-').next().unwrap_or_default().parse()?;
    Ok(entry)
}
