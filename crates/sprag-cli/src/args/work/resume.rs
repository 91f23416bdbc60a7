//! `sprag work resume`.

use clap::Args;

/// Bring a pending item back to the state that it left
#[derive(Args, Debug)]
pub(crate) struct Resume {
    /// The item
    #[arg(value_name = "ITEM")]
    pub(crate) item: String,
    /// Its category, if it had none
    #[arg(long, value_name = "NAME")]
    pub(crate) category: Option<String>,
}
