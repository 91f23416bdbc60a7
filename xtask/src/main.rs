//! `cargo xtask`: the project's chores, one verb each.
//!
//! It needs nothing but the standard library, so that it is built in a second or two.

#![expect(clippy::print_stdout, reason = "a command talks to the person who typed it")]

mod changed;
mod failure;
mod install;
mod peers;
mod proof;
mod proof_page;
mod shell;
mod slowest;
mod steps;
mod table;
mod tidy;

use std::process::ExitCode;

use failure::{Failure, Outcome};
use shell::Shell;

const HELP: &str = "\
The project's chores.

Usage: cargo xtask VERB [ARGUMENTS]

Verbs:
  test     everything that has to pass before a change goes in
             --only STEP   just this step; may be repeated
             --changed     the tests that can see what differs from HEAD; --changed=COMMIT
             --full        everything in larger sizes, with models, planted bugs and torture
             --list        the steps, and what each of them runs
  tidy     the hygiene checks alone: links, leftovers, file sizes
  model    checks the models of the lock machine, in release, in bounds of minutes
             --large       bigger ones
  mutants  plants known bugs one by one; each of them has to be found
             --by=PROGRAM  what one test program finds of them, such as sprag-redis
  sim      simulates the system with faults
             --seed N      the run to repeat; more flags: --help
  torture  real processes that are killed and stopped while they take locks
             --seconds N   for how long; more flags: --help
             work          instead, a fleet of workers that are killed on work items
             github        instead, workers, waiters and a day of locks on a simulated GitHub
             git           instead, fifty clients that want one new name, over each transport
             --full        instead, the tests with processes, thousands of times each
  bench    measures against references in the same run
             local         SQLite against raw SQLite and flock(2)
             cli           sprag run against flock(1), true(1) and etcdctl
             redis         the Redis store against scripts by hand and other libraries
             postgres      the PostgreSQL store against sqlx and by hand
             git           locks on a git remote against git by hand
             --check       exits with 1 if a goal is missed; more flags: --help
  help     this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(arguments: &[String]) -> Outcome {
    let Some((verb, rest)) = arguments.split_first() else {
        print!("{HELP}");
        return Ok(());
    };
    let shell = Shell::new();
    match verb.as_str() {
        "test" => steps::test(&shell, rest),
        "tidy" => {
            no_arguments(verb, rest)?;
            tidy::run(&shell)
        }
        "model" => proof::model(&shell, rest),
        "mutants" => proof::mutants(&shell, rest),
        "sim" => proof::simulate(&shell, rest),
        "torture" => proof::torture(&shell, rest),
        "bench" => proof::bench(&shell, rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        unknown => Err(Failure::usage(format!(
            "there is no verb `{unknown}`; there are: test, tidy, model, mutants, sim, torture, bench, help"
        ))),
    }
}

/// Refuses what a verb would otherwise ignore.
fn no_arguments(verb: &str, rest: &[String]) -> Outcome {
    match rest.first() {
        None => Ok(()),
        Some(extra) => Err(Failure::usage(format!(
            "`{verb}` takes no `{extra}`; `cargo xtask help` lists the verbs and their flags"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::{HELP, run};
    use crate::failure::Failure;

    fn arguments(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn unknown_words_are_usage_errors() {
        for line in [
            "tset",
            "--only clippy",
            "tidy --all",
            "test --fast",
            "test --only",
            "test --only nothing",
            "model --huge",
            "bench",
            "bench moon",
        ] {
            let outcome = run(&arguments(line));
            assert!(matches!(outcome, Err(Failure::Usage(_))), "{line}: {outcome:?}");
        }
    }

    #[test]
    fn an_unknown_verb_is_answered_with_the_list_of_verbs() {
        let Err(Failure::Usage(message)) = run(&arguments("tset")) else {
            panic!("`tset` was accepted");
        };
        for verb in ["test", "tidy", "model", "mutants", "sim", "torture", "bench"] {
            assert!(message.contains(verb), "{message}");
            assert!(HELP.contains(verb));
        }
    }
}
