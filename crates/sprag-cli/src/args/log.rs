//! `sprag log`.

use clap::Args;
use sprag::LockName;

use super::value;

/// Show what happened to locks: acquired, released, lost, broken, refused
#[derive(Args, Debug)]
pub(crate) struct Log {
    /// Only this lock
    #[arg(value_name = "NAME", value_parser = value::lock_name)]
    pub(crate) name: Option<LockName>,
    /// Go on with what happens from now on
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// At most so many lines from the end
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub(crate) lines: usize,
}
