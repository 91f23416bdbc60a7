//! `sprag work stamp`.

use clap::Args;

/// Give new items their stamp of 8 hexadecimal digits, and move them on
#[derive(Args, Debug)]
pub(crate) struct Stamp {
    /// Only these
    #[arg(value_name = "ITEM")]
    pub(crate) items: Vec<String>,
}
