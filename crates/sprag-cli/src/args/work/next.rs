//! `sprag work next`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::super::value;

/// Which items are taken, and how.
#[derive(Args, Clone, Debug)]
pub(crate) struct Taking {
    /// Only items in this state; may be given several times
    #[arg(long = "state", value_name = "STATE")]
    pub(crate) states: Vec<String>,
    /// Work in a worktree of its own, which is made after the claim was won
    #[arg(long)]
    pub(crate) worktree: bool,
    /// The category of items that get one
    #[arg(long, value_name = "NAME")]
    pub(crate) category: Option<String>,
    /// Look for new items every so often instead of ending when there is none
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    pub(crate) every: Option<Duration>,
}

/// Claim the next item and run a command on it
///
/// On success the item moves to the next state and the work is merged to main; on failure the claim
/// is released and the work is left on a branch. Without a command the claim is kept, as with
/// `sprag work claim`.
#[derive(Args, Debug)]
pub(crate) struct Next {
    #[command(flatten)]
    pub(crate) taking: Taking,
    /// Go on with the next one until nothing is left
    #[arg(long)]
    pub(crate) drain: bool,
    /// The command
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<OsString>,
}
