//! `sprag work board`.

use std::time::Duration;

use serde_json::{Value, json};
use sprag_work::Row;

use super::{Outcome, open};
use crate::context::Context;
use crate::exit::Exit;
use crate::output::table::Table;
use crate::output::time;
use crate::output::view::millis;

/// Shows all items by state.
pub(super) fn board(context: &Context) -> Outcome {
    let source = open(context)?;
    let board = source.board()?;
    let output = &context.output;
    if output.json {
        let items: Vec<_> = board.rows.iter().map(to_json).collect();
        let odd = board.odd.iter().map(|odd| json!({"item": odd.item, "why": odd.why}));
        output.answer(json!({"items": items, "odd": odd.collect::<Vec<_>>()}));
        return Ok(Exit::OK);
    }
    let mut states: Vec<&str> = Vec::new();
    for row in &board.rows {
        let state = row.item.place.state.as_str();
        if !states.contains(&state) {
            states.push(state);
        }
    }
    for state in states {
        let rows: Vec<_> =
            board.rows.iter().filter(|row| row.item.place.state.as_str() == state).collect();
        output.line(&output.out.strong(&format!("{state} ({})", rows.len())));
        let mut table = Table::default();
        for row in rows {
            let category = row.item.place.category.clone().unwrap_or_else(|| "-".to_owned());
            let name = format!("  {}", row.item.name);
            table.row(vec![name, category, owner(row), age(row), sign(row)]);
        }
        table.lines().iter().for_each(|line| output.line(line));
    }
    let claimed = board.rows.iter().filter(|row| row.owner.is_some()).count();
    let stale = board.rows.iter().filter_map(|row| row.owner.as_ref()).filter(|o| o.stale).count();
    let stale = if stale == 0 { String::new() } else { format!(", {stale} stale") };
    output.line(&format!("{} items, {claimed} claimed{stale}", board.rows.len()));
    for odd in &board.odd {
        output.note(&format!("not an item: {odd}"));
    }
    Ok(Exit::OK)
}

/// Who has an item.
pub(super) fn owner(row: &Row) -> String {
    match &row.owner {
        None => "-".to_owned(),
        Some(owner) => match (&owner.worker, &owner.assignee) {
            (Some(worker), _) => worker.clone(),
            (None, Some(person)) => format!("@{person}"),
            (None, None) => "(by hand)".to_owned(),
        },
    }
}

/// How long an item is in its state.
pub(super) fn age(row: &Row) -> String {
    row.item.since.map_or_else(|| "-".to_owned(), |since| time::span(whole(since)))
}

fn whole(since: u64) -> Duration {
    Duration::from_secs(time::ago(since.saturating_mul(1000)).as_secs())
}

/// The last sign of life of whoever has an item.
pub(super) fn sign(row: &Row) -> String {
    let Some(owner) = &row.owner else { return "-".to_owned() };
    let silent = owner.silent.map(|silent| time::span(Duration::from_secs(silent.as_secs())));
    match (&owner.worker, silent) {
        (None, _) => match &owner.branch {
            Some(branch) => format!("branch {branch}"),
            None => "assigned by hand".to_owned(),
        },
        (_, Some(silent)) if owner.stale => format!("STALE: silent for {silent}"),
        (_, Some(silent)) => format!("seen {silent} ago"),
        (_, None) => "alive".to_owned(),
    }
}

/// An item, for programs.
pub(super) fn to_json(row: &Row) -> Value {
    let owner = row.owner.as_ref().map(|owner| {
        json!({
            "worker": owner.worker,
            "branch": owner.branch,
            "assignee": owner.assignee,
            "token": owner.fence.get(),
            "since": owner.since_unix_ms.map(time::rfc3339),
            "ttl_ms": millis(owner.ttl),
            "silent_ms": owner.silent.map(millis),
            "detached": owner.detached,
            "stale": owner.stale,
        })
    });
    json!({
        "item": row.item.name.as_str(),
        "state": row.item.place.state.as_str(),
        "category": row.item.place.category,
        "priority": row.item.priority,
        "left": row.item.left.as_ref().map(|left| left.as_str()),
        "since": row.item.since.map(|since| time::rfc3339(since.saturating_mul(1000))),
        "owner": owner,
    })
}
