//! `sprag work ls`.

use serde_json::json;
use sprag_work::Row;

use super::board::{age, owner, sign, to_json};
use super::{Outcome, open};
use crate::args::work::Ls;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::table::Table;

/// Lists the items.
pub(super) fn list(args: &Ls, context: &Context) -> Outcome {
    let source = open(context)?;
    let mut board = source.board()?;
    let wanted = |row: &Row| {
        let (name, state) = (row.item.name.as_str(), row.item.place.state.as_str());
        let last = source.is_last(&row.item.place.state);
        match args.only.as_deref().map(|only| only.trim_end_matches('/')) {
            Some(only) => name == only || state == only || name.starts_with(&format!("{only}-")),
            None => args.all || !last,
        }
    };
    board.rows.retain(wanted);
    board.rows.sort_by(|one, other| one.item.rank().cmp(&other.item.rank()));
    let output = &context.output;
    if output.json {
        let items: Vec<_> = board.rows.iter().map(to_json).collect();
        output.answer(json!({"items": items}));
        return Ok(Exit::OK);
    }
    let mut table = Table::new(["ITEM", "STATE", "PRIORITY", "OWNER", "AGE", "LAST SIGN OF LIFE"]);
    for row in &board.rows {
        let (item, priority) = (&row.item, row.item.priority.to_string());
        let (name, place) = (item.name.to_string(), item.place.to_string());
        table.row(vec![name, place, priority, owner(row), age(row), sign(row)]);
    }
    for line in table.lines() {
        output.line(&line);
    }
    for odd in &board.odd {
        output.note(&format!("not an item: {odd}"));
    }
    Ok(Exit::OK)
}
