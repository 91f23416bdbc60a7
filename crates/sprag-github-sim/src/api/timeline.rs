//! The timeline of an issue: which pull requests mention it.

use serde_json::json;

use super::page::page;
use super::{Context, Reply, render};

pub(super) fn list(context: &mut Context<'_>) -> Reply {
    let (repo, issue, _) = context.readable_issue()?;
    let pulls: Vec<_> = repo.closers(issue.number).collect();
    Ok(page(context, repo.id, &pulls, |pull| {
        let state = pull.versions.at(context.seen).unwrap_or_else(|| pull.now());
        json!({
            "event": "cross-referenced",
            "actor": render::user(context.world, context.base, &pull.author),
            "created_at": pull.created.iso(),
            "updated_at": pull.created.iso(),
            "source": {
                "type": "issue",
                "issue": render::issue(context.world, context.base, repo, pull, state),
            },
        })
    }))
}
