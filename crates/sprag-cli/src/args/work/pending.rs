//! `sprag work pending`.

use clap::Args;

/// Set an item aside that needs an answer, whatever its state
#[derive(Args, Debug)]
pub(crate) struct Pending {
    /// The item
    #[arg(value_name = "ITEM")]
    pub(crate) item: String,
    /// The question, for the log
    #[arg(short = 'm', long, value_name = "TEXT", default_value = "")]
    pub(crate) message: String,
}
