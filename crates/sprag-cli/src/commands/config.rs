//! `sprag config`: the settings, where they come from, and which files are trusted.

use serde_json::{Value, json};

use super::Outcome;
use crate::args::{Config, Trust};
use crate::config::{Change, Changed, change_trust};
use crate::context::Context;
use crate::exit::Exit;
use crate::output::Output;
use crate::output::table::Table;

/// Changes what is trusted, if that is asked for. It needs no settings: a file that cannot be used
/// has to be got rid of too.
pub(crate) fn change(args: &Config, output: &Output) -> Option<Outcome> {
    let (change, args) = match args.trust.as_ref()? {
        Trust::Trust(args) => (Change::Trust, args),
        Trust::Untrust(args) => (Change::Untrust, args),
    };
    let done = change_trust(change, args.file.as_deref());
    Some(done.map(|done| say(&done, change, output)))
}

/// Shows the settings.
pub(crate) fn show(args: &Config, context: &Context) -> Outcome {
    let rows = context.settings.rows();
    if context.output.json {
        let settings = rows.iter().map(
            |row| json!({"name": row.name, "value": row.value, "origin": row.origin.to_string()}),
        );
        let project = &context.settings.project;
        let file = project.file.as_ref().map(|(path, standing)| {
            let lines = project
                .demands
                .iter()
                .map(|demand| json!({"line": demand.line, "key": demand.key, "what": demand.what}));
            json!({
                "path": path.display().to_string(),
                "trust": standing.as_str(),
                "does_not_count": lines.collect::<Vec<Value>>(),
            })
        });
        context
            .output
            .answer(json!({"settings": settings.collect::<Vec<Value>>(), "project": file}));
        return Ok(Exit::OK);
    }
    let mut table = Table::default();
    for row in rows {
        let mut cells = vec![row.name, row.value.unwrap_or_else(|| "-".into())];
        if args.show_origin {
            cells.push(row.origin.to_string());
        }
        table.row(cells);
    }
    for line in table.lines() {
        context.output.line(&line);
    }
    if !context.settings.project.demands.is_empty() {
        let hint = context.output.out.note("hint:");
        context.output.line(&format!("{hint} if you trust that file  sprag config trust"));
    }
    Ok(Exit::OK)
}

fn say(done: &Changed, change: Change, output: &Output) -> Exit {
    let path = done.path.display().to_string();
    if output.json {
        let lines = done
            .demands
            .iter()
            .map(|demand| json!({"line": demand.line, "key": demand.key, "what": demand.what}));
        let (trusted, lines) = (change == Change::Trust, lines.collect::<Vec<Value>>());
        output.answer(
            json!({"changed": done.changed, "path": path, "trusted": trusted, "counts": lines}),
        );
        return Exit::OK;
    }
    let word = match (change, done.changed) {
        (Change::Trust, true) => "trusted from now on, until its content changes",
        (Change::Trust, false) => "was trusted already",
        (Change::Untrust, true) => "is not trusted any more",
        (Change::Untrust, false) => "was not trusted",
    };
    output.line(&format!("{path}: {word}"));
    for demand in &done.demands {
        output.line(&format!("  line {}: {} {}", demand.line, demand.key, demand.what));
    }
    Exit::OK
}
