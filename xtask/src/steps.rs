//! `cargo xtask test`: the steps that every change has to pass, in the order of their cost.

#![expect(clippy::print_stdout, reason = "the progress of a run is for people")]

use std::time::Instant;

use crate::changed::{self, Tests};
use crate::failure::{Failure, Outcome};
use crate::install::{self, Need};
use crate::shell::{self, Shell};
use crate::{proof, proof_page, slowest, table, tidy};

/// How much of each step is done.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Extent {
    /// Everything, in the sizes of the everyday run.
    Everyday,
    /// Everything, in the sizes of a release, and what takes longer.
    Full,
    /// The tests that can see what differs from this commit.
    Changed(String),
}

/// One step of the run.
struct Step {
    name: &'static str,
    about: &'static str,
    needs: &'static [Need],
    run: fn(&Shell, &Extent) -> Outcome,
}

const STEPS: &[Step] = &[
    Step {
        name: "tidy",
        about: "links, leftovers and file sizes (cargo xtask tidy)",
        needs: &[Need::Git],
        run: |shell, _| tidy::run(shell),
    },
    Step {
        name: "fmt",
        about: "cargo fmt --all --check",
        needs: &[Need::Rustfmt],
        run: |shell, _| shell::run(&mut shell.cargo(&["fmt", "--all", "--check"])),
    },
    Step {
        name: "clippy",
        about: "cargo clippy on every target, warnings are errors",
        needs: &[Need::Clippy, Need::CCompiler],
        run: clippy,
    },
    Step {
        name: "docs",
        about: "cargo doc, warnings are errors",
        needs: &[Need::CCompiler],
        run: docs,
    },
    Step {
        name: "tests",
        about: "cargo nextest run, or cargo test where nextest is not installed",
        needs: &[
            Need::CCompiler,
            Need::Git,
            Need::Openssl,
            Need::Peers,
            Need::Postgres,
            Need::GitServers,
            Need::Redis,
        ],
        run: tests,
    },
    Step {
        name: "doctests",
        about: "cargo test --doc: the examples in the documentation",
        needs: &[Need::CCompiler],
        run: doctests,
    },
];

/// What `--full` adds.
const LONG_STEPS: &[Step] = &[
    Step {
        name: "model",
        about: "cargo xtask model: the bounds that take minutes",
        needs: &[Need::CCompiler],
        run: |shell, _| proof::model(shell, &[]),
    },
    Step {
        name: "mutants",
        about: "cargo xtask mutants: every planted bug is found",
        needs: &[Need::CCompiler],
        run: |shell, _| proof::mutants(shell, &[]),
    },
    Step {
        name: "torture",
        about: "cargo xtask torture: a minute of killed and stopped processes",
        needs: &[Need::CCompiler],
        run: |shell, _| proof::torture(shell, &[]),
    },
];

/// What the command line asked for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    List,
    Run { only: Vec<String>, extent: Extent },
}

/// Runs the steps, or those asked for, and stops at the first that fails.
pub(crate) fn test(shell: &Shell, arguments: &[String]) -> Outcome {
    match parse(arguments)? {
        Wish::List => {
            for step in STEPS {
                println!("{:<10}{}", step.name, step.about);
            }
            println!("\nand with --full:");
            for step in LONG_STEPS {
                println!("{:<10}{}", step.name, step.about);
            }
            Ok(())
        }
        Wish::Run { only, extent } => {
            let long = if extent == Extent::Full { LONG_STEPS } else { &[] };
            let chosen: Vec<&Step> = STEPS
                .iter()
                .chain(long)
                .filter(|step| only.is_empty() || only.iter().any(|name| name == step.name))
                .collect();
            run_all(shell, &chosen, &extent)?;
            match extent {
                Extent::Everyday if only.is_empty() => println!("{MORE}"),
                Extent::Changed(base) => {
                    println!("\nOnly what can see a change since {base} was tested.");
                }
                _ => {}
            }
            Ok(())
        }
    }
}

