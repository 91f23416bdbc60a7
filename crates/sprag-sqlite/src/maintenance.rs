//! Housekeeping: checkpoints of the log, and the clean-up of free records.
//!
//! It runs on a thread of its own, with a connection of its own: no caller waits for a disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sprag_core::{LockName, Result};

use crate::database::Database;
use crate::desk::{Desk, HIGH_WATER, Shared};
use crate::error::from_io;

/// After how many transactions of this handle the housekeeping runs; each adds about 4 KiB to
/// the log.
const EVERY: u32 = 1000;
/// After how many checkpoints the free records are counted.
const CLEAN_UP_EVERY: u32 = 8;
/// From this many frames on, the log is copied inside the gate, so that it can start again even
/// if somebody always writes.
const LONG_LOG: i64 = 8_192;
/// From this many bytes on, the log is cut. Before, it keeps its space for full disks.
const HUGE_LOG: u64 = 64 << 20;
/// At opening, a log of this many bytes is copied first: short-lived processes would let it grow.
const UNTENDED_LOG: u64 = 16 << 20;
/// How many records are cleaned up before other processes get the gate.
const CLEANED_AT_ONCE: u32 = 256;

impl Shared {
    /// Starts the housekeeping if it is due.
    pub(crate) fn tidy_if_due(self: &Arc<Self>) {
        if self.writes.load(Ordering::Relaxed) < EVERY || self.tidying.swap(true, Ordering::AcqRel)
        {
            return;
        }
        self.writes.store(0, Ordering::Relaxed);
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

    /// Copies the log at opening if nobody did for long.
    pub(crate) fn tidy_at_open(&self, database: &Database) -> Result<()> {
        if self.place.log_size() < UNTENDED_LOG {
            return Ok(());
        }
        database.checkpoint(false).map(drop)
    }

    /// The housekeeping; the clean-up reads all records and is not done each time.
    pub(crate) fn tidy(&self, clean_up: bool) -> Result<()> {
        let mut desk = Desk::open(&self.place)?;
        self.tidy_log(&desk)?;
        if clean_up {
            self.clean_up(&mut desk)?;
        }
        Ok(())
    }

    fn tidy_log(&self, desk: &Desk) -> Result<()> {
        let (frames, copied) = desk.database.checkpoint(false)?;
        let huge = self.place.log_size() > HUGE_LOG;
        if huge || (frames > LONG_LOG && copied < frames) {
            let entered = desk.gate.enter();
            let _inside = entered.map_err(|e| from_io("lock", &self.place.gate, e))?;
            desk.database.checkpoint(huge)?;
        }
        Ok(())
    }

    /// Forgets free records down to half of what may be kept.
    fn clean_up(&self, desk: &mut Desk) -> Result<()> {
        let free = "SELECT count(*) FROM lock WHERE held = 0 AND waiting = 0";
        let free = desk.database.count(free)?;
        let limit = i64::from(self.max_free_records);
        if free <= limit {
            return Ok(());
        }
        let mut excess = free - limit / 2;
        while excess > 0 {
            let entered = desk.gate.enter();
            let _inside = entered.map_err(|e| from_io("lock", &self.place.gate, e))?;
            let some = CLEANED_AT_ONCE.min(u32::try_from(excess).unwrap_or(u32::MAX));
            if clean_some(&mut desk.database, some)? == 0 {
                break;
            }
            excess -= i64::from(some);
        }
        Ok(())
    }
}

/// Deletes some free records and raises the high-water mark above their fences in the same
/// transaction: whoever uses such a name again finds either its record or the mark.
fn clean_some(database: &mut Database, limit: u32) -> Result<u32> {
    let transaction = database.begin()?;
    let mut mark = transaction.meta::<i64>(HIGH_WATER)?.unwrap_or(0);
    let mut deleted = 0;
    for name in transaction.free_names(limit)? {
        let name = LockName::new(name)?;
        // A damaged record stays: it cannot say how far its fence came.
        let Ok(loaded) = transaction.load(&name) else { continue };
        if loaded.record.is_free() {
            mark = mark.max(i64::try_from(loaded.record.fence.get()).unwrap_or(i64::MAX));
            transaction.delete(&name)?;
            deleted += 1;
        }
    }
    transaction.set_meta(HIGH_WATER, mark)?;
    transaction.commit()?;
    Ok(deleted)
}
