//! Labels of issues.

use serde_json::Value;

use super::context::Area;
use super::{Context, Reply, render};
use crate::http::{Answer, Body};
use crate::world::Permission;

pub(super) fn list(context: &mut Context<'_>) -> Reply {
    let (repo, _, state) = context.readable_issue()?;
    let labels = state.labels.iter().map(|name| render::label(context.base, repo, name));
    Ok(Answer::ok(labels.collect()))
}

pub(super) fn add(context: &mut Context<'_>) -> Reply {
    let wanted = wanted(context);
    change(context, wanted, |labels, wanted| {
        for name in wanted {
            if !labels.iter().any(|other| other.eq_ignore_ascii_case(&name)) {
                labels.push(name);
            }
        }
    })
}

pub(super) fn set(context: &mut Context<'_>) -> Reply {
    let wanted = wanted(context);
    change(context, wanted, |labels, wanted| *labels = wanted)
}

pub(super) fn remove(context: &mut Context<'_>) -> Reply {
    let name = context.param("name").to_owned();
    let (repo, number) = context.writable_issue(Permission::Triage)?;
    let is_it = |other: &String| other.eq_ignore_ascii_case(&name);
    if !repo.issues[&number].now().labels.iter().any(is_it) {
        return Err(Answer::error(404, "Label does not exist"));
    }
    change(context, Vec::new(), |labels, _| labels.retain(|other| !is_it(other)))
}

fn change(
    context: &mut Context<'_>,
    wanted: Vec<String>,
    change: impl FnOnce(&mut Vec<String>, Vec<String>),
) -> Reply {
    let now = context.now;
    let ids: Vec<_> = wanted.iter().map(|_| context.world.new_id()).collect();
    let (repo, number) = context.writable_issue(Permission::Triage)?;
    for (name, id) in wanted.iter().zip(ids) {
        repo.labels.entry(name.clone()).or_insert(id);
    }
    repo.edit_issue(number, now, |state| change(&mut state.labels, wanted));
    let names = repo.issues[&number].now().labels.clone();
    let repo = context.readable(Area::Issues)?;
    Ok(Answer::ok(names.iter().map(|name| render::label(context.base, repo, name)).collect()))
}

fn wanted(context: &Context<'_>) -> Vec<String> {
    match &context.request.body {
        Body::Json(list @ Value::Array(_)) => names(list),
        Body::Json(body) => body.get("labels").map(names).unwrap_or_default(),
        Body::None | Body::Broken => Vec::new(),
    }
}

/// Labels come as texts, or as objects with a name.
pub(super) fn names(list: &Value) -> Vec<String> {
    let name =
        |label: &Value| label.as_str().or_else(|| label.get("name")?.as_str()).map(str::to_owned);
    list.as_array().into_iter().flatten().filter_map(name).collect()
}
