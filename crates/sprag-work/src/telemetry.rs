//! The metrics of work items. No item and no worker is ever a label.

use metrics::{counter, gauge};

use crate::error::{ErrorKind, Result};
use crate::stats::Stats;
use crate::task::Finished;

/// A claim was tried.
pub(crate) fn tried(won: bool) {
    let outcome = if won { "won" } else { "lost_race" };
    counter!("sprag_work_claims_total", "outcome" => outcome).increment(1);
}

/// A claim is over.
pub(crate) fn ended(result: &Result<Finished>) {
    let end = match result {
        Ok(finished) if finished.to != finished.from => "moved",
        Ok(_) => "released",
        Err(error) if error.kind() == ErrorKind::Lost => "lost",
        Err(_) => "error",
    };
    counter!("sprag_work_ends_total", "end" => end).increment(1);
}

/// Somebody has looked at all items.
pub(crate) fn looked(stats: &Stats) {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    gauge!("sprag_work_active_claims").set(number(stats.active_claims));
    gauge!("sprag_work_stale_claims").set(number(stats.stale));
    if let Some(moved) = stats.moved_in_a_day {
        gauge!("sprag_work_moved_in_a_day").set(number(moved));
    }
}
