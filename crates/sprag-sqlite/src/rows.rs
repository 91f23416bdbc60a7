//! Records in and out of the database.

use rusqlite::params;
use sprag_core::record::Record;
use sprag_core::store::LEFT_OUT;
use sprag_core::{Error, LockName, Result};

use crate::database::{Database, HIGH_WATER};
use crate::error::corrupt;
use crate::queue::{LockRow, Reach, Window};

/// A record as it was read.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// Its row; `None` if there is none.
    pub(crate) row: Option<RowKey>,
    /// The record, with the waiters that were read.
    pub(crate) record: Record,
    /// What was read of its queue.
    pub(crate) window: Window,
}

/// Which row, in which version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowKey {
    pub(crate) id: i64,
    pub(crate) version: i64,
}

/// A record as a row.
struct Row<'a> {
    name: &'a str,
    version: i64,
    waiting: i64,
    held: i64,
    due: i64,
    text: String,
}

impl Database {
    /// Starts a transaction; it is rolled back unless committed.
    ///
    /// It sees one state of the database from its first read on, and a commit fails if somebody
    /// else wrote since: reading, deciding and writing are one atomic step even without the gate.
    pub(crate) fn begin(&self) -> Result<Transaction<'_>> {
        self.execute("BEGIN", [])?;
        Ok(Transaction(self))
    }

    /// Reads a record and as much of its queue as `reach` says.
    ///
    /// # Errors
    ///
    /// Corrupt if it cannot be understood; the caller may go on with other records.
    pub(crate) fn load(&self, name: &LockName, reach: Reach) -> Result<Loaded> {
        if let Some(id) = self.cache.id(name) {
            // Spares the index of names, unless the record was cleaned up meanwhile.
            let query = "SELECT id, version, waiting, due, record FROM lock \
                         WHERE id = ?1 AND name = ?2";
            if let Some(loaded) = self.load_by(name, query, params![id, name.as_str()], reach)? {
                return Ok(loaded);
            }
        }
        let query = "SELECT id, version, waiting, due, record FROM lock WHERE name = ?1";
        let loaded = self.load_by(name, query, [name.as_str()], reach)?.unwrap_or_default();
        if let Some(row) = loaded.row {
            self.cache.remember_id(name, row.id);
        }
        Ok(loaded)
    }

    fn load_by(
        &self,
        name: &LockName,
        query: &str,
        values: impl rusqlite::Params,
        reach: Reach,
    ) -> Result<Option<Loaded>> {
        let mut statement = self.prepared(query)?;
        let mut rows = statement.query(values).map_err(|e| self.error(e))?;
        let row = rows.next().map_err(|e| self.error(e))?;
        row.map(|row| self.read(name.as_str(), row, reach)).transpose()
    }

    /// Reads the records of locks in use, by name, until `visit` says stop.
    pub(crate) fn scan(
        &self,
        from: &str,
        after: Option<&str>,
        contended: bool,
        mut visit: impl FnMut(&str, Result<Loaded>) -> Result<bool>,
    ) -> Result<()> {
        // Names compare as bytes, here as in Rust.
        let query = "SELECT id, version, waiting, due, record, name FROM lock WHERE name >= ?1 \
                     AND (?2 IS NULL OR name > ?2) \
                     AND (waiting > 0 OR (held > 0 AND NOT ?3)) ORDER BY name";
        let mut statement = self.prepared(query)?;
        let rows = statement.query(params![from, after, contended]);
        let mut rows = rows.map_err(|e| self.error(e))?;
        while let Some(row) = rows.next().map_err(|e| self.error(e))? {
            let Ok(name) = row.get_ref(5).and_then(|name| Ok(name.as_str()?)) else {
                tracing::warn!(target: LEFT_OUT, lock = "(no text)", "a record is left out");
                continue;
            };
            if !visit(name, self.read(name, row, Reach::All))? {
                break;
            }
        }
        Ok(())
    }

    /// Reads a row of `id, version, waiting, due, record`.
    fn read(&self, name: &str, row: &rusqlite::Row<'_>, reach: Reach) -> Result<Loaded> {
        let damaged = |what: &str| corrupt(&self.path, name, what);
        let number = |index| row.get::<_, i64>(index).map_err(|_| damaged("a number is missing"));
        let (id, version) = (number(0)?, number(1)?);
        let text = row.get_ref(4).and_then(|text| Ok(text.as_str()?));
        let text = text.map_err(|_| damaged("the record is not text"))?;
        let known = self.cache.with_text(name, text);
        let record = known.map_or_else(|| Record::from_json(text), Ok);
        let mut record = record.map_err(|e| damaged(&e.to_string()))?;
        if i64::try_from(record.version) != Ok(version) {
            return Err(damaged("the row's version is not the record's"));
        }
        if !record.waiters.is_empty() {
            return Err(damaged("it has waiters, which belong into rows of their own"));
        }
        let queued =
            usize::try_from(number(2)?).ok().and_then(|n| n.checked_sub(upgrading(&record)));
        let window = LockRow {
            id,
            name,
            queued: queued.ok_or_else(|| damaged("the number of waiters cannot be right"))?,
            due_ms: u64::try_from(number(3)?).unwrap_or(0),
            heir: record.heir.map(|heir| heir.lease),
        };
        let reach = match reach {
            Reach::Near(Some(asker)) if record.holders.iter().any(|h| h.lease == asker.lease) => {
                Reach::Near(None)
            }
            reach => reach,
        };
        let window = self.read_queue(&window, reach)?;
        if !window.read.is_empty() {
            record.waiters.extend(window.read.iter().cloned());
            record.check().map_err(|broken| damaged(&broken))?;
        }
        Ok(Loaded { row: Some(RowKey { id, version }), record, window })
    }

    /// The names of some locks that nobody holds or waits for.
    pub(crate) fn free_names(&self, limit: u32) -> Result<Vec<String>> {
        let query = "SELECT name FROM lock WHERE held = 0 AND waiting = 0 LIMIT ?1";
        let mut statement = self.prepared(query)?;
        let names = statement.query_map([limit], |row| row.get(0));
        names.and_then(Iterator::collect).map_err(|e| self.error(e))
    }

    /// Writes a record without waiters over the remembered one, unless the row has changed since.
    /// One statement, so one atomic step: comparing the whole text, no other record is mistaken
    /// for it, and its queue is still empty, as any waiter would have changed the version.
    pub(crate) fn replace(
        &self,
        name: &LockName,
        (version, text): (i64, &str),
        new: &mut Record,
    ) -> Result<bool> {
        // Its number spares the index of names.
        let Some(id) = self.cache.id(name) else { return Ok(false) };
        let row = self.row(name, new, &Window::default())?;
        let query = "UPDATE lock SET version = ?3, waiting = ?4, held = ?5, record = ?6 \
                     WHERE id = ?1 AND name = ?2 AND version = ?7 AND record = ?8";
        let Row { name: shown, waiting, held, .. } = row;
        let values = params![id, shown, row.version, waiting, held, row.text, version, text];
        if self.execute(query, values)? == 1 {
            self.cache.remember(name, row.version, row.text, new.clone());
            return Ok(true);
        }
        self.cache.mistrust(name);
        Ok(false)
    }

    /// The row of a record. Its waiters are not in there.
    fn row<'a>(&self, name: &'a LockName, record: &mut Record, window: &Window) -> Result<Row<'a>> {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let too_large = |_| corrupt(&self.path, name.as_str(), "its version is too large");
        let waiting = record.waiters.len() + window.unread + upgrading(record);
        let due = i64::try_from(window.next_due_ms(record)).unwrap_or(i64::MAX);
        let version = i64::try_from(record.version).map_err(too_large)?;
        let waiters = std::mem::take(&mut record.waiters);
        let text = record.to_json();
        record.waiters = waiters;
        let (waiting, held) = (number(waiting), number(record.holders.len()));
        Ok(Row { name: name.as_str(), version, waiting, held, due, text })
    }
}

