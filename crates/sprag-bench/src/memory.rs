//! What ten thousand held locks cost in memory, measured in a process of its own.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sprag_core::LockGuard;

use crate::machine::resident_kib;
use crate::report::{Goal, Row, progress};
use crate::stats::short;
use crate::subject::Subject;

const LOCKS: usize = 10_000;

/// Starts the process and reads its answer.
pub(crate) fn measure(folder: &Path) -> Result<Row> {
    progress(&format!("memory: {LOCKS} held locks"));
    let output = Command::new(std::env::current_exe()?)
        .arg("many-holder")
        .arg(folder)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the process that holds {LOCKS} locks failed");
    let answer = String::from_utf8(output.stdout)?;
    let mut numbers = answer.split_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next().context("too few numbers").map(|n| Ok::<_, anyhow::Error>(n?));
    let (before, after) = (next()??, next()??);
    let grown = after.saturating_sub(before) as f64 / 1024.0;
    let beside = format!("before {} MiB", short(before as f64 / 1024.0));
    Ok(Row::absolute(
        "memory of 10,000 held locks, MiB",
        &[grown],
        beside,
        Some(Goal::AtMost(64.0)),
    ))
}

/// The process: holds the locks until they were renewed, and prints its memory before and after.
#[expect(clippy::print_stdout, reason = "the answer to the benchmark that started this process")]
pub(crate) fn hold(folder: &Path) -> Result<()> {
    let before = resident_kib(std::process::id())?;
    let subject = Subject::open(folder)?;
    let guards = subject.hold_many(LOCKS)?;
    let first_deadlines: Vec<_> = guards.iter().map(LockGuard::valid_until).collect();
    // The renewal needs memory too.
    let renewed = || guards.iter().zip(&first_deadlines).all(|(g, first)| g.valid_until() > *first);
    while !renewed() {
        ensure!(guards.iter().all(LockGuard::is_valid), "a lock was lost: it was not renewed");
        pause();
    }
    let after = resident_kib(std::process::id())?;
    for guard in guards {
        subject.release(guard)?;
    }
    println!("{before} {after}");
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "between two looks at a state")]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}
