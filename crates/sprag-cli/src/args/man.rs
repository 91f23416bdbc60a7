//! `sprag man`.

use std::path::PathBuf;

use clap::Args;

/// Print a manual page: sprag man run | man -l -
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The command [default: the page of sprag itself]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// Write all pages into this directory instead
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "command")]
    pub(crate) directory: Option<PathBuf>,
}
