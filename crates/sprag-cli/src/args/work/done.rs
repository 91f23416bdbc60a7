//! `sprag work done`.

use clap::Args;

/// Merge the work on an item that you claimed, and move it on
#[derive(Args, Debug)]
pub(crate) struct Done {
    /// The item [default: the one whose worktree you are in]
    #[arg(value_name = "ITEM")]
    pub(crate) item: Option<String>,
    /// Its category, where it gets one
    #[arg(long, value_name = "NAME")]
    pub(crate) category: Option<String>,
}
