//! `sprag work`: items in a git repository, or issues on GitHub. One file per verb.

mod advance;
mod board;
mod claim;
mod done;
mod init;
mod ls;
mod new;
mod next;
mod pending;
mod recover;
mod release;
mod resume;
mod run;
mod stamp;
mod stats;

use std::time::Duration;

use serde_json::{Value, json};
use sprag_work::{
    Claim, ErrorKind, Finished, GitHubSource, GitSource, Items, Leftover, Outcome as Result_,
    Place, Spans,
};

use super::Outcome;
use crate::args::work::{Verb, Work};
use crate::code::Code;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::identity;
use crate::output::time;

/// Does what was asked for.
pub(crate) fn work(args: &Work, context: &Context) -> Outcome {
    match &args.verb {
        Verb::Init(args) => init::init(args, context),
        Verb::New(args) => new::new(args, context),
        Verb::Stamp(args) => stamp::stamp(args, context),
        Verb::Ls(args) => ls::list(args, context),
        Verb::Next(args) => next::next(args, context),
        Verb::Run(args) => run::run(args, context),
        Verb::Claim(args) => claim::claim(args, context),
        Verb::Advance(args) => advance::advance(args, context),
        Verb::Pending(args) => pending::pending(args, context),
        Verb::Resume(args) => resume::resume(args, context),
        Verb::Done(args) => done::done(args, context),
        Verb::Release(args) => release::release(args, context),
        Verb::Recover(args) => recover::recover(args, context),
        Verb::Board(_) => board::board(context),
        Verb::Stats(_) => stats::stats(context),
    }
}

/// The items that the rules speak of.
fn open(context: &Context) -> Result<Box<dyn Items>, Failure> {
    let rules = &context.settings.work;
    match rules.source.as_deref() {
        None | Some("git") => Ok(Box::new(open_git(context)?)),
        Some("github") => {
            let github = rules.github.clone().unwrap_or_default();
            let known = Spans::default();
            let spans = Spans {
                lag: span(github.lag.as_deref(), known.lag, "lag")?,
                status_ttl: span(github.status_ttl.as_deref(), known.status_ttl, "status_ttl")?,
                run_ttl: span(rules.run_ttl.as_deref(), known.run_ttl, "run_ttl")?,
            };
            let holder = identity::holder(&context.settings);
            Ok(Box::new(GitHubSource::open(&github, spans, holder)?))
        }
        Some(other) => {
            let message =
                format!("source = {other:?} below [work] is not known: use \"git\" or \"github\"");
            Err(Failure::new(Code::Config, message))
        }
    }
}

/// The items of the repository that we stand in, for what only they can do.
fn open_git(context: &Context) -> Result<GitSource, Failure> {
    let rules = &context.settings.work;
    if rules.source.as_deref() == Some("github") {
        let message = "that is for items in a git repository, and source = \"github\" is below \
                       [work]: issues are made, labelled and closed on GitHub";
        return Err(Failure::new(Code::Usage, message)
            .hint("make one", "gh issue create")
            .hint("see what there is", "sprag work ls")
            .hint("work on the next one", "sprag work next -- COMMAND"));
    }
    let here = std::env::current_dir().map_err(|error| {
        Failure::new(Code::Repository, format!("the directory is gone: {error}"))
    })?;
    let source = GitSource::open(&here, rules, identity::holder(&context.settings))?;
    Ok(source.run_ttl(span(rules.run_ttl.as_deref(), sprag_work::RUN_TTL, "run_ttl")?))
}

/// A duration of the rules.
fn span(text: Option<&str>, default: Duration, what: &str) -> Result<Duration, Failure> {
    let Some(text) = text else { return Ok(default) };
    let bad = |error| Failure::new(Code::Config, format!("{what} below [work]: {error}"));
    time::parse(text).map_err(bad)
}

/// The item whose worktree we are in.
fn item_here(given: Option<&str>, source: &dyn Items) -> Result<String, Failure> {
    if let Some(item) = given {
        return Ok(item.to_owned());
    }
    let here = std::env::current_dir().unwrap_or_default();
    source.claimed_in(&here).map(|item| item.to_string()).ok_or_else(|| {
        Failure::new(Code::Usage, "which item? it is not clear from where you are")
            .hint("see what is claimed", "sprag work board")
    })
}

/// Ends a claim and says what became of the item.
fn finish(claim: Box<dyn Claim>, outcome: Result_, context: &Context) -> Outcome {
    let finished = claim.finish(outcome)?;
    say(&finished, context);
    Ok(Exit::OK)
}

/// Says what became of an item.
fn say(finished: &Finished, context: &Context) {
    let Finished { item, from, to, commits, left_on, .. } = finished;
    if context.output.json {
        context.output.answer(to_json(finished));
        return;
    }
    say_leftovers(&finished.leftovers, context);
    if from == to {
        let left = left_on.as_ref().map(|branch| format!(", its work is on branch {branch}"));
        context.output.line(&format!("released {item} in {from}{}", left.unwrap_or_default()));
        return;
    }
    let with = match commits {
        0 => String::new(),
        1 => ", merged 1 commit".to_owned(),
        many => format!(", merged {many} commits"),
    };
    context.output.line(&format!("done {item}: {from} -> {to}{with}"));
}

/// Says what a worker left on this machine, and where it is.
fn say_leftovers(leftovers: &[Leftover], context: &Context) {
    for leftover in leftovers {
        context.output.note(&leftover.to_string());
    }
}

fn leftovers(leftovers: &[Leftover]) -> Value {
    leftovers.iter().map(|one| json!({"what": one.what, "kept_in": one.kept_in})).collect()
}

fn to_json(finished: &Finished) -> Value {
    let place = |place: &Place| json!({"state": place.state.as_str(), "category": place.category});
    json!({
        "changed": true,
        "item": finished.item.as_str(),
        "from": place(&finished.from),
        "to": place(&finished.to),
        "commits": finished.commits,
        "left_on": finished.left_on,
        "merged": finished.merged.as_ref().map(ToString::to_string),
        "leftovers": leftovers(&finished.leftovers),
    })
}

impl From<sprag_work::Error> for Failure {
    fn from(error: sprag_work::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Input => Code::Usage,
            ErrorKind::Flow => Code::Config,
            ErrorKind::Repository => Code::Repository,
            ErrorKind::Nothing => Code::NoItem,
            ErrorKind::Held => Code::Held,
            ErrorKind::NotClaimed => Code::NotClaimed,
            ErrorKind::Lost => Code::Lost,
            ErrorKind::Conflict => Code::Conflict,
            ErrorKind::Refused => Code::Refused,
            ErrorKind::Unavailable => Code::Unavailable,
            ErrorKind::RateLimited => Code::RateLimited,
            _ => Code::System,
        };
        let mut failure = Self::new(code, error.message());
        for (label, text) in error.facts() {
            failure = failure.fact(label, text);
        }
        for next in error.nexts() {
            failure = failure.hint(next.what.as_str(), next.command.as_str());
        }
        failure
    }
}