const MORE: &str = "
Not part of this run, because it takes longer (docs/proof.md says what is):
  cargo xtask test --full     all of this in larger sizes, other Rust libraries,
                              models, planted bugs, torture
  cargo xtask model --large   bigger models of the lock machine
  cargo xtask torture --full  thousands of killed and stopped processes
  cargo xtask bench           speed and memory against references";

fn parse(arguments: &[String]) -> Outcome<Wish> {
    let (mut only, mut extent) = (Vec::new(), Extent::Everyday);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (argument.as_str(), None),
        };
        match (flag, value) {
            ("--list", None) => return Ok(Wish::List),
            ("--full", None) => extent = Extent::Full,
            ("--changed", base) => extent = Extent::Changed(base.unwrap_or("HEAD").to_owned()),
            ("--only", step) => {
                let step = step.or_else(|| rest.next().map(String::as_str));
                only.push(known(step.unwrap_or_default())?);
            }
            _ => {
                return Err(Failure::usage(format!(
                    "`test` takes no `{argument}`; there are --only STEP, --changed, --full and --list"
                )));
            }
        }
    }
    Ok(Wish::Run { only, extent })
}

/// The name of a step, if there is one.
fn known(step: &str) -> Outcome<String> {
    let steps = || STEPS.iter().chain(LONG_STEPS).map(|step| step.name);
    if steps().any(|name| name == step) {
        return Ok(step.to_owned());
    }
    let names: Vec<_> = steps().collect();
    let names = names.join(", ");
    Err(Failure::usage(format!("--only needs one of the steps {names}, not `{step}`")))
}

fn run_all(shell: &Shell, steps: &[&Step], extent: &Extent) -> Outcome {
    let mut rows = vec![vec!["step".to_owned(), "result".to_owned(), "seconds".to_owned()]];
    let row = |name: &str, result: &str, seconds: f64| {
        vec![name.to_owned(), result.to_owned(), format!("{seconds:.1}")]
    };
    let needs = steps.iter().flat_map(|step| step.needs.iter().copied());
    let (installed, mut total) = timed(|| install::ensure(shell, needs));
    installed?;
    rows.push(row("install", "ok", total));
    let mut failure = None;
    for step in steps {
        if failure.is_some() {
            rows.push(vec![step.name.to_owned(), "not run".to_owned()]);
            continue;
        }
        println!("\n=== {}: {}", step.name, step.about);
        let (outcome, seconds) = timed(|| (step.run)(shell, extent));
        total += seconds;
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("=== {}: {word} after {seconds:.1} s", step.name);
        rows.push(row(step.name, word, seconds));
        if let Err(error) = outcome {
            failure = Some((step.name, error));
        }
    }
    rows.push(row("total", "", total));
    if let Some(table) = slowest_tests(shell, steps) {
        print!("\n{table}");
    }
    let table = table::render(&rows);
    print!("\n{table}");
    match failure {
        None if *extent == Extent::Full && steps.len() == STEPS.len() + LONG_STEPS.len() => {
            proof_page::write(shell, "full", &table)
        }
        None => Ok(()),
        Some((name, Failure::Usage(reason) | Failure::Failed(reason))) => {
            Err(Failure::failed(format!(
                "step `{name}` failed: {reason}\nto repeat just this step: \
                 cargo xtask test --only {name}"
            )))
        }
    }
}

/// The slowest tests of this run, if it had any.
fn slowest_tests(shell: &Shell, steps: &[&Step]) -> Option<String> {
    steps.iter().find(|step| step.name == "tests")?;
    let report = shell.root().join("target/nextest/default/junit.xml");
    slowest::table(&std::fs::read_to_string(report).ok()?)
}

#[expect(clippy::disallowed_methods, reason = "a stopwatch for people; no decision hangs on it")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64())
}

/// Libraries for comparison are built by the full run alone.
fn packages(extent: &Extent) -> &'static [&'static str] {
    match extent {
        Extent::Full => &["--workspace", "--all-features"],
        Extent::Everyday | Extent::Changed(_) => &["--workspace", "--exclude", "sprag-interop"],
    }
}

