//! `sprag acquire`.

use std::time::Duration;

use clap::Args;
use sprag::LockName;

use super::value;

/// Take a lease that outlives this process and ends with its TTL
#[derive(Args, Debug)]
pub(crate) struct Acquire {
    /// The lock
    #[arg(value_name = "NAME", value_parser = value::lock_name)]
    pub(crate) name: LockName,
    /// How long the lease lasts unless it is renewed [default: 30s, or SPRAG_TTL]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    pub(crate) ttl: Option<Duration>,
    /// Fail at once if the lock is held
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// How long to wait for the lock [default: for ever, or SPRAG_WAIT]
    #[arg(short, long, visible_alias = "timeout", value_name = "DURATION")]
    #[arg(value_parser = value::duration)]
    pub(crate) wait: Option<Duration>,
    /// Share the lock with others who share it
    #[arg(short, long)]
    pub(crate) shared: bool,
    /// Have it alone; the default
    #[arg(short = 'x', long, conflicts_with = "shared")]
    pub(crate) exclusive: bool,
    /// Take one of N slots
    #[arg(long, value_name = "N", conflicts_with_all = ["shared", "exclusive"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,
    /// Go before lower priorities in the queue: -8 to 8
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i8).range(-8..=8))]
    pub(crate) priority: i8,
    /// Take it from a holder that has given no sign of life for 5 minutes
    #[arg(long)]
    pub(crate) takeover: bool,
    /// Take it from whoever holds it; two may work at once until the holder notices
    #[arg(long, conflicts_with_all = ["takeover", "wait"])]
    pub(crate) force: bool,
    /// Why, for others to see
    #[arg(short = 'm', long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// The exit code if the lock is held
    #[arg(short = 'E', long, value_name = "N", default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
    /// Print shell commands that set SPRAG_LOCK, SPRAG_LEASE and SPRAG_TOKEN
    #[arg(long, conflicts_with = "json")]
    pub(crate) export: bool,
}
