//! `sprag work release`.

use clap::Args;

/// Give a claim back; what was done is left on a branch
#[derive(Args, Debug)]
pub(crate) struct Release {
    /// The item [default: the one whose worktree you are in]
    #[arg(value_name = "ITEM")]
    pub(crate) item: Option<String>,
}
