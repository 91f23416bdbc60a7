//! `sprag doctor`.

use clap::Args;

/// Test the store: does it answer, how fast, what does it promise, what breaks that
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// How often to take and release a lock
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,

    /// Compute what that many locks would cost of the store's rate limit (GitHub)
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) locks: Option<u64>,
}
