//! `sprag work claim`.

use std::time::Duration;

use clap::Args;

use super::super::value;

/// Claim an item until you say that it is done
#[derive(Args, Debug)]
pub(crate) struct Claim {
    /// The item
    #[arg(value_name = "ITEM")]
    pub(crate) item: String,
    /// Make a worktree for it
    #[arg(long)]
    pub(crate) worktree: bool,
    /// How long the claim lasts [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    pub(crate) ttl: Option<Duration>,
}
