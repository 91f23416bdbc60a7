//! Comments of issues.

use super::context::Area;
use super::page::page;
use super::{Context, Reply, render};
use crate::http::Answer;
use crate::stamp::Stamp;
use crate::world::{Permission, Repo};

/// How long a comment can be, in characters.
const LONGEST: usize = 65_536;

/// In the order of their ids, the oldest first.
pub(super) fn list(context: &mut Context<'_>) -> Reply {
    let (repo, issue, _) = context.readable_issue()?;
    let since = context.request.query("since").and_then(Stamp::parse).unwrap_or_default();
    let ids = repo.talk.get(&issue.number).into_iter().flatten();
    let comments = ids.filter_map(|id| repo.comments.get(id));
    let seen = comments.filter_map(|it| Some((it, it.versions.at(context.seen)?.as_ref()?)));
    let shown: Vec<_> =
        seen.filter(|(_, state)| state.updated.seconds() >= since.seconds()).collect();
    Ok(page(context, repo.id, &shown, |(comment, state)| {
        render::comment(context.world, context.base, repo, comment, state)
    }))
}

pub(super) fn get(context: &mut Context<'_>) -> Reply {
    let id = context.number("comment_id")?;
    let repo = context.readable(Area::Issues)?;
    let comment = repo.comments.get(&id).ok_or_else(Answer::not_found)?;
    let state = comment.versions.at(context.seen).and_then(Option::as_ref);
    let state = state.ok_or_else(Answer::not_found)?;
    Ok(Answer::ok(render::comment(context.world, context.base, repo, comment, state)))
}

pub(super) fn create(context: &mut Context<'_>) -> Reply {
    let body = body(context)?;
    let login = context.login()?.to_owned();
    let (now, most) = (context.now, context.limits.comments);
    let (repo, number) = context.writable_issue(Permission::Read)?;
    let state = repo.issues[&number].now();
    let may_push = repo.permission(&login).is_some_and(|it| it >= Permission::Write);
    if state.locked && !may_push {
        let message = "Unable to create comment because issue is locked.";
        return Err(Answer::error(403, message));
    }
    if state.comments >= most {
        let message = format!("Commenting is disabled on issues with more than {most} comments");
        return Err(Answer::error(403, &message));
    }
    let id = context.reserved.unwrap_or_else(|| context.world.new_id());
    let (repo, number) = context.writable_issue(Permission::Read)?;
    repo.add_comment(id, number, now, &login, &body);
    answer(context, 201, id)
}

pub(super) fn edit(context: &mut Context<'_>) -> Reply {
    let body = body(context)?;
    let (now, id) = (context.now, context.number("comment_id")?);
    own(context, id)?.edit_comment(id, now, Some(&body));
    answer(context, 200, id)
}

pub(super) fn delete(context: &mut Context<'_>) -> Reply {
    let (now, id) = (context.now, context.number("comment_id")?);
    own(context, id)?.edit_comment(id, now, None);
    Ok(Answer::nothing())
}

/// The repository, if the comment is there and the caller may change it.
fn own<'a>(context: &'a mut Context<'_>, id: u64) -> Result<&'a mut Repo, Answer> {
    let login = context.login()?.to_owned();
    let repo = context.writable(Area::Issues, Permission::Read)?;
    let comment = repo.comments.get(&id).filter(|comment| comment.now().is_some());
    let comment = comment.ok_or_else(Answer::not_found)?;
    let may_push = repo.permission(&login).is_some_and(|it| it >= Permission::Write);
    if comment.author != login && !may_push {
        return Err(Answer::error(403, "Must have admin rights to Repository."));
    }
    Ok(repo)
}

fn answer(context: &Context<'_>, status: u16, id: u64) -> Reply {
    let repo = context.readable(Area::Issues)?;
    let comment = repo.comments.get(&id).ok_or_else(Answer::not_found)?;
    let state = comment.now().ok_or_else(Answer::not_found)?;
    let body = render::comment(context.world, context.base, repo, comment, state);
    Ok(Answer::new(status, body).with("location", format!("{}/comments/{id}", context.base)))
}

fn body(context: &Context<'_>) -> Result<String, Answer> {
    match context.request.text("body") {
        None => Err(Answer::invalid("IssueComment", "body", "missing_field")),
        Some(body) if body.trim().is_empty() => {
            Err(Answer::invalid("IssueComment", "body", "missing_field"))
        }
        Some(body) if body.chars().count() > LONGEST => {
            let mut answer = Answer::invalid("IssueComment", "body", "unprocessable");
            answer.body["errors"][0]["message"] =
                format!("Body is too long (maximum is {LONGEST} characters)").into();
            Err(answer)
        }
        Some(body) => Ok(body.to_owned()),
    }
}
