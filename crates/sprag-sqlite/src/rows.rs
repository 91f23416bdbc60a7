//! Records in and out of the database.

use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, params};
use sprag_core::record::Record;
use sprag_core::{Error, LockName, Result};

use crate::cache::Cached;
use crate::database::{Database, HIGH_WATER};
use crate::error::{corrupt, from_sqlite};

/// A record as it was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The version in its row; `None` if there is no row.
    pub(crate) version: Option<i64>,
    pub(crate) record: Record,
}

/// A record as a row.
struct Row<'a> {
    name: &'a str,
    version: i64,
    waiting: i64,
    held: i64,
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

    /// Reads a record.
    ///
    /// # Errors
    ///
    /// Corrupt if it cannot be understood; the caller may go on with other records.
    pub(crate) fn load(&self, name: &LockName) -> Result<Loaded> {
        let query = "SELECT version, record FROM lock WHERE name = ?1";
        let loaded = self.prepared(query)?.query_row([name.as_str()], |row| {
            let (version, text) = (row.get(0)?, row.get_ref(1)?);
            let known = text.as_str().ok().and_then(|text| self.cache.with_text(name, text));
            Ok((version, known.map_or_else(|| self.read(name.as_str(), version, text), Ok)))
        });
        match loaded.optional().map_err(|e| self.error(e))? {
            Some((version, record)) => Ok(Loaded { version: Some(version), record: record? }),
            None => Ok(Loaded { version: None, record: Record::default() }),
        }
    }

    /// Reads the records of locks in use, by name, until `visit` says stop.
    pub(crate) fn scan(
        &self,
        from: &str,
        after: Option<&str>,
        contended: bool,
        mut visit: impl FnMut(&str, Result<Record>) -> Result<bool>,
    ) -> Result<()> {
        // Names compare as bytes, here as in Rust.
        let query = "SELECT name, version, record FROM lock WHERE name >= ?1 \
                     AND (?2 IS NULL OR name > ?2) \
                     AND (waiting > 0 OR (held > 0 AND NOT ?3)) ORDER BY name";
        let mut statement = self.prepared(query)?;
        let rows = statement.query(params![from, after, contended]);
        let mut rows = rows.map_err(|e| self.error(e))?;
        while let Some(row) = rows.next().map_err(|e| self.error(e))? {
            let text = |index| row.get_ref(index)?.as_str().map_err(rusqlite::Error::from);
            let name = text(0).map_err(|e| self.error(e))?;
            let version = row.get(1).map_err(|e| self.error(e))?;
            let record = row.get_ref(2).map_err(|e| self.error(e))?;
            if !visit(name, self.read(name, version, record))? {
                break;
            }
        }
        Ok(())
    }

    /// The names of some locks that nobody holds or waits for.
    pub(crate) fn free_names(&self, limit: u32) -> Result<Vec<String>> {
        let query = "SELECT name FROM lock WHERE held = 0 AND waiting = 0 LIMIT ?1";
        let mut statement = self.prepared(query)?;
        let names = statement.query_map([limit], |row| row.get(0));
        names.and_then(Iterator::collect).map_err(|e| self.error(e))
    }

    /// Writes a record over the remembered one, unless the row has changed since. One statement,
    /// so one atomic step: comparing the whole text, no other record is mistaken for it.
    pub(crate) fn replace(&self, name: &LockName, old: &Cached, new: &Record) -> Result<bool> {
        let row = self.row(name, new)?;
        let query = "UPDATE lock SET version = ?2, waiting = ?3, held = ?4, record = ?5 \
                     WHERE name = ?1 AND version = ?6 AND record = ?7";
        let values =
            params![row.name, row.version, row.waiting, row.held, row.text, old.version, old.text];
        if self.execute(query, values)? == 1 {
            self.cache.remember(name, row.version, row.text, new);
            return Ok(true);
        }
        self.cache.mistrust(name);
        Ok(false)
    }

    fn row<'a>(&self, name: &'a LockName, record: &Record) -> Result<Row<'a>> {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let too_large = |_| corrupt(&self.path, name.as_str(), "its version is too large");
        // A holder that wants to be alone waits, too: the search for deadlocks asks for this.
        let upgrading = record.holders.iter().filter(|hold| hold.upgrading).count();
        Ok(Row {
            name: name.as_str(),
            version: i64::try_from(record.version).map_err(too_large)?,
            waiting: number(record.waiters.len() + upgrading),
            held: number(record.holders.len()),
            text: record.to_json(),
        })
    }

    fn read(&self, name: &str, version: i64, record: ValueRef<'_>) -> Result<Record> {
        let damaged = |what: &str| corrupt(&self.path, name, what);
        let text = record.as_str().map_err(|_| damaged("the record is not text"))?;
        let record = Record::from_json(text).map_err(|e| damaged(&e.to_string()))?;
        if i64::try_from(record.version) == Ok(version) {
            Ok(record)
        } else {
            Err(damaged("the row's version is not the record's"))
        }
    }
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
    /// Writes a record that was loaded with `version` in this transaction.
    pub(crate) fn save(&self, name: &LockName, version: Option<i64>, to: &Record) -> Result<()> {
        let row = self.0.row(name, to)?;
        let written = match version {
            None => self.0.execute(
                "INSERT INTO lock (name, version, waiting, held, record) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                params![row.name, row.version, row.waiting, row.held, row.text],
            )?,
            // The transaction alone makes this safe; the compare is the belt to its braces.
            Some(old) => self.0.execute(
                "UPDATE lock SET version = ?2, waiting = ?3, held = ?4, record = ?5 \
                 WHERE name = ?1 AND version = ?6",
                params![row.name, row.version, row.waiting, row.held, row.text, old],
            )?,
        };
        if written == 1 {
            self.0.cache.remember(name, row.version, row.text, to);
            return Ok(());
        }
        Err(from_sqlite(
            &self.0.path,
            rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY_SNAPSHOT),
                None,
            ),
        ))
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
