//! [`Stats`]: how the work goes.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read, Seek, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sprag_core::clock::{BootClock, Clock};
use sprag_core::{AuditKind, AuditQuery};

use super::{GitSource, wait};
use crate::error::Result;
use crate::name::ItemName;
use crate::repo::repository;

/// How many entries of the trail are looked at.
const TRAIL: usize = 1000;
/// How far the throughput looks back.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// How the work goes: what the remote tells, and what this clone counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Items by state.
    pub items: BTreeMap<String, usize>,
    /// Items that somebody has.
    pub active_claims: usize,
    /// Those among them whose branch was pushed by hand.
    pub by_hand: usize,
    /// Those among them whose worker gives no sign of life.
    pub stale: usize,
    /// Claims in the trail of the locks.
    pub claims: usize,
    /// Claims in the trail that ended by being lost, broken or taken over.
    pub lost: usize,
    /// Items that were moved on main in the last 24 hours, by the clocks of those who moved them.
    pub moved_in_a_day: usize,
    /// Claims that were tried from this clone.
    pub attempts_here: u64,
    /// Those of them that somebody else was faster with.
    pub lost_races_here: u64,
}

impl Stats {
    /// How many of the claims tried from this clone succeeded, of 1; `None` if there was none.
    pub fn success_rate(&self) -> Option<f64> {
        let won = self.attempts_here.saturating_sub(self.lost_races_here);
        (self.attempts_here > 0).then(|| ratio(won, self.attempts_here))
    }

    /// How many failed for each that succeeded; `None` if none did.
    pub fn contention(&self) -> Option<f64> {
        let won = self.attempts_here.saturating_sub(self.lost_races_here);
        (won > 0).then(|| ratio(self.lost_races_here, won))
    }
}

fn ratio(part: u64, of: u64) -> f64 {
    let small = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    small(part) / small(of)
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Counters {
    attempts: u64,
    lost_races: u64,
}

impl GitSource {
    /// How the work goes.
    ///
    /// # Errors
    ///
    /// If the remote cannot be read.
    pub fn stats(&self) -> Result<Stats> {
        let board = self.board()?;
        let mut stats = Stats::default();
        for row in &board.rows {
            *stats.items.entry(row.item.place.state.to_string()).or_default() += 1;
            let Some(owner) = &row.owner else { continue };
            stats.active_claims += 1;
            stats.by_hand += usize::from(owner.worker.is_none());
            stats.stale += usize::from(owner.stale);
        }
        let query = AuditQuery { limit: TRAIL, ..AuditQuery::default() };
        for entry in wait(self.client.audit(&query))? {
            if ItemName::of_lock(&entry.name).is_none() {
                continue;
            }
            match entry.kind {
                AuditKind::Acquired => stats.claims += 1,
                AuditKind::Lost | AuditKind::Broken | AuditKind::TakenOver => stats.lost += 1,
                _ => {}
            }
        }
        stats.moved_in_a_day = self.moved_since(DAY)?;
        let counters = self.counters();
        (stats.attempts_here, stats.lost_races_here) = (counters.attempts, counters.lost_races);
        Ok(stats)
    }

    fn moved_since(&self, span: Duration) -> Result<usize> {
        let main = self.repo.look()?.main;
        let now = BootClock.unix_micros() / 1_000_000;
        let since = format!("--since={}", now.saturating_sub(span.as_secs()));
        let args = ["rev-list", "--count", "--first-parent", "--merges", &since];
        let said = self.repo.git.ok(args.into_iter().chain(["--grep=^work: ", main.as_str()]));
        Ok(said.map_err(|error| repository(&error))?.text().parse().unwrap_or(0))
    }

    /// Counts a claim that was tried. It only tells, so it must not be in the way of anything.
    pub(super) fn count(&self, won: bool) {
        let count = || -> std::io::Result<()> {
            let path = self.repo.desk().file("counters").map_err(std::io::Error::other)?;
            let mut options = OpenOptions::new();
            let mut file =
                options.read(true).write(true).create(true).truncate(false).open(path)?;
            if file.try_lock().is_err() {
                return Ok(());
            }
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            let mut counters: Counters = serde_json::from_str(&text).unwrap_or_default();
            counters.attempts += 1;
            counters.lost_races += u64::from(!won);
            file.rewind()?;
            file.set_len(0)?;
            file.write_all(serde_json::to_string(&counters)?.as_bytes())
        };
        if let Err(error) = count() {
            tracing::debug!(%error, "a claim is not counted");
        }
    }

    fn counters(&self) -> Counters {
        let path = self.repo.desk().file("counters").ok();
        let text = path.and_then(|path| std::fs::read_to_string(path).ok());
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }
}
