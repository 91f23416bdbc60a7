//! `sprag work stats`.

use serde_json::json;

use super::{Outcome, open};
use crate::code::Code;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::table::Table;

/// Shows how the work goes.
pub(super) fn stats(context: &Context) -> Outcome {
    let stats = open(context)?.stats()?;
    let output = &context.output;
    if output.json {
        let mut fields = serde_json::to_value(&stats)
            .map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
        fields["success_rate"] = json!(stats.success_rate());
        fields["contention"] = json!(stats.contention());
        output.answer(fields);
        return Ok(Exit::OK);
    }
    let share = |share: Option<f64>, text: fn(f64) -> String| share.map_or("-".to_owned(), text);
    let mut table = Table::default();
    let mut row = |what: &str, value: String| table.row(vec![what.to_owned(), value]);
    let by_hand = stats.by_hand;
    row("active claims", format!("{} ({by_hand} by hand)", stats.active_claims));
    row("stale", stats.stale.to_string());
    if let Some(moved) = stats.moved_in_a_day {
        row("moved in 24h", moved.to_string());
    }
    row("claims in the log", format!("{} ({} lost or broken)", stats.claims, stats.lost));
    row("claims tried here", stats.attempts_here.to_string());
    row("success rate here", share(stats.success_rate(), |rate| format!("{:.0}%", rate * 100.0)));
    row("contention here", share(stats.contention(), |rate| format!("{rate:.2} lost per won")));
    for (state, count) in &stats.items {
        row(&format!("items in {state}"), count.to_string());
    }
    table.lines().iter().for_each(|line| output.line(line));
    Ok(Exit::OK)
}
