//! Benchmarks of sprag against references that are measured in the same run.
//!
//! `cargo xtask bench local` starts it. Only ratios carry over from one machine to another, and
//! only if both sides were measured alternately: everything here comes in pairs.

mod contended;
mod crowd;
mod machine;
mod member;
mod memory;
mod options;
mod report;
mod stats;
mod subject;
mod timed;
mod uncontended;
mod visits;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use sprag_core::clock::{BootClock, Clock as _};

use machine::Usage;
use options::{Options, Verb};
use report::{Report, progress};

/// The exit code for a command line that makes no sense.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match options::parse(&arguments) {
        Ok(Verb::Local(options)) => local(&options),
        Ok(Verb::Member(folder)) => member::run(&folder).map(|()| ExitCode::SUCCESS),
        Ok(Verb::Holder(folder)) => memory::hold(&folder).map(|()| ExitCode::SUCCESS),
        Err(message) => {
            complain(&message);
            return ExitCode::from(USAGE);
        }
    };
    outcome.unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

#[expect(clippy::print_stderr, reason = "errors of a command go to stderr")]
fn complain(message: &str) {
    eprintln!("sprag-bench: {message}");
}

/// Nanoseconds of the machine's clock, the same in all processes.
fn now_nanos() -> u64 {
    u64::try_from(BootClock.now().since_start().as_nanos()).unwrap_or(u64::MAX)
}

fn local(options: &Options) -> Result<ExitCode> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let mut report = Report { machine: machine::describe(folder.path()), rows: Vec::new() };
    for line in &report.machine {
        progress(line);
    }
    let before = Usage::now()?;
    report.rows.extend(uncontended::measure(folder.path(), options.pairs)?);
    report.rows.extend(contended::measure(folder.path(), options)?);
    report.rows.push(memory::measure(folder.path())?);
    let others = Usage::now()?.others_percent(before);
    let line = format!("other work during the run: {others} % of the cores (should be near 0)");
    progress(&line);
    report.machine.push(line);
    progress(&format!("\n{}", report.table()));
    if let Some(page) = &options.page {
        let command = "cargo xtask bench local";
        write(page, &report::markdown(&report, command, options.pairs))?;
        progress(&format!("written to {}", page.display()));
    }
    let missed = report.missed();
    if missed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    progress(&format!("MISSED: {}", missed.join("; ")));
    Ok(if options.check { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn write(page: &Path, text: &str) -> Result<()> {
    if let Some(folder) = page.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}
