//! Tortures a store: many processes that take locks, faults all the time, and a check of all
//! that happened. Ends with 1 if a rule was broken.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use sprag_testkit::process::taker_main;
use sprag_testkit::torture::Torture;

const USAGE: &str = "\
usage: sprag-torture [--store URL] [--processes N] [--seconds N] [--seed N]
                     [--locks N] [--ttl-ms N] [--folder DIR]

  --store      an empty store of its own; a new sqlite file by default
  --processes  how many at any time (16)
  --seconds    for how long faults happen (60)
  --seed       which faults; the same seed is the same plan (random)
  --locks      how many locks they fight over (3)
  --ttl-ms     the length of their leases (1000)
  --folder     keeps the history and the counters there";

/// The first argument with which the program is a taker itself.
const TAKER: &str = "taker";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == TAKER).is_some() {
        return taker_main(words.collect()).await;
    }
    let temporary = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => return fail(&format!("no room for temporary files: {error}")),
    };
    let folder = temporary.path().to_owned();
    if words.next_if(|word| word == "--help").is_some() {
        say(USAGE);
        return ExitCode::SUCCESS;
    }
    let Some(torture) = parse(words, folder) else { return fail(USAGE) };
    if let Err(error) = std::fs::create_dir_all(&torture.folder) {
        return fail(&format!("cannot make {}: {error}", torture.folder.display()));
    }
    let Torture { processes, length, seed, .. } = &torture;
    say(&format!("{processes} processes, {length:?} of faults, seed {seed}"));
    match torture.run().await {
        Err(error) => fail(&error.to_string()),
        Ok(report) => {
            say(&report.to_string());
            if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>, folder: PathBuf) -> Option<Torture> {
    let mut store = None;
    let mut torture = Torture {
        program: std::env::current_exe().ok()?,
        arguments: vec![TAKER.to_owned()],
        url: String::new(),
        folder,
        processes: 16,
        locks: 3,
        ttl: Duration::from_secs(1),
        length: Duration::from_secs(60),
        seed: fastrand::u64(..),
    };
    while let Some(word) = words.next() {
        let value = words.next()?;
        let positive = || value.parse().ok().filter(|number| *number > 0);
        match word.as_str() {
            "--store" => store = Some(value),
            "--folder" => torture.folder = value.into(),
            "--processes" => torture.processes = positive()?,
            "--locks" => torture.locks = positive()?,
            "--seconds" => torture.length = Duration::from_secs(value.parse().ok()?),
            "--ttl-ms" => torture.ttl = Duration::from_millis(value.parse().ok()?),
            "--seed" => torture.seed = value.parse().ok()?,
            _ => return None,
        }
    }
    let file = torture.folder.join("sprag.db");
    torture.url = store.unwrap_or_else(|| format!("sqlite:{}", file.display()));
    Some(torture)
}

#[expect(clippy::print_stdout, reason = "a program reports what it did")]
fn say(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "a program says why it fails")]
fn fail(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}
