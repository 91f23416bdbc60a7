//! `sprag acquire`.

use clap::Args;
use sprag::LockName;

use super::{Asking, value};

/// Take a lease that outlives this process and ends with its TTL
#[derive(Args, Debug)]
pub(crate) struct Acquire {
    /// The lock
    #[arg(value_name = "NAME", value_parser = value::lock_name)]
    pub(crate) name: LockName,
    #[command(flatten)]
    pub(crate) asking: Asking,
    /// Print shell commands that set SPRAG_LOCK, SPRAG_LEASE, SPRAG_TOKEN and SPRAG_STORE
    #[arg(long, conflicts_with = "json")]
    pub(crate) export: bool,
}
