//! [`Tally`]: what a manager counts.

use std::time::Duration;

use super::config::LockMetrics;

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) acquisitions: u64,
    pub(super) releases: u64,
    pub(super) conflicts: u64,
    pub(super) retries: u64,
    pub(super) failures: u64,
    pub(super) stolen: u64,
    /// How long all acquisitions took together.
    pub(super) waited: Duration,
}

impl Tally {
    pub(super) fn metrics(&self) -> LockMetrics {
        let count = u32::try_from(self.acquisitions.max(1)).unwrap_or(u32::MAX);
        LockMetrics {
            total_acquisitions: self.acquisitions,
            total_releases: self.releases,
            total_conflicts: self.conflicts,
            total_retries: self.retries,
            failed_acquisitions: self.failures,
            average_acquisition_time_ms: self.waited.as_secs_f64() * 1000.0 / f64::from(count),
            stale_locks_claimed: self.stolen,
        }
    }
}
