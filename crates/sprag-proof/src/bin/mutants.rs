//! Plants each seeded bug and runs the tests until one of them finds it: `cargo xtask mutants`.
//!
//! Needs a build with `--cfg sprag_mutants`, for itself and for the tests it builds.

#![cfg_attr(sprag_mutants, expect(clippy::print_stdout, reason = "a command talks to people"))]
#![expect(clippy::print_stderr, reason = "a command talks to people")]

use std::process::ExitCode;

#[cfg(sprag_mutants)]
fn main() -> ExitCode {
    let (flags, wanted): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let by = match &flags[..] {
        [] => "",
        [flag] if flag.starts_with("--by=") => &flag["--by=".len()..],
        _ => {
            eprintln!("usage: cargo xtask mutants [--by=PROGRAM] [MUTANT...]");
            return ExitCode::from(64);
        }
    };
    let all = sprag_core::mutant::ALL;
    match sprag_proof::hunt::hunt(all, &wanted, by, |line| println!("{line}")) {
        // What one program does not see, another one may.
        Ok(survivors) if survivors.is_empty() || !by.is_empty() => ExitCode::SUCCESS,
        Ok(survivors) => {
            eprintln!("not found by any test: {}", survivors.join(", "));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(sprag_mutants))]
fn main() -> ExitCode {
    eprintln!("there are no mutants in this build; type `cargo xtask mutants`");
    ExitCode::from(2)
}
