//! [`Stats`]: how the work goes.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read, Seek, Write};

use serde::{Deserialize, Serialize};
use sprag_core::AuditKind;
use sprag_core::audit::AuditEntry;

use crate::board::Board;
use crate::repo::Desk;
use crate::telemetry;

/// How many entries of the trail are looked at.
pub(crate) const TRAIL: usize = 1000;

/// How the work goes: what the remote tells, and what was counted here.
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
    /// Items that were moved on main in the last 24 hours, by the clocks of those who moved them;
    /// `None` where nobody writes that down.
    pub moved_in_a_day: Option<usize>,
    /// Claims that were tried from here: this clone, or for issues this machine.
    pub attempts_here: u64,
    /// Those of them that somebody else was faster with.
    pub lost_races_here: u64,
}

impl Stats {
    /// What a board tells.
    pub(crate) fn of(board: &Board) -> Self {
        let mut stats = Self::default();
        for row in &board.rows {
            *stats.items.entry(row.item.place.state.to_string()).or_default() += 1;
            let Some(owner) = &row.owner else { continue };
            stats.active_claims += 1;
            stats.by_hand += usize::from(owner.worker.is_none());
            stats.stale += usize::from(owner.stale);
        }
        stats
    }

    /// What the trail of the locks tells.
    pub(crate) fn tell<'a>(&mut self, trail: impl Iterator<Item = &'a AuditEntry>) {
        for entry in trail {
            match entry.kind {
                AuditKind::Acquired => self.claims += 1,
                AuditKind::Lost | AuditKind::Broken | AuditKind::TakenOver => self.lost += 1,
                _ => {}
            }
        }
    }

    /// What was counted here; then it is complete.
    pub(crate) fn counted(mut self, counters: &Counters) -> Self {
        (self.attempts_here, self.lost_races_here) = (counters.attempts, counters.lost_races);
        telemetry::looked(&self);
        self
    }

    /// How many of the claims tried from here succeeded, of 1; `None` if there was none.
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

/// The claims that were tried from here.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counters {
    attempts: u64,
    lost_races: u64,
}

impl Counters {
    const FILE: &str = "counters";

    /// Counts a claim that was tried. It only tells, so it must not be in the way of anything.
    pub(crate) fn count(desk: &Desk, won: bool) {
        telemetry::tried(won);
        let count = || -> std::io::Result<()> {
            let path = desk.file(Self::FILE).map_err(std::io::Error::other)?;
            let mut options = OpenOptions::new();
            let mut file =
                options.read(true).write(true).create(true).truncate(false).open(path)?;
            if file.try_lock().is_err() {
                return Ok(());
            }
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            let mut counters: Self = serde_json::from_str(&text).unwrap_or_default();
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

    pub(crate) fn read(desk: &Desk) -> Self {
        let path = desk.file(Self::FILE).ok();
        let text = path.and_then(|path| std::fs::read_to_string(path).ok());
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }
}
