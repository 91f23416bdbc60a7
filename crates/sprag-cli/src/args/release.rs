//! `sprag release`.

use clap::Args;

use super::Lease;

/// Give back a lease that `sprag acquire` took
#[derive(Args, Debug)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) lease: Lease,
}
