//! Issues.

use serde_json::Value;

use super::context::Area;
use super::page::page;
use super::{Context, Reply, assignees, labels, render};
use crate::http::Answer;
use crate::stamp::Stamp;
use crate::world::Permission;
use crate::world::issue::{Fate, Issue, IssueState};

pub(super) fn get(context: &mut Context<'_>) -> Reply {
    let (repo, issue, state) = context.readable_issue()?;
    Ok(Answer::ok(render::issue(context.world, context.base, repo, issue, state)))
}

/// The issue as it is after a write.
pub(super) fn answer(context: &Context<'_>, status: u16, number: u64) -> Reply {
    let repo = context.readable(Area::Issues)?;
    let issue = repo.issues.get(&number).ok_or_else(Answer::not_found)?;
    let body = render::issue(context.world, context.base, repo, issue, issue.now());
    Ok(Answer::new(status, body))
}

pub(super) fn list(context: &mut Context<'_>) -> Reply {
    let repo = context.readable(Area::Issues)?;
    let query = |name| context.request.query(name);
    let wanted = |state: &IssueState| {
        let right_state = match query("state").unwrap_or("open") {
            "all" => true,
            word => state.open == (word == "open"),
        };
        let mut labels = query("labels").unwrap_or_default().split(',').filter(|l| !l.is_empty());
        let has = |label: &str| state.labels.iter().any(|other| other.eq_ignore_ascii_case(label));
        let right_assignee = match query("assignee") {
            None | Some("*") if state.assignees.is_empty() => query("assignee").is_none(),
            None | Some("*") => true,
            Some("none") => state.assignees.is_empty(),
            Some(login) => state.assignees.iter().any(|other| other.eq_ignore_ascii_case(login)),
        };
        let since = query("since").and_then(Stamp::parse).unwrap_or(Stamp::BEGINNING);
        let new_enough = state.updated.seconds() >= since.seconds();
        state.fate == Fate::Here && right_state && labels.all(has) && right_assignee && new_enough
    };
    let seen = repo.issues.values();
    let seen = seen.filter_map(|issue| Some((issue, issue.versions.at(context.seen)?)));
    let mut shown: Vec<_> = seen.filter(|(_, state)| wanted(state)).collect();
    sort(&mut shown, query("sort").unwrap_or("created"), query("direction").unwrap_or("desc"));
    Ok(page(context, repo.id, &shown, |(issue, state)| {
        render::issue(context.world, context.base, repo, issue, state)
    }))
}

pub(super) fn sort(issues: &mut [(&Issue, &IssueState)], by: &str, direction: &str) {
    issues.sort_by_key(|(issue, state)| match by {
        "updated" => (state.updated.seconds(), issue.number),
        "comments" => (state.comments, issue.number),
        _ => (issue.created.seconds(), issue.number),
    });
    if direction == "desc" {
        issues.reverse();
    }
}

pub(super) fn create(context: &mut Context<'_>) -> Reply {
    let title = match context.request.field("title") {
        Some(Value::String(title)) if !title.trim().is_empty() => title.clone(),
        _ => return Err(Answer::invalid("Issue", "title", "missing_field")),
    };
    let body = context.request.text("body").unwrap_or_default().to_owned();
    let login = context.login()?.to_owned();
    let now = context.now;
    context.writable(Area::Issues, Permission::Read)?;
    let id = context.reserved.unwrap_or_else(|| context.world.new_id());
    let repo = context.writable(Area::Issues, Permission::Read)?;
    let number = repo.add_issue(id, (now, now), (&login, &title, &body), None);
    apply_lists(context, number)?;
    answer(context, 201, number)
}

pub(super) fn edit(context: &mut Context<'_>) -> Reply {
    let login = context.login()?.to_owned();
    let now = context.now;
    let request = context.request;
    let (repo, number) = context.writable_issue(Permission::Read)?;
    let may = repo.permission(&login).is_some_and(|permission| permission >= Permission::Triage);
    if !may && repo.issues[&number].author != login {
        return Err(Answer::error(403, "Must have admin rights to Repository."));
    }
    repo.edit_issue(number, now, |state| {
        for (name, part) in [("title", &mut state.title), ("body", &mut state.body)] {
            if let Some(text) = request.text(name) {
                text.clone_into(part);
            }
        }
        match request.text("state") {
            Some("closed") if state.open => {
                state.open = false;
                state.closed = Some(now);
                let reason = request.text("state_reason").unwrap_or("completed");
                state.reason = Some(reason.to_owned());
            }
            Some("open") if !state.open => {
                state.open = true;
                state.closed = None;
                state.reason = Some("reopened".to_owned());
            }
            _ => {}
        }
    });
    apply_lists(context, number)?;
    answer(context, 200, number)
}

/// `assignees` and `labels` of the body replace what is there; without the right to, nothing is.
fn apply_lists(context: &mut Context<'_>, number: u64) -> Result<(), Answer> {
    let login = context.login()?.to_owned();
    let now = context.now;
    let assignees = context.request.field("assignees").map(|_| assignees::names(context));
    let labels = context.request.field("labels").map(labels::names);
    let label_ids: Vec<_> = labels.iter().flatten().map(|_| context.world.new_id()).collect();
    let repo = context.writable(Area::Issues, Permission::Read)?;
    if repo.permission(&login).is_none_or(|permission| permission < Permission::Triage) {
        return Ok(());
    }
    if let Some(mut names) = assignees {
        names.retain(|login| repo.is_assignable(login));
        names.truncate(assignees::MOST);
        repo.edit_issue(number, now, |state| state.assignees = names);
    }
    if let Some(names) = labels {
        for (name, id) in names.iter().zip(label_ids) {
            repo.labels.entry(name.clone()).or_insert(id);
        }
        repo.edit_issue(number, now, |state| state.labels = names);
    }
    Ok(())
}

pub(super) fn lock(context: &mut Context<'_>) -> Reply {
    set_locked(context, true)
}

pub(super) fn unlock(context: &mut Context<'_>) -> Reply {
    set_locked(context, false)
}

fn set_locked(context: &mut Context<'_>, locked: bool) -> Reply {
    let now = context.now;
    let (repo, number) = context.writable_issue(Permission::Write)?;
    repo.edit_issue(number, now, |state| state.locked = locked);
    Ok(Answer::nothing())
}
