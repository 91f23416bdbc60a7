//! `sprag work init`.

use clap::Args;

/// Make the folder of items on the main branch, with a page that explains the flow
#[derive(Args, Debug)]
pub(crate) struct Init {
    /// Only show the page
    #[arg(long)]
    pub(crate) dry_run: bool,
}
