//! `sprag work recover`.

use serde_json::{Value, json};
use sprag_work::{Fate, Recover as Options, Recovered};

use super::{Outcome, leftovers, open_git};
use crate::args::work::Recover;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::plain::one_line;

/// Frees the claims of the dead.
pub(super) fn recover(args: &Recover, context: &Context) -> Outcome {
    let source = open_git(context)?;
    let options =
        Options { dry_run: args.dry_run, assume_dead: args.assume_dead, items: args.items.clone() };
    let done = source.recover(&options)?;
    let output = &context.output;
    if output.json {
        let changed = done.iter().any(|one| matches!(one.fate, Fate::Freed | Fate::CleanedUp));
        let all: Vec<_> = done.iter().map(to_json).collect();
        output.answer(json!({"changed": changed, "claims": all}));
        return Ok(Exit::OK);
    }
    if done.is_empty() {
        output.line("no claim of a dead worker was found");
    }
    for one in &done {
        output.line(&text(one));
    }
    Ok(Exit::OK)
}

fn text(one: &Recovered) -> String {
    let Recovered { item, worker, signs, fate, rescued, leftovers } = one;
    let did = match fate {
        Fate::Freed => "freed",
        Fate::WouldFree => "would free",
        Fate::CleanedUp => "cleaned up after",
        Fate::WouldCleanUp => "would clean up after",
        Fate::Changed => "left alone, it changed meanwhile:",
    };
    let kept = match &rescued[..] {
        [] => String::new(),
        kept => format!(", its commits are kept in {}", kept.join(" and ")),
    };
    let owner = worker.as_ref().map(|worker| format!("owner {worker}, ")).unwrap_or_default();
    let mut text = one_line(&format!("{did} {item}: {owner}{signs}{kept}")).into_owned();
    for leftover in leftovers {
        text.push_str(&format!("\n  {}", one_line(&leftover.to_string())));
    }
    text
}

fn to_json(one: &Recovered) -> Value {
    let fate = match one.fate {
        Fate::Freed => "freed",
        Fate::WouldFree => "would_free",
        Fate::CleanedUp => "cleaned_up",
        Fate::WouldCleanUp => "would_clean_up",
        Fate::Changed => "changed",
    };
    json!({
        "item": one.item.as_str(),
        "worker": one.worker,
        "signs": one.signs,
        "fate": fate,
        "rescued": one.rescued,
        "leftovers": leftovers(&one.leftovers),
    })
}
