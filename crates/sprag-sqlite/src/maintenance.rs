//! Housekeeping: checkpoints of the log, and the clean-up of free records.
//!
//! It runs on a thread of its own, with a connection of its own: no caller waits for a disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sprag_core::{LockName, Result};

use crate::database::Database;
use crate::desk::{Desk, Shared};
use crate::error::from_io;
use crate::gate::Inside;
use crate::place::Place;
use crate::queue::Reach;

/// From this many frames on, the housekeeping runs: 4 MiB that are written over again and again are
/// cheaper than new ones.
const LONG_LOG: u32 = 1_000;
/// Of many processes that find a long log, the ones whose commit ended in the first few of so many
/// frames do it: one or two, and others later if these die.
const SHIFT: u32 = 256;
const SHARE: u32 = 8;
/// After how many checkpoints the free records are counted.
const CLEAN_UP_EVERY: u32 = 8;
/// From this many bytes on, the log is cut. Before, it keeps its space for full disks.
const HUGE_LOG: u64 = 32 << 20;
/// The same where nobody else is there: who comes first has to read the whole log.
const LONELY_LOG: u64 = 1 << 20;
/// How many records are cleaned up before other processes get the gate.
const CLEANED_AT_ONCE: u32 = 256;

impl Shared {
    /// Starts the housekeeping if it is due.
    pub(crate) fn tidy_if_due(self: &Arc<Self>) {
        let frames = self.frames.load(Ordering::Relaxed);
        let due = frames >= LONG_LOG && frames % SHIFT < SHARE;
        if !due || self.tidying.swap(true, Ordering::AcqRel) {
            return;
        }
        let clean_up = self.tidied.fetch_add(1, Ordering::Relaxed).is_multiple_of(CLEAN_UP_EVERY);
        let shared = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("sprag-tidy".into()).spawn(move || {
            if let Err(error) = shared.tidy(clean_up) {
                tracing::warn!(%error, "the housekeeping of the lock database failed");
            }
            shared.tidying.store(false, Ordering::Release);
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for the housekeeping of the lock database");
            self.tidying.store(false, Ordering::Release);
        }
    }

    /// The housekeeping; the clean-up reads all records and is not done each time.
    pub(crate) fn tidy(&self, clean_up: bool) -> Result<()> {
        let desk = Desk::open(&self.place)?;
        self.tidy_log(&desk)?;
        if clean_up {
            self.clean_up(&desk)?;
        }
        Ok(())
    }

    fn enter<'a>(&self, desk: &'a Desk) -> Result<Inside<'a>> {
        self.gate_wanted.store(true, Ordering::Release);
        let entered = desk.gate.enter();
        self.gate_wanted.store(false, Ordering::Release);
        entered.map_err(|e| from_io("lock", &self.place.gate, e))
    }

    fn tidy_log(&self, desk: &Desk) -> Result<()> {
        let (frames, copied) = desk.database.checkpoint(false)?;
        let huge = self.place.log_size() > HUGE_LOG;
        // Inside the gate, so that it starts again even if somebody always writes.
        if huge || (frames > i64::from(LONG_LOG) && copied < frames) {
            let _inside = self.enter(desk)?;
            desk.database.checkpoint(huge)?;
        }
        Ok(())
    }

    /// Forgets free records down to half of what may be kept.
    fn clean_up(&self, desk: &Desk) -> Result<()> {
        let free = "SELECT count(*) FROM lock WHERE held = 0 AND waiting = 0";
        let free = desk.database.count(free)?;
        let limit = i64::from(self.max_free_records);
        if free <= limit {
            return Ok(());
        }
        let mut excess = free - limit / 2;
        while excess > 0 {
            let entered = self.enter(desk)?;
            let some = CLEANED_AT_ONCE.min(u32::try_from(excess).unwrap_or(u32::MAX));
            let cleaned = clean_some(&desk.database, some)?;
            drop(entered);
            if cleaned == 0 {
                break;
            }
            excess -= i64::from(some);
        }
        Ok(())
    }
}

/// Cuts the log at opening, inside the gate: processes that live shorter than it takes to do the
/// housekeeping would let it grow for ever.
pub(crate) fn tidy_at_open(place: &Place, database: &Database, alone: bool) -> Result<()> {
    let limit = if alone { LONELY_LOG } else { HUGE_LOG };
    if place.log_size() > limit {
        database.checkpoint(true)?;
    }
    Ok(())
}

/// Deletes some free records and raises the high-water mark above their fences in the same
/// transaction: whoever uses such a name again finds either its record or the mark.
fn clean_some(database: &Database, limit: u32) -> Result<u32> {
    let transaction = database.begin()?;
    let mut mark = transaction.high_water()?;
    let mut deleted = 0;
    for name in transaction.free_names(limit)? {
        let name = LockName::new(name)?;
        // A damaged record stays: it cannot say how far its fence came.
        let Ok(loaded) = transaction.load(&name, Reach::All) else { continue };
        if loaded.record.is_free() {
            mark = mark.max(loaded.record.fence.get());
            transaction.delete(&name)?;
            deleted += 1;
        }
    }
    transaction.raise_high_water(mark)?;
    transaction.commit()?;
    Ok(deleted)
}
