//! `sprag log`: what happened.

use std::time::Duration;

use serde_json::{Value, json};
use sprag::audit::{AuditEntry, AuditQuery};

use super::Outcome;
use crate::args::Log;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::plain::one_line;
use crate::output::{Output, time};
use crate::store::Opened;

/// How often the trail is looked at with `-f`.
const PAUSE: Duration = Duration::from_millis(500);

/// Shows the end of the audit trail, and goes on with it.
pub(crate) fn show(args: &Log, context: &Context) -> Outcome {
    let opened = Opened::open(&context.settings)?;
    let output = &context.output;
    context.block_on(async {
        // One more than wanted tells whether there are more.
        let limit = args.lines.saturating_add(1);
        let mut query = AuditQuery { name: args.name.clone(), after: 0, limit };
        let mut entries = opened.audit(&query).await?;
        let older = entries.len().saturating_sub(args.lines);
        entries.drain(..older);
        if output.json && !args.follow {
            let entries: Vec<_> = entries.iter().map(to_json).collect();
            output.answer(json!({"entries": entries, "truncated": older > 0}));
            return Ok(Exit::OK);
        }
        if older > 0 && !args.follow {
            output.note("older entries are left out; -n N shows more");
        }
        print(&entries, output);
        if !args.follow {
            return Ok(Exit::OK);
        }
        // Where the trail ends now, whichever lock it is about.
        let newest = AuditQuery { limit: 1, ..AuditQuery::default() };
        let last = |entries: &[AuditEntry]| entries.last().map(|entry| entry.sequence);
        query.after = match last(&entries) {
            Some(last) => last,
            None => last(&opened.audit(&newest).await?).unwrap_or(0),
        };
        query.limit = 0;
        loop {
            tokio::time::sleep(PAUSE).await;
            let mut entries = opened.audit(&query).await?;
            // After nothing at all means from the beginning, not the newest.
            entries.retain(|entry| entry.sequence > query.after);
            print(&entries, output);
            query.after = last(&entries).unwrap_or(query.after);
        }
    })
}

fn print(entries: &[AuditEntry], output: &Output) {
    for entry in entries {
        if output.json {
            output.answer(to_json(entry));
        } else {
            output.line(&line(entry));
        }
    }
}

fn line(entry: &AuditEntry) -> String {
    let AuditEntry { at_unix_ms, kind, name, fence, holder, detail, .. } = entry;
    let token = if fence.get() == 0 { String::new() } else { format!("  token {fence}") };
    let detail = detail.as_ref().map(|detail| format!("  {detail}")).unwrap_or_default();
    let at = time::short(*at_unix_ms);
    let line = format!("{at} {kind:<12}  {name}{token}  {}{detail}", holder.worker_id);
    one_line(&line).into_owned()
}

fn to_json(entry: &AuditEntry) -> Value {
    json!({
        "sequence": entry.sequence,
        "at": time::rfc3339(entry.at_unix_ms),
        "at_unix_ms": entry.at_unix_ms,
        "kind": entry.kind.as_str().replace(' ', "_"),
        "lock": entry.name.as_str(),
        "token": entry.fence.get(),
        "holder": entry.holder.worker_id,
        "host": entry.holder.node_id,
        "reason": entry.holder.reason,
        "detail": entry.detail,
    })
}
