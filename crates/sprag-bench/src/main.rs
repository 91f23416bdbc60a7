//! Benchmarks of sprag against references that are measured in the same run.
//!
//! `cargo xtask bench local`, `cli`, `redis` and `postgres` start it. Only ratios carry over from one machine to
//! another, and only if both sides were measured alternately: everything here comes in pairs.

mod cli;
mod contended;
mod crowd;
#[cfg(feature = "git")]
mod git;
mod machine;
mod member;
mod memory;
mod options;
#[cfg(feature = "peers")]
mod postgres;
#[cfg(feature = "peers")]
mod redis;
mod report;
#[cfg(feature = "peers")]
mod server;
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
use report::{Page, Report, Row, progress};

/// The exit code for a command line that makes no sense.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match options::parse(&arguments) {
        Ok(Verb::Local(options)) => run(&options, LOCAL, local),
        Ok(Verb::Cli(options)) => run(&options, cli::PAGE, cli::measure),
        #[cfg(feature = "peers")]
        Ok(Verb::Redis(options)) => run(&options, redis::PAGE, redis::measure),
        #[cfg(feature = "peers")]
        Ok(Verb::Postgres(options)) => run(&options, postgres::PAGE, postgres::measure),
        #[cfg(not(feature = "peers"))]
        Ok(Verb::Redis(_) | Verb::Postgres(_)) => {
            Err(anyhow::anyhow!("build it with --features peers"))
        }
        #[cfg(feature = "git")]
        Ok(Verb::Git(options)) => run(&options, git::PAGE, git::measure),
        #[cfg(not(feature = "git"))]
        Ok(Verb::Git(_)) => Err(anyhow::anyhow!("build it with --features git")),
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

/// Measures, prints and writes the page.
fn run(
    options: &Options,
    page: Page,
    measure: impl FnOnce(&Path, &Options) -> Result<Vec<Row>>,
) -> Result<ExitCode> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let mut report = Report { machine: machine::describe(folder.path()), rows: Vec::new() };
    for line in &report.machine {
        progress(line);
    }
    let before = Usage::now()?;
    report.rows.extend(measure(folder.path(), options)?);
    let others = Usage::now()?.others_percent(before);
    let line = format!("other work during the run: {others} % of the cores (should be near 0)");
    progress(&line);
    report.machine.push(line);
    progress(&format!("\n{}", report.table()));
    if let Some(path) = &options.page {
        write(path, &report::markdown(&report, page, options.pairs))?;
        progress(&format!("written to {}", path.display()));
    }
    let missed = report.missed();
    if missed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    progress(&format!("MISSED: {}", missed.join("; ")));
    Ok(if options.check { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn local(folder: &Path, options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if options.wants("uncontended") {
        rows.extend(uncontended::measure(folder, options.pairs)?);
    }
    if options.wants("crowd") {
        rows.extend(contended::measure(folder, options)?);
    }
    if options.wants("memory") {
        rows.push(memory::measure(folder)?);
    }
    Ok(rows)
}

fn write(page: &Path, text: &str) -> Result<()> {
    if let Some(folder) = page.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

const LOCAL: Page =
    Page { title: "Local benchmark", command: "cargo xtask bench local", notes: LOCAL_NOTES };

const LOCAL_NOTES: &str = "
What is measured:

- *uncontended*: one task acquires and releases one lock, over and over. Raw SQLite commits two
  updates of a row of the same size through the same settings (WAL, synchronous NORMAL), which is
  the least a durable lock in SQLite can cost. By default SQLite copies its log into the database
  every 1,000 pages; \"no checkpoints\" leaves even that out. flock(2) writes nothing and tells
  nobody who holds it.
- *drain*: 64 processes start at once, each enters once and sleeps 1 ms inside. The ideal is
  64 ms. Both sides block their thread, sprag in `block_on`.
- *hand-off*: from the end of one process's section to the begin of the next one's.
- *closed loop*: the same processes enter again and again for some seconds. flock(2) mostly lets
  the process in that has just left; so its rate is high, and its fairness poor.
- *store request*: a single question to SQLite, seen from inside the 64 processes. A long one
  would come from SQLite's own waiting, which knows no order.
- *memory*: what a process grows by when it holds 10,000 locks and renews them.
";