/// A holder that wants to be alone waits, too: the search for deadlocks asks for this.
fn upgrading(record: &Record) -> usize {
    record.holders.iter().filter(|hold| hold.upgrading).count()
}

/// A transaction on a [`Database`].
#[derive(Debug)]
pub(crate) struct Transaction<'a>(&'a Database);

impl std::ops::Deref for Transaction<'_> {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.0
    }
}

impl Transaction<'_> {
    /// Writes what was decided about a record that was loaded in this transaction.
    pub(crate) fn save(
        &self,
        name: &LockName,
        from: Option<RowKey>,
        window: &Window,
        to: &mut Record,
    ) -> Result<()> {
        let row = self.row(name, to, window)?;
        let written = match from {
            None => self.execute(
                "INSERT INTO lock (name, version, waiting, held, due, record) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![row.name, row.version, row.waiting, row.held, row.due, row.text],
            )?,
            // The transaction alone makes this safe; the compare is the belt to its braces.
            Some(from) => self.execute(
                "UPDATE lock SET version = ?2, waiting = ?3, held = ?4, due = ?5, record = ?6 \
                 WHERE id = ?1 AND version = ?7",
                params![
                    from.id,
                    row.version,
                    row.waiting,
                    row.held,
                    row.due,
                    row.text,
                    from.version
                ],
            )?,
        };
        if written != 1 {
            let conflict = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY_SNAPSHOT);
            return Err(self.error(rusqlite::Error::SqliteFailure(conflict, None)));
        }
        if !(window.read.is_empty() && to.waiters.is_empty()) {
            let id = from.map_or_else(|| self.connection.last_insert_rowid(), |row| row.id);
            self.save_queue(id, window, to)?;
        }
        if row.waiting == 0 {
            self.cache.remember(name, row.version, row.text, to.clone());
        } else {
            self.cache.forget(name);
        }
        Ok(())
    }

    /// Deletes a record.
    pub(crate) fn delete(&self, name: &LockName) -> Result<()> {
        self.0.execute("DELETE FROM lock WHERE name = ?1", [name.as_str()]).map(drop)
    }

    /// Writes a text or number to `meta`.
    pub(crate) fn set_meta(&self, key: &str, value: impl rusqlite::ToSql) -> Result<()> {
        let query = "INSERT INTO meta (key, value) VALUES (?1, ?2) \
                     ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        self.0.execute(query, params![key, value]).map(drop)
    }

    /// Raises the largest fence that was cleaned away.
    pub(crate) fn raise_high_water(&self, mark: u64) -> Result<()> {
        self.set_meta(HIGH_WATER, i64::try_from(mark).unwrap_or(i64::MAX))
    }

    /// Makes it durable against the end of any process.
    pub(crate) fn commit(self) -> Result<()> {
        self.0.execute("COMMIT", []).map(drop)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // After a commit, and after errors where SQLite rolled back itself, there is none.
        if !self.0.connection.is_autocommit()
            && let Err(error) = self.0.execute("ROLLBACK", [])
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }
}

/// Whether the transaction lost against a write from outside the gate and may be tried again.
pub(crate) fn is_conflict(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    let sqlite = source.and_then(|e| e.downcast_ref::<rusqlite::Error>());
    let code = sqlite.and_then(|e| e.sqlite_error()).map(|e| e.extended_code);
    code == Some(rusqlite::ffi::SQLITE_BUSY_SNAPSHOT)
}
