//! `sprag demo`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Show on this machine, in half a minute, what a lock does and what happens when a holder dies
#[derive(Args, Debug)]
pub(crate) struct Demo {}

/// What the processes of the demonstration do.
#[derive(Args, Debug)]
pub(crate) struct DemoStep {
    #[command(subcommand)]
    pub(crate) step: Step,
}

/// One process of the demonstration.
#[derive(Debug, Subcommand)]
pub(crate) enum Step {
    /// Adds 1 to the number in a file, again and again
    Add {
        /// The file
        file: PathBuf,
        /// How often
        times: u32,
    },
    /// Says whether a process is still there
    Look {
        /// The process
        pid: i32,
    },
    /// Writes to a file that compares tokens, once it is told to on stdin
    Write {
        /// The file
        file: PathBuf,
        /// The writer's token
        token: u64,
    },
}
