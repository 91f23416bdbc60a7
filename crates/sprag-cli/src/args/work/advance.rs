//! `sprag work advance`.

use clap::Args;

/// Move an item on to the next state, claimed here or not
#[derive(Args, Debug)]
pub(crate) struct Advance {
    /// The item
    #[arg(value_name = "ITEM")]
    pub(crate) item: String,
    /// Its category, where it gets one
    #[arg(long, value_name = "NAME")]
    pub(crate) category: Option<String>,
}
