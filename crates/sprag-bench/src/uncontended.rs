//! One task, one lock that nobody else wants: what an acquire and a release cost.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use rusqlite::Connection;

use crate::crowd;
use crate::now_nanos;
use crate::report::{Goal, Row, progress};
use crate::subject::Subject;

const NAME: &str = "uncontended";

/// How long each side is measured each time.
const LENGTH: Duration = Duration::from_millis(400);

/// sprag, raw SQLite and flock(2) in turn.
pub(crate) fn measure(folder: &Path, pairs: usize) -> Result<Vec<Row>> {
    let subject = Subject::open(folder)?;
    let sizes = subject.row_bytes(folder, NAME)?;
    let raw = Raw::open(&folder.join("raw.db"), sizes, Checkpoints::Automatic)?;
    let bare = Raw::open(&folder.join("bare.db"), sizes, Checkpoints::Never)?;
    let file = crowd::open(&folder.join("uncontended"))?;
    let mut sides: [Vec<f64>; 4] = Default::default();
    for pair in 0..=pairs {
        let measured = [
            cycles_per_second(|| subject.release(subject.acquire(NAME)?))?,
            cycles_per_second(|| raw.cycle())?,
            cycles_per_second(|| bare.cycle())?,
            cycles_per_second(|| {
                file.lock()?;
                Ok(file.unlock()?)
            })?,
        ];
        bare.empty_log()?;
        // The first time warms up files and caches, and does not count.
        if pair > 0 {
            progress(&format!("uncontended: pair {pair} of {pairs}"));
            for (side, figure) in sides.iter_mut().zip(measured) {
                side.push(figure);
            }
        }
    }
    let what = "uncontended acquire + release, cycles/s";
    let [ours, raw, bare, flock] = &sides;
    Ok(vec![
        Row::pairs(what, ours, ("raw SQLite", raw), Some(Goal::AtLeast(0.5))),
        Row::pairs(what, ours, ("raw SQLite, no checkpoints", bare), None),
        Row::pairs(what, ours, ("flock", flock), None),
    ])
}

fn cycles_per_second(mut cycle: impl FnMut() -> Result<()>) -> Result<f64> {
    let start = now_nanos();
    let end = start + u64::try_from(LENGTH.as_nanos())?;
    let mut cycles = 0_u32;
    loop {
        cycle()?;
        cycles += 1;
        let now = now_nanos();
        if now >= end {
            return Ok(f64::from(cycles) / ((now - start) as f64 / 1e9));
        }
    }
}

/// Who copies the log into the database.
#[derive(Clone, Copy, Debug)]
enum Checkpoints {
    /// SQLite, every 1,000 pages, as it comes.
    Automatic,
    /// Nobody while the time is taken.
    Never,
}

/// The least that a lock in SQLite can cost: two committed updates of a row.
#[derive(Debug)]
struct Raw {
    connection: Connection,
    held: Vec<u8>,
    free: Vec<u8>,
}

impl Raw {
    fn open(path: &Path, sizes: (usize, usize), checkpoints: Checkpoints) -> Result<Self> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "normal")?;
        if let Checkpoints::Never = checkpoints {
            connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        }
        connection.execute_batch(
            "CREATE TABLE lock (name TEXT PRIMARY KEY, state BLOB NOT NULL) WITHOUT ROWID;",
        )?;
        let (held, free) = (vec![1; sizes.0], vec![0; sizes.1]);
        connection.execute("INSERT INTO lock VALUES (?1, ?2)", (NAME, &free))?;
        Ok(Self { connection, held, free })
    }

    fn cycle(&self) -> Result<()> {
        for state in [&self.held, &self.free] {
            let mut update =
                self.connection.prepare_cached("UPDATE lock SET state = ?2 WHERE name = ?1")?;
            update.execute((NAME, state))?;
        }
        Ok(())
    }

    fn empty_log(&self) -> Result<()> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
}
