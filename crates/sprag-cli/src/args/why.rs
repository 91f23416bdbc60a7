//! `sprag why`.

use clap::Args;
use sprag::LockName;

use super::value;

/// Show who blocks whom, down to the one that nobody blocks
#[derive(Args, Debug)]
pub(crate) struct Why {
    /// The lock [default: all that somebody waits for]
    #[arg(value_name = "NAME", value_parser = value::lock_name)]
    pub(crate) name: Option<LockName>,
}
