//! References: the one thing here that compares before it writes.

use serde_json::Value;

use super::context::Area;
use super::{Context, Reply, render};
use crate::http::Answer;
use crate::world::git::{Refusal, Update};
use crate::world::{Permission, Repo};

/// What an empty repository says to everything about git.
pub(super) fn not_empty(repo: &Repo) -> Result<&Repo, Answer> {
    if repo.git.is_empty() {
        return Err(Answer::error(409, "Git Repository is empty."));
    }
    Ok(repo)
}

pub(super) fn get(context: &mut Context<'_>) -> Reply {
    let repo = not_empty(context.readable(Area::Contents)?)?;
    let name = format!("refs/{}", context.param("ref"));
    let oid = repo.git.tip_at(&name, context.seen).ok_or_else(Answer::not_found)?;
    Ok(Answer::ok(render::reference(context.base, repo, &name, oid)))
}

pub(super) fn matching(context: &mut Context<'_>) -> Reply {
    let repo = not_empty(context.readable(Area::Contents)?)?;
    let found = repo.git.matching(&format!("refs/{}", context.param("ref")), context.seen);
    let refs = found.iter().map(|(name, oid)| render::reference(context.base, repo, name, oid));
    Ok(Answer::ok(refs.collect()))
}

pub(super) fn create(context: &mut Context<'_>) -> Reply {
    let (name, sha) = (text(context, "ref")?, text(context, "sha")?);
    if !name.starts_with("refs/") || name.matches('/').count() < 2 || !is_fit(&name) {
        return Err(Answer::error(422, &format!("{name} is not a valid ref name.")));
    }
    change(context, 201, Update { name, before: Some(None), after: Some(sha), force: false })
}

pub(super) fn update(context: &mut Context<'_>) -> Reply {
    let (name, sha) = (format!("refs/{}", context.param("ref")), text(context, "sha")?);
    let force = context.request.field("force").and_then(Value::as_bool).unwrap_or_default();
    let repo = context.writable(Area::Contents, Permission::Write)?;
    if !repo.git.is_empty() && repo.git.tip(&name).is_none() {
        return Err(Answer::error(422, "Reference does not exist"));
    }
    change(context, 200, Update { name, before: None, after: Some(sha), force })
}

pub(super) fn delete(context: &mut Context<'_>) -> Reply {
    let name = format!("refs/{}", context.param("ref"));
    change(context, 204, Update { name, before: None, after: None, force: true })
}

fn change(context: &mut Context<'_>, status: u16, update: Update) -> Reply {
    let now = context.now;
    let repo = context.writable(Area::Contents, Permission::Write)?;
    not_empty(repo)?;
    repo.git
        .update(now, std::slice::from_ref(&update))
        .map_err(|(_, refusal)| Answer::error(422, words(refusal)))?;
    let Some(oid) = update.after else { return Ok(Answer::nothing()) };
    let repo = context.readable(Area::Contents)?;
    let body = render::reference(context.base, repo, &update.name, &oid);
    Ok(Answer::new(status, body).with("location", format!("{}/{}", context.base, update.name)))
}

pub(crate) const fn words(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Exists => "Reference already exists",
        Refusal::Missing => "Reference does not exist",
        Refusal::NoObject => "Object does not exist",
        Refusal::NotForward => "Update is not a fast forward",
        Refusal::InTheWay | Refusal::Elsewhere => "Reference update failed",
    }
}

/// Whether git takes such a name.
pub(crate) fn is_fit(name: &str) -> bool {
    let forbidden = |c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c);
    let bad = |part: &str| {
        part.is_empty() || part.starts_with('.') || part.ends_with('.') || part.ends_with(".lock")
    };
    !name.contains("..")
        && !name.contains("@{")
        && !name.contains(forbidden)
        && !name.split('/').any(bad)
}

fn text(context: &Context<'_>, field: &str) -> Result<String, Answer> {
    let text = context.request.text(field);
    let missing =
        || Answer::error(422, &format!("Invalid request.\n\n\"{field}\" wasn't supplied."));
    text.map(str::to_owned).ok_or_else(missing)
}
