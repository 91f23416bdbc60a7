//! `sprag stores`.

use clap::Args;

/// List the kinds of stores and what each promises
#[derive(Args, Debug)]
pub(crate) struct Stores {
    /// Print what a store keeps in a database, as SQL, to create it there by hand
    #[arg(long, value_name = "STORE")]
    pub(crate) sql: Option<String>,
}
