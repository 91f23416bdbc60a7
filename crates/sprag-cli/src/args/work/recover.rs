//! `sprag work recover`.

use clap::Args;

/// Free the claims of dead workers, and keep what they did
///
/// A worker is dead if its process on this machine is gone, or if nothing was seen of it for its TTL
/// by this command or an earlier one.
#[derive(Args, Debug)]
pub(crate) struct Recover {
    /// Only these items
    #[arg(value_name = "ITEM")]
    pub(crate) items: Vec<String>,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Count the workers of these items as dead at once
    #[arg(long, requires = "items")]
    pub(crate) assume_dead: bool,
}
