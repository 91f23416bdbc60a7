//! `sprag run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use sprag::LockName;

use super::value;

/// Hold a lock while a command runs
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// How long to wait for the lock [default: for ever]
    #[arg(short, long, value_name = "DURATION", value_parser = value::duration)]
    pub(crate) wait: Option<Duration>,
    /// The lock, or several with commas between them
    #[arg(value_name = "NAME", value_parser = |text: &str| value::lock_names(text).map(Names))]
    pub(crate) names: Names,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

/// The locks that are taken together.
#[derive(Clone, Debug)]
pub(crate) struct Names(pub(crate) Vec<LockName>);
