//! Accounts, and what is left of their limits.

use super::{Context, Reply, render};
use crate::http::Answer;

pub(super) fn rate_limit(context: &mut Context<'_>) -> Reply {
    Ok(Answer::ok(context.rates.clone()))
}

pub(super) fn me(context: &mut Context<'_>) -> Reply {
    let login = context.login()?;
    Ok(Answer::ok(render::account(context.world, context.base, login))
        .with("x-oauth-scopes", "repo"))
}

pub(super) fn user(context: &mut Context<'_>) -> Reply {
    let user = context.world.user(context.param("username")).ok_or_else(Answer::not_found)?;
    Ok(Answer::ok(render::account(context.world, context.base, &user.login)))
}
