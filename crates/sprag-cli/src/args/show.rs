//! `sprag show`.

use clap::Args;
use sprag::LockName;

use super::value;

/// Show one lock: its holders, its queue, and what happened before
#[derive(Args, Debug)]
pub(crate) struct Show {
    /// The lock
    #[arg(value_name = "NAME", value_parser = value::lock_name)]
    pub(crate) name: LockName,
    /// Show it again whenever something changes
    #[arg(short, long)]
    pub(crate) watch: bool,
}
