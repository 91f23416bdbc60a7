//! `sprag`: hold a lock while a command runs, and look at locks, on any store.

mod args;
mod circle;
mod code;
mod commands;
mod config;
mod context;
mod done;
mod exit;
mod failure;
mod held;
mod identity;
mod lease_text;
mod nearest;
mod output;
mod run;
mod slot;
mod store;
mod surroundings;
mod warnings;

use std::process::ExitCode;

use crate::args::Parsed;

/// The first argument with which `sprag run` starts its guardian: the same binary again.
const GUARDIAN: &str = "__guardian";

/// The same for the first process of the command.
const LEADER: &str = "__leader";

fn main() -> ExitCode {
    // Before anything else: a guardian that comes up late guards nothing.
    if std::env::args_os().nth(1).is_some_and(|first| first == GUARDIAN) {
        return run::guardian::main();
    }
    if std::env::args_os().nth(1).is_some_and(|first| first == LEADER) {
        return run::leader::main();
    }
    let exit = match args::parse(std::env::args_os()) {
        Parsed::Command(cli) => commands::dispatch(*cli),
        Parsed::Answered(exit) => exit,
    };
    exit.into()
}
