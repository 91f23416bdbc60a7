//! Commits and trees.

use serde_json::Value;

use super::context::Area;
use super::page::page;
use super::refs::not_empty;
use super::{Context, Reply, render};
use crate::hash::hash;
use crate::http::Answer;
use crate::stamp::Stamp;
use crate::world::Permission;
use crate::world::git::{Commit, Person};

pub(super) fn get(context: &mut Context<'_>) -> Reply {
    let repo = not_empty(context.readable(Area::Contents)?)?;
    let oid = context.param("commit_sha");
    let (oid, commit) = repo.git.object(oid, context.seen).ok_or_else(Answer::not_found)?;
    Ok(Answer::ok(render::git_commit(context.base, repo, oid, commit)))
}

/// The history of a branch, or of a commit, the newest first.
pub(super) fn list(context: &mut Context<'_>) -> Reply {
    let repo = not_empty(context.readable(Area::Contents)?)?;
    let start = context.request.query("sha").unwrap_or("main");
    let names = [start.to_owned(), format!("refs/{start}"), format!("refs/heads/{start}")];
    let tip = names.iter().find_map(|name| repo.git.tip_at(name, context.seen));
    let log = repo.git.log(tip.unwrap_or(start), context.seen);
    if log.is_empty() {
        return Err(Answer::not_found());
    }
    Ok(page(context, repo.id, &log, |(oid, commit)| {
        render::commit(context.world, context.base, repo, oid, commit)
    }))
}

pub(super) fn create(context: &mut Context<'_>) -> Reply {
    let request = context.request;
    let (Some(message), Some(tree)) = (request.text("message"), request.text("tree")) else {
        return Err(Answer::error(
            422,
            "Invalid request.\n\n\"message\" or \"tree\" wasn't supplied.",
        ));
    };
    let parents = request.field("parents").and_then(Value::as_array);
    let parents = parents.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let parents: Vec<_> = parents.collect();
    let login = context.login()?.to_owned();
    let now = context.now;
    let author = person(request.field("author"), &login, now)?;
    let committer = match request.field("committer") {
        Some(committer) => person(Some(committer), &login, now)?,
        None => author.clone(),
    };
    let repo = context.writable(Area::Contents, Permission::Write)?;
    not_empty(repo)?;
    if !repo.git.knows_tree(tree) {
        return Err(Answer::error(422, "Tree SHA does not exist"));
    }
    if parents.iter().any(|parent| repo.git.commit(parent).is_none()) {
        return Err(Answer::error(422, "Parent SHA does not exist or is not a commit object"));
    }
    let (tree, message) = (tree.to_owned(), message.to_owned());
    let commit = Commit { tree, parents, message, author, committer, arrived: now };
    let oid = repo.git.add_commit(commit.clone());
    let repo = context.readable(Area::Contents)?;
    let body = render::git_commit(context.base, repo, &oid, &commit);
    Ok(Answer::new(201, body).with("location", format!("{}/commits/{oid}", context.base)))
}

/// Who made a commit, as the body says, or the caller.
fn person(given: Option<&Value>, login: &str, now: Stamp) -> Result<Person, Answer> {
    let Some(given) = given else {
        let email = format!("{login}@users.noreply.github.com");
        return Ok(Person { name: login.to_owned(), email, date: now });
    };
    let text = |field: &str| given.get(field).and_then(Value::as_str).map(str::to_owned);
    let (Some(name), Some(email)) = (text("name"), text("email")) else {
        return Err(Answer::error(
            422,
            "Invalid request.\n\n\"name\", \"email\" weren't supplied.",
        ));
    };
    let date = text("date").map_or(Some(now), |date| Stamp::parse(&date));
    let date = date.ok_or_else(|| Answer::error(422, "Invalid request.\n\nInvalid date."))?;
    Ok(Person { name, email, date })
}

/// A tree of files. What is in it does not matter here; an empty one is refused, as by GitHub.
pub(super) fn create_tree(context: &mut Context<'_>) -> Reply {
    let Some(entries) = context.request.field("tree").and_then(Value::as_array) else {
        return Err(Answer::error(422, "Invalid request.\n\n\"tree\" wasn't supplied."));
    };
    if entries.is_empty() {
        return Err(Answer::error(422, "Invalid tree info"));
    }
    let oid = hash(&Value::from(entries.clone()).to_string());
    let repo = context.writable(Area::Contents, Permission::Write)?;
    not_empty(repo)?;
    repo.git.trees.insert(oid.clone());
    let repo = context.readable(Area::Contents)?;
    Ok(Answer::new(201, render::tree(context.base, repo, &oid, entries)))
}