fn clippy(shell: &Shell, extent: &Extent) -> Outcome {
    let mut command = shell.cargo(&["clippy"]);
    command.args(packages(extent)).args(["--all-targets", "--", "-D", "warnings"]);
    shell::run(&mut command)
}

fn docs(shell: &Shell, extent: &Extent) -> Outcome {
    let mut command = shell.cargo(&["doc", "--no-deps"]);
    shell::run(command.args(packages(extent)).env("RUSTDOCFLAGS", "-Dwarnings"))
}

/// How many tests run at a time for each core: most of them wait for the end of a lease.
const TESTS_PER_CORE: usize = 4;

fn tests(shell: &Shell, extent: &Extent) -> Outcome {
    let mut command = if shell::succeeds(&mut shell.cargo(&["nextest", "--version"])) {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let threads = format!("--test-threads={}", TESTS_PER_CORE * cores);
        let mut command = shell.cargo(&["nextest", "run"]);
        command.args(packages(extent)).arg(threads);
        if let Extent::Changed(base) = extent {
            match changed::tests(shell, base)? {
                Tests::None => {
                    println!("nothing that a test reads has changed since {base}");
                    return Ok(());
                }
                Tests::Filter(filter) => drop(command.args(["-E", &filter])),
                Tests::All(file) => println!("{file} has changed: every test may depend on it"),
            }
        }
        command
    } else {
        println!("(cargo-nextest is not installed: all tests, without a time limit for each)");
        // `--tests` leaves the doctests to their own step.
        let mut command = shell.cargo(&["test", "--tests", "--no-fail-fast"]);
        command.args(packages(extent));
        command
    };
    if *extent == Extent::Full {
        command.env("SPRAG_SIZE", "full");
    }
    // The web servers of the tests have an authority of their own, and what is remembered of their
    // stores is nothing to the user.
    let state = shell.root().join("target/tmp/state");
    shell::run(command.env_remove("GIT_SSL_CAINFO").env("XDG_STATE_HOME", state))
}

fn doctests(shell: &Shell, extent: &Extent) -> Outcome {
    shell::run(shell.cargo(&["test", "--doc"]).args(packages(extent)))
}

#[cfg(test)]
mod tests {
    use super::{Extent, Failure, LONG_STEPS, STEPS, Shell, Step, Wish, parse, run_all};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn every_step_can_be_asked_for() {
        for step in STEPS.iter().chain(LONG_STEPS) {
            let only = vec![step.name.to_owned()];
            assert_eq!(
                parse(&words(&format!("--only {}", step.name))).unwrap(),
                Wish::Run { only, extent: Extent::Everyday }
            );
        }
        let only = words("fmt docs");
        assert_eq!(
            parse(&words("--only=fmt --only docs")).unwrap(),
            Wish::Run { only, extent: Extent::Everyday }
        );
        assert_eq!(parse(&words("--list")).unwrap(), Wish::List);
        let (only, extent) = (vec![], Extent::Changed("main".into()));
        assert_eq!(parse(&words("--changed=main")).unwrap(), Wish::Run { only, extent });
    }

    #[test]
    fn the_first_failure_stops_the_run_and_says_how_to_repeat_it() {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let good = Step {
            name: "good",
            about: "",
            needs: &[],
            run: |_, _| {
                RUNS.fetch_add(1, Ordering::SeqCst);
                Ok(())
            },
        };
        let bad =
            Step { name: "bad", about: "", needs: &[], run: |_, _| Err(Failure::failed("broken")) };
        let outcome = run_all(&Shell::new(), &[&good, &bad, &good], &Extent::Everyday);
        let Err(Failure::Failed(message)) = outcome else { panic!("{outcome:?}") };
        assert!(message.contains("cargo xtask test --only bad"), "{message}");
        assert_eq!(RUNS.load(Ordering::SeqCst), 1);
    }
}
