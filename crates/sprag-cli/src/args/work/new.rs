//! `sprag work new`.

use clap::Args;

/// Make an item in the first state
#[derive(Args, Debug)]
pub(crate) struct New {
    /// Its name: of a folder and part of a branch
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// What it is about, for its README
    #[arg(short = 'm', long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Higher goes first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i64,
}
