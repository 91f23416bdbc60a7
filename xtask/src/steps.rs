//! `cargo xtask test`: the steps that every change has to pass, in the order of their cost.

#![expect(clippy::print_stdout, reason = "the progress of a run is for people")]

use std::time::Instant;

use crate::failure::{Failure, Outcome};
use crate::install::{self, Need};
use crate::shell::{self, Shell};
use crate::{table, tidy};

/// One step of the run.
struct Step {
    name: &'static str,
    about: &'static str,
    needs: &'static [Need],
    run: fn(&Shell) -> Outcome,
}

const STEPS: &[Step] = &[
    Step {
        name: "tidy",
        about: "links, leftovers and file sizes (cargo xtask tidy)",
        needs: &[Need::Git],
        run: tidy::run,
    },
    Step {
        name: "fmt",
        about: "cargo fmt --all --check",
        needs: &[Need::Rustfmt],
        run: |shell| shell::run(&mut shell.cargo(&["fmt", "--all", "--check"])),
    },
    Step {
        name: "clippy",
        about: "cargo clippy on every target and feature, warnings are errors",
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

/// What the command line asked for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    List,
    Run { only: Vec<String> },
}

/// Runs the steps, or those asked for, and stops at the first that fails.
pub(crate) fn test(shell: &Shell, arguments: &[String]) -> Outcome {
    match parse(arguments)? {
        Wish::List => {
            let rows: Vec<_> = STEPS.iter().map(|step| (step.name, step.about)).collect();
            for (name, about) in rows {
                println!("{name:<10}{about}");
            }
            Ok(())
        }
        Wish::Run { only } => {
            let chosen: Vec<&Step> = STEPS
                .iter()
                .filter(|step| only.is_empty() || only.iter().any(|name| name == step.name))
                .collect();
            install::ensure(shell, chosen.iter().flat_map(|step| step.needs.iter().copied()))?;
            run_all(shell, &chosen)?;
            if only.is_empty() {
                println!("{MORE}");
            }
            Ok(())
        }
    }
}

const MORE: &str = "
Not part of this run, because they take longer:
  cargo xtask model --large   bigger models of the lock machine
  cargo xtask mutants         every planted bug has to be found
  cargo xtask torture         a minute of killed and stopped processes
  cargo xtask bench local     speed and memory against references
  cargo xtask bench cli       the sprag command against flock and etcdctl
  cargo xtask bench redis     the Redis store against other libraries
  cargo xtask bench postgres  the PostgreSQL store against sqlx and by hand
  cargo xtask bench git       locks on a git remote against git by hand";

fn parse(arguments: &[String]) -> Outcome<Wish> {
    let mut only = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let step = match argument.as_str() {
            "--list" => return Ok(Wish::List),
            "--only" => rest.next().map(String::as_str),
            other => match other.strip_prefix("--only=") {
                Some(step) => Some(step),
                None => {
                    return Err(Failure::usage(format!(
                        "`test` takes no `{other}`; there are --only STEP and --list"
                    )));
                }
            },
        };
        match step {
            Some(step) if STEPS.iter().any(|known| known.name == step) => only.push(step.into()),
            step => {
                let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
                return Err(Failure::usage(format!(
                    "--only needs one of the steps {}, not `{}`",
                    names.join(", "),
                    step.unwrap_or_default()
                )));
            }
        }
    }
    Ok(Wish::Run { only })
}

fn run_all(shell: &Shell, steps: &[&Step]) -> Outcome {
    let mut rows = vec![vec!["step".to_owned(), "result".to_owned(), "seconds".to_owned()]];
    let mut total = 0.0;
    let mut failure = None;
    for step in steps {
        if failure.is_some() {
            rows.push(vec![step.name.to_owned(), "not run".to_owned()]);
            continue;
        }
        println!("\n=== {}: {}", step.name, step.about);
        let (outcome, seconds) = timed(|| (step.run)(shell));
        total += seconds;
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("=== {}: {word} after {seconds:.1} s", step.name);
        rows.push(vec![step.name.to_owned(), word.to_owned(), format!("{seconds:.1}")]);
        if let Err(error) = outcome {
            failure = Some((step.name, error));
        }
    }
    rows.push(vec!["total".to_owned(), String::new(), format!("{total:.1}")]);
    print!("\n{}", table::render(&rows));
    match failure {
        None => Ok(()),
        Some((name, Failure::Usage(reason) | Failure::Failed(reason))) => {
            Err(Failure::failed(format!(
                "step `{name}` failed: {reason}\nto repeat just this step: \
                 cargo xtask test --only {name}"
            )))
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a stopwatch for people; no decision hangs on it")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64())
}

fn clippy(shell: &Shell) -> Outcome {
    shell::run(&mut shell.cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ]))
}

fn docs(shell: &Shell) -> Outcome {
    let arguments = ["doc", "--workspace", "--no-deps", "--all-features"];
    shell::run(shell.cargo(&arguments).env("RUSTDOCFLAGS", "-Dwarnings"))
}

fn tests(shell: &Shell) -> Outcome {
    if shell::succeeds(&mut shell.cargo(&["nextest", "--version"])) {
        // Most tests wait for the end of a lease most of the time.
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let threads = format!("--test-threads={}", cores + cores.div_ceil(2));
        return run_tests(shell, &["nextest", "run", "--workspace", "--all-features", &threads]);
    }
    println!("(cargo-nextest is not installed: no time limit per test)");
    // `--tests` leaves the doctests to their own step.
    run_tests(shell, &["test", "--workspace", "--all-features", "--tests", "--no-fail-fast"])
}

fn run_tests(shell: &Shell, arguments: &[&str]) -> Outcome {
    // The web servers of the tests have an authority of their own, and what is remembered of their
    // stores is nothing to the user.
    let state = shell.root().join("target/tmp/state");
    let mut command = shell.cargo(arguments);
    shell::run(command.env_remove("GIT_SSL_CAINFO").env("XDG_STATE_HOME", state))
}

fn doctests(shell: &Shell) -> Outcome {
    shell::run(&mut shell.cargo(&["test", "--workspace", "--doc", "--all-features"]))
}

#[cfg(test)]
mod tests {
    use super::{Failure, STEPS, Shell, Step, Wish, parse, run_all};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn every_step_can_be_asked_for() {
        for step in STEPS {
            let only = vec![step.name.to_owned()];
            assert_eq!(
                parse(&words(&format!("--only {}", step.name))).unwrap(),
                Wish::Run { only }
            );
        }
        let only = words("fmt docs");
        assert_eq!(parse(&words("--only=fmt --only docs")).unwrap(), Wish::Run { only });
        assert_eq!(parse(&words("--list")).unwrap(), Wish::List);
    }

    #[test]
    fn the_first_failure_stops_the_run_and_says_how_to_repeat_it() {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let good = Step {
            name: "good",
            about: "",
            needs: &[],
            run: |_| {
                RUNS.fetch_add(1, Ordering::SeqCst);
                Ok(())
            },
        };
        let bad =
            Step { name: "bad", about: "", needs: &[], run: |_| Err(Failure::failed("broken")) };
        let outcome = run_all(&Shell::new(), &[&good, &bad, &good]);
        let Err(Failure::Failed(message)) = outcome else { panic!("{outcome:?}") };
        assert!(message.contains("cargo xtask test --only bad"), "{message}");
        assert_eq!(RUNS.load(Ordering::SeqCst), 1);
    }
}
