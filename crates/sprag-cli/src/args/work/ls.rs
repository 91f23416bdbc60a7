//! `sprag work ls`.

use clap::Args;

/// List the items that are not done, the next one first
#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// Only items in this state, or of this name
    #[arg(value_name = "STATE|ITEM")]
    pub(crate) only: Option<String>,
    /// Those that are done too
    #[arg(short, long)]
    pub(crate) all: bool,
}
