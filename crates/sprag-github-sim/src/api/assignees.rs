//! Who is assigned to an issue: a set that grows, never a lock.

use super::context::Area;
use super::{Context, Reply, issues};
use crate::http::Answer;
use crate::world::Permission;

/// How many accounts an issue can be assigned to.
pub(super) const MOST: usize = 10;

pub(super) fn check(context: &mut Context<'_>) -> Reply {
    let repo = context.readable(Area::Issues)?;
    let assignee = context.param("assignee");
    let known = context.world.user(assignee).is_some() && repo.is_assignable(assignee);
    if known { Ok(Answer::nothing()) } else { Err(Answer::not_found()) }
}

/// Adds; whoever is there already stays. Who cannot be assigned is left out without a word, and
/// so is everybody if the caller may not push.
pub(super) fn add(context: &mut Context<'_>) -> Reply {
    change(context, 201, |assignees, wanted| {
        for login in wanted {
            let known = assignees.iter().any(|other| other.eq_ignore_ascii_case(&login));
            if !known && assignees.len() < MOST {
                assignees.push(login);
            }
        }
    })
}

pub(super) fn remove(context: &mut Context<'_>) -> Reply {
    change(context, 200, |assignees, unwanted| {
        let gone = |login: &String| unwanted.iter().any(|other| other.eq_ignore_ascii_case(login));
        assignees.retain(|login| !gone(login));
    })
}

fn change(
    context: &mut Context<'_>,
    status: u16,
    change: impl FnOnce(&mut Vec<String>, Vec<String>),
) -> Reply {
    let login = context.login()?.to_owned();
    let now = context.now;
    let wanted = names(context);
    let (repo, number) = context.writable_issue(Permission::Read)?;
    let may = repo.permission(&login).is_some_and(|permission| permission >= Permission::Triage);
    let wanted: Vec<_> = wanted.into_iter().filter(|login| repo.is_assignable(login)).collect();
    if may {
        let before = &repo.issues[&number].now().assignees;
        let mut after = before.clone();
        change(&mut after, wanted);
        if *before != after {
            repo.edit_issue(number, now, |state| state.assignees = after);
        }
    }
    issues::answer(context, status, number)
}

/// The accounts of the body that exist, in the spelling they have.
pub(super) fn names(context: &Context<'_>) -> Vec<String> {
    let list = context.request.field("assignees").and_then(|list| list.as_array());
    let names = list.into_iter().flatten().filter_map(|name| name.as_str());
    names.filter_map(|name| context.world.user(name)).map(|user| user.login.clone()).collect()
}
