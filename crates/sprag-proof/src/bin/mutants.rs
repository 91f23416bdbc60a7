//! Plants each seeded bug and runs the tests until one of them finds it: `cargo xtask mutants`.
//!
//! Needs a build with `--cfg sprag_mutants`, for itself and for the tests it builds.

#![cfg_attr(sprag_mutants, expect(clippy::print_stdout, reason = "a command talks to people"))]
#![expect(clippy::print_stderr, reason = "a command talks to people")]

use std::process::ExitCode;

#[cfg(sprag_mutants)]
fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    match sprag_proof::hunt::hunt(sprag_core::mutant::ALL, &wanted, |line| println!("{line}")) {
        Ok(survivors) if survivors.is_empty() => ExitCode::SUCCESS,
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
