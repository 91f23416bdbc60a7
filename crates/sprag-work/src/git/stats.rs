//! How the work on the items of a repository goes.

use std::time::Duration;

use sprag_core::AuditQuery;
use sprag_core::clock::{BootClock, Clock};

use super::{GitSource, wait};
use crate::error::Result;
use crate::name::ItemName;
use crate::repo::repository;
use crate::stats::{Counters, Stats, TRAIL};

/// How far the throughput looks back.
const DAY: Duration = Duration::from_secs(24 * 3600);

impl GitSource {
    /// How the work goes.
    ///
    /// # Errors
    ///
    /// If the remote cannot be read.
    pub fn stats(&self) -> Result<Stats> {
        let mut stats = Stats::of(&self.board()?);
        let query = AuditQuery { limit: TRAIL, ..AuditQuery::default() };
        let trail = wait(self.client.audit(&query))?;
        stats.tell(trail.iter().filter(|entry| ItemName::of_lock(&entry.name).is_some()));
        stats.moved_in_a_day = Some(self.moved_since(DAY)?);
        Ok(stats.counted(&Counters::read(&self.repo.desk())))
    }

    fn moved_since(&self, span: Duration) -> Result<usize> {
        let main = self.repo.look()?.main;
        let now = BootClock.unix_micros() / 1_000_000;
        let since = format!("--since={}", now.saturating_sub(span.as_secs()));
        let args = ["rev-list", "--count", "--first-parent", "--merges", &since];
        let said = self.repo.git.ok(args.into_iter().chain(["--grep=^work: ", main.as_str()]));
        Ok(said.map_err(|error| repository(&error))?.text().parse().unwrap_or(0))
    }
}
