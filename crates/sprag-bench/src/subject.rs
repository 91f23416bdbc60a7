//! [`Subject`]: what is measured, sprag's client over SQLite, as one thread uses it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rusqlite::{Connection, OpenFlags};
use sprag_core::{Client, LockGuard, Store, block_on};
use sprag_sqlite::SqliteStore;

use crate::timed::{Timed, Timings};

/// The lease of the locks that are held for long: they are renewed after a third of it.
const LONG_HELD: Duration = Duration::from_secs(6);

/// One client and its store.
#[derive(Debug)]
pub(crate) struct Subject {
    client: Client,
}

impl Subject {
    /// Opens the store in `folder`, as users do.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        Ok(Self { client: Client::new(Arc::new(store(folder)?)) })
    }

    /// Opens it with a stopwatch on each request.
    pub(crate) fn open_timed(folder: &Path, timings: &Arc<Timings>) -> Result<Self> {
        let store: Arc<dyn Store> = Arc::new(Timed::new(store(folder)?, Arc::clone(timings)));
        Ok(Self { client: Client::new(store) })
    }

    /// Waits for the lock.
    pub(crate) fn acquire(&self, name: &str) -> Result<LockGuard> {
        Ok(block_on(self.client.lock(name).acquire())?)
    }

    /// Gives it back, and waits for the store's answer.
    pub(crate) fn release(&self, guard: LockGuard) -> Result<()> {
        block_on(guard.release())?;
        Ok(())
    }

    /// How many bytes the row of a lock has while it is held, and while it is free.
    pub(crate) fn row_bytes(&self, folder: &Path, name: &str) -> Result<(usize, usize)> {
        let guard = self.acquire(name)?;
        let held = row_bytes(folder, name)?;
        self.release(guard)?;
        Ok((held, row_bytes(folder, name)?))
    }

    /// Takes many locks, each of its own name, to be held for long.
    pub(crate) fn hold_many(&self, count: usize) -> Result<Vec<LockGuard>> {
        let mut guards = Vec::with_capacity(count);
        for index in 0..count {
            let request = self.client.lock(format!("held-{index}")).ttl(LONG_HELD);
            guards.push(block_on(request.acquire())?);
        }
        Ok(guards)
    }
}

fn store(folder: &Path) -> Result<SqliteStore> {
    Ok(SqliteStore::open(folder.join("sprag.db"))?)
}

fn row_bytes(folder: &Path, name: &str) -> Result<usize> {
    let path = folder.join("sprag.db");
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // Three numbers beside the name and the record.
    let query = "SELECT length(record) + length(name) + 3 * 8 FROM lock WHERE name = ?1";
    let bytes: u32 = connection.query_row(query, [name], |row| row.get(0))?;
    Ok(usize::try_from(bytes)?)
}
