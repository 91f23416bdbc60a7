//! `sprag work run`.

use std::ffi::OsString;

use clap::Args;

use super::next::Taking;

/// Work off items with several workers, until nothing is left
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// How many
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,
    #[command(flatten)]
    pub(crate) taking: Taking,
    /// The command
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}
