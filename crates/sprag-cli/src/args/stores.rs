//! `sprag stores`.

use clap::Args;

/// List the kinds of stores and what each promises
#[derive(Args, Debug)]
pub(crate) struct Stores {
    /// Print what a store keeps in a database, as SQL, to create it there by hand
    #[arg(long, value_name = "STORE")]
    pub(crate) sql: Option<String>,
    /// Make the store of all users of this machine, as root; does nothing if it is there
    #[arg(long, conflicts_with = "sql")]
    pub(crate) make_system: bool,
    /// The group whose members may use it
    #[arg(long, value_name = "NAME", default_value = "sprag", requires = "make_system")]
    pub(crate) group: String,
}
