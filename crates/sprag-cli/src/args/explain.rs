//! `sprag explain`.

use clap::Args;

/// Explain an error code such as SP001, or a topic such as exit-codes
#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The code or topic [default: a list of them]
    #[arg(value_name = "CODE|TOPIC")]
    pub(crate) subject: Option<String>,
}
