//! `sprag ls`.

use clap::{Args, ValueEnum};

use super::value;

/// List the locks that are held or waited for
#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// Only names that begin with this
    #[arg(value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// The columns, with commas between them
    #[arg(short = 'o', long, value_name = "COLUMNS", value_delimiter = ',', value_enum)]
    pub(crate) columns: Vec<Column>,
    /// Show the locks that stand beside others too: NAME#0 for a slot, NAME#done for a mark
    #[arg(short, long)]
    pub(crate) all: bool,
    /// At most so many; it says if there are more
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = value::count)]
    pub(crate) limit: usize,
    /// Show it again whenever something changes
    #[arg(short, long)]
    pub(crate) watch: bool,
}

/// A column of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Column {
    /// The lock's name
    Name,
    /// excl, shared, upgr, or slots in use
    Mode,
    /// Who holds it
    Holder,
    /// Why
    Reason,
    /// For how long
    Held,
    /// How much of the lease is left
    Lease,
    /// How many wait
    Wait,
    /// The fence of the holder
    Token,
    /// The holder's machine
    Host,
    /// When the holder asked for it
    Since,
}

impl Column {
    /// What is shown unless columns are named.
    pub(crate) const STANDARD: [Self; 8] = [
        Self::Name,
        Self::Mode,
        Self::Holder,
        Self::Reason,
        Self::Held,
        Self::Lease,
        Self::Wait,
        Self::Token,
    ];
}
