//! `sprag renew`.

use std::time::Duration;

use clap::Args;

use super::{Lease, value};

/// Extend a lease that `sprag acquire` took
#[derive(Args, Debug)]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) lease: Lease,
    /// How long it lasts from now on, at least [default: as long as before]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    pub(crate) ttl: Option<Duration>,
}
