//! The audit trail: a stream that the scripts write, with a growing number for each entry.

use redis::streams::StreamRangeReply;
use serde::Deserialize;
use sprag_core::audit::{AuditEntry, AuditQuery, TRAIL_LENGTH, audit_entries};
use sprag_core::record::{Applied, Event, EventKind, Outcome, Record};
use sprag_core::{Fence, Holder, LeaseId, LockName, Loss, Mode, Operation, Result, SessionId};

use crate::error::strange_answer;
use crate::script::{Call, Script};
use crate::store::RedisStore;

/// How many entries are fetched at once.
const CHUNK: usize = 1000;

/// An event as `scripts/lock.lua` writes it.
#[derive(Deserialize)]
pub(crate) struct Written {
    kind: Kind,
    lease: LeaseId,
    session: Option<SessionId>,
    fence: Fence,
    mode: Mode,
    holder: Holder,
    after_ms: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Granted,
    Gone(Loss),
}

impl From<Written> for Event {
    fn from(written: Written) -> Self {
        Self {
            kind: match written.kind {
                Kind::Granted => EventKind::Granted,
                Kind::Gone(loss) => EventKind::Gone(loss),
            },
            lease: written.lease,
            session: written.session,
            fence: written.fence,
            mode: written.mode,
            holder: written.holder,
            after_ms: written.after_ms,
        }
    }
}

/// Adds what only the client knows.
pub(crate) async fn note(store: &RedisStore, entries: &[AuditEntry]) -> Result<()> {
    let keys = vec![store.keys.trail(), store.keys.trail_counter()];
    let arguments = entries.iter().map(AuditEntry::to_json).collect();
    let call = Call::Script { script: Script::Note, keys, arguments };
    store.ask::<u64>(Operation::Audit, call).await.map(drop)
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
        let reply: StreamRangeReply = store.ask(Operation::Audit, Call::plain(&words)).await?;
        let Some(last) = reply.ids.last() else { break };
        edge = format!("({}", last.id);
        let room = TRAIL_LENGTH - seen;
        seen += reply.ids.len();
        for id in reply.ids.iter().take(room) {
            let field = |name: &str| id.get::<String>(name).unwrap_or_default();
            let entry =
                entry(&id.id, field).map_err(|e| strange_answer(e).during(Operation::Audit))?;
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
        let written: Written = serde_json::from_str(&field("event"))?;
        let (record, outcome, events) = (Record::default(), Outcome::Done, vec![written.into()]);
        let applied = Applied { record, changed: true, outcome, events };
        let name = LockName::new(field("name"))?;
        let entries = audit_entries(&name, &applied, field("at").parse()?);
        entries.into_iter().next().ok_or("an event without a fence")?
    } else {
        AuditEntry::from_json(&noted)?
    };
    entry.sequence = id.split('-').next().unwrap_or_default().parse()?;
    Ok(entry)
}
