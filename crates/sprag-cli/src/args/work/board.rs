//! `sprag work board`.

use clap::Args;

/// Show all items by state: who has them, since when, and the last sign of life
#[derive(Args, Debug)]
pub(crate) struct Board {}
