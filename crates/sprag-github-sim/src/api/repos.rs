//! Repositories.

use serde_json::json;

use super::context::Area;
use super::{Context, Reply, render};
use crate::http::Answer;

pub(super) fn get(context: &mut Context<'_>) -> Reply {
    let repo = context.readable(Area::Issues)?;
    let permission = context.permission(repo);
    Ok(Answer::ok(render::repo(context.world, context.base, repo, permission)))
}

pub(super) fn permission(context: &mut Context<'_>) -> Reply {
    let repo = context.readable(Area::Issues)?;
    let user = context.world.user(context.param("username")).ok_or_else(Answer::not_found)?;
    let word = repo.permission(&user.login).map_or("none", |permission| permission.word());
    // The old field knows only four words.
    let old = if word == "triage" { "read" } else { word };
    let mut user = render::user(context.world, context.base, &user.login);
    user["role_name"] = word.into();
    Ok(Answer::ok(json!({"permission": old, "role_name": word, "user": user})))
}
