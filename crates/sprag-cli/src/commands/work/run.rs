//! `sprag work run`: several workers, each a process of its own.

use std::ffi::OsString;
use std::process::{Child, Command};
use std::time::Duration;

use super::Outcome;
use crate::args::work::Run;
use crate::code::Code;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::run::under::Reins;

/// How often the workers are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Starts the workers and waits for them. A process each: whatever kills one leaves the others.
pub(super) fn run(args: &Run, context: &Context) -> Outcome {
    let reins = Reins::take()?;
    let failed = |error: std::io::Error| {
        Failure::new(Code::System, format!("cannot start a worker: {error}"))
    };
    let mut workers = Vec::new();
    for number in 1..=args.workers {
        let mut command = Command::new("/proc/self/exe");
        command.args(arguments(args, number, context));
        if let Some(config) = &context.config {
            command.env("SPRAG_CONFIG", config);
        }
        match reins.free(&mut command) {
            Ok(child) => workers.push(child),
            Err(error) => {
                stop(&workers);
                return Err(failed(error));
            }
        }
    }
    let (mut worst, mut interrupted) = (Exit::OK, None);
    while !workers.is_empty() {
        if let Some(exit) = reins.pulled() {
            interrupted = Some(exit);
            stop(&workers);
        }
        workers.retain_mut(|child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
                // A worker that found nothing to do is no failure of the others.
                if code != 0 && Exit::status(code) != Exit::HELD {
                    worst = Exit::status(code);
                }
                false
            }
            Err(_) => false,
        });
        std::thread::park_timeout(LOOK);
    }
    Ok(interrupted.unwrap_or(worst))
}

/// The command line of one worker.
fn arguments(args: &Run, number: u16, context: &Context) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["work", "next", "--drain"].map(Into::into).to_vec();
    let mut put = |flag: &str, value: Option<OsString>| {
        words.push(flag.into());
        words.extend(value);
    };
    if let Some(holder) = &context.settings.holder.value {
        put("--holder", Some(format!("{holder}/{number}").into()));
    }
    if context.output.json {
        put("--json", None);
    }
    if context.output.quiet {
        put("--quiet", None);
    }
    let taking = &args.taking;
    taking.states.iter().for_each(|state| put("--state", Some(state.into())));
    if taking.worktree {
        put("--worktree", None);
    }
    if let Some(category) = &taking.category {
        put("--category", Some(category.into()));
    }
    if let Some(every) = taking.every {
        put("--every", Some(format!("{}s", every.as_secs_f64()).into()));
    }
    words.push("--".into());
    words.extend(args.command.iter().cloned());
    words
}

/// Asks all workers to end what they do.
fn stop(workers: &[Child]) {
    for child in workers {
        let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        }
    }
}
