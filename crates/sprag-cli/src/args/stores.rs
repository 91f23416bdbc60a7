//! `sprag stores`.

use clap::Args;

/// List the kinds of stores and what each promises
#[derive(Args, Debug)]
pub(crate) struct Stores {}
