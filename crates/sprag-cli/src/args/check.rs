//! `sprag check`.

use clap::Args;

use super::Lease;

/// Ask whether the lock is still held: exit 0 for yes, 1 for no
///
/// Under `sprag run` it asks the wrapper and not the store.
#[derive(Args, Debug)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) lease: Lease,
}
