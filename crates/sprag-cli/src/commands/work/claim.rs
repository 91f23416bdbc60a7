//! `sprag work claim`.

use std::time::Duration;

use serde_json::json;
use sprag_work::{CLAIM_TTL, How, Task};

use super::{Outcome, leftovers, open, say_leftovers, span};
use crate::args::work::Claim;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::plain::one_line;

/// Claims an item and leaves it claimed.
pub(super) fn claim(args: &Claim, context: &Context) -> Outcome {
    let source = open(context)?;
    let ttl = kept_for(args.ttl, context)?;
    let how = How { worktree: args.worktree, ttl: Some(ttl), ..How::default() };
    let claim = source.claim_named(&args.item, &how)?;
    let task = claim.keep(ttl)?;
    say(&task, context);
    Ok(Exit::OK)
}

/// How long a claim without a process lasts.
pub(super) fn kept_for(given: Option<Duration>, context: &Context) -> Result<Duration, Failure> {
    match given {
        Some(ttl) => Ok(ttl),
        None => span(context.settings.work.claim_ttl.as_deref(), CLAIM_TTL, "claim_ttl"),
    }
}

/// Says what was claimed.
pub(super) fn say(task: &Task, context: &Context) {
    if context.output.json {
        context.output.answer(json!({
            "changed": true,
            "item": task.item.name.as_str(),
            "state": task.item.place.state.as_str(),
            "category": task.item.place.category,
            "branch": task.branch,
            "token": task.fence.get(),
            "worktree": task.has_worktree.then(|| task.directory.display().to_string()),
            "path": task.path().map(|path| path.display().to_string()),
            "issue": task.issue.as_ref().map(|issue| issue.number),
            "title": task.issue.as_ref().map(|issue| issue.title.as_str()),
            "leftovers": leftovers(&task.leftovers),
        }));
        return;
    }
    say_leftovers(&task.leftovers, context);
    context.output.line(&text(task));
    if task.has_worktree {
        context.output.line(&format!("worktree {}", task.directory.display()));
    }
}

/// What was claimed, in one line.
pub(super) fn text(task: &Task) -> String {
    let Task { item, branch, fence, issue, .. } = task;
    let about = match (branch, issue) {
        (Some(branch), _) => format!(" in {}, branch {branch}", item.place),
        (None, Some(issue)) => format!(": {}", issue.title),
        (None, None) => String::new(),
    };
    one_line(&format!("claimed {} (token {fence}){about}", item.name)).into_owned()
}
