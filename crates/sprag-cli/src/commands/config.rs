//! `sprag config`: the settings and where they come from.

use serde_json::{Value, json};

use super::Outcome;
use crate::args::Config;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::table::Table;

/// Shows the settings.
pub(crate) fn show(args: &Config, context: &Context) -> Outcome {
    let rows = context.settings.rows();
    if context.output.json {
        let settings = rows.iter().map(
            |row| json!({"name": row.name, "value": row.value, "origin": row.origin.to_string()}),
        );
        context.output.answer(json!({"settings": settings.collect::<Vec<Value>>()}));
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
    Ok(Exit::OK)
}
