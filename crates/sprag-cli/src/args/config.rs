//! `sprag config`.

use clap::Args;

/// Show the settings
#[derive(Args, Debug)]
pub(crate) struct Config {
    /// Show where each setting comes from
    #[arg(long)]
    pub(crate) show_origin: bool,
}
