//! The program `sprag-taker`, for everybody who wants to be one.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::churn::{Churn, churn};
use super::link::{Options, answer, told_to_stop};
use super::protocol::Answer;
use super::serve::serve;

const USAGE: &str = "usage: sprag-taker URL [--name NAME] [--history FILE] \
    [--loop LOCKS --folder DIR [--ttl-ms N] [--seed N] [--unchecked]]";

/// Runs the program with these arguments.
pub async fn taker_main(words: Vec<String>) -> ExitCode {
    let Some((options, plan)) = parse(words.into_iter()) else {
        return fail(USAGE);
    };
    let outcome = match plan {
        None => serve(options).await,
        Some(plan) => churn(options, &plan, told_to_stop()).await.map(|tally| {
            answer(1, Answer::Tally(tally));
        }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("sprag-taker: {error:?}")),
    }
}

fn fail(message: &str) -> ExitCode {
    // If nobody listens, the exit code is all there is to say.
    drop(writeln!(std::io::stderr(), "{message}"));
    ExitCode::FAILURE
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<(Options, Option<Churn>)> {
    let mut options = Options { url: words.next()?, name: "taker".into(), history: None };
    let (mut locks, mut folder, mut checked) = (None, PathBuf::new(), true);
    let (mut ttl_ms, mut seed) = (2_000, 0);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--name" => options.name = words.next()?,
            "--history" => options.history = Some(words.next()?.into()),
            "--loop" => locks = Some(words.next()?.parse().ok().filter(|locks| *locks > 0)?),
            "--folder" => folder = words.next()?.into(),
            "--ttl-ms" => ttl_ms = words.next()?.parse().ok()?,
            "--seed" => seed = words.next()?.parse().ok()?,
            "--unchecked" => checked = false,
            _ => return None,
        }
    }
    let ttl = Duration::from_millis(ttl_ms);
    let plan = locks.map(|locks| Churn { locks, folder, ttl, checked, seed });
    Some((options, plan))
}
