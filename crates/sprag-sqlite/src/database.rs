//! [`Database`]: one connection, the schema, and records in and out.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use sprag_core::record::Record;
use sprag_core::{Error, ErrorKind, LockName, Result};

use crate::cache::{Cache, Cached};
use crate::error::{corrupt, error, from_sqlite};

/// Marks the file as sprag's: "sprg".
const APPLICATION_ID: i32 = 0x7370_7267;
/// The schema this library reads and writes. Any change is a new number.
const SCHEMA_VERSION: i32 = 1;
/// Older versions may damage the database when two processes write and checkpoint at once.
const MIN_SQLITE: i32 = 3_051_003;
/// The gate is waited for instead; this only covers recovery after a crash.
const SQLITE_PATIENCE: Duration = Duration::from_millis(250);

/// The largest fence that was cleaned away, in `meta`.
const HIGH_WATER: &str = "fence";

/// Names are in an index of their own: a table sorted by name keeps only a quarter of a page per
/// row in place, and a record with a few waiters would be written to two pages each time.
const SCHEMA: &str = "
    CREATE TABLE lock (
        name TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        waiting INTEGER NOT NULL,
        held INTEGER NOT NULL,
        record TEXT NOT NULL
    );
    CREATE TABLE meta (key TEXT PRIMARY KEY NOT NULL, value NOT NULL) WITHOUT ROWID;";

/// What a database file turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Ours.
    Sprag,
    /// Empty: to be made ours.
    Empty,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    path: PathBuf,
    pub(crate) cache: Cache,
}

/// A record as it was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The version in its row; `None` if there is no row.
    pub(crate) version: Option<i64>,
    pub(crate) record: Record,
}

impl Database {
    /// Connects and changes nothing in the file.
    pub(crate) fn connect(path: &Path) -> Result<Self> {
        if rusqlite::version_number() < MIN_SQLITE {
            let found = rusqlite::version();
            let message = format!("SQLite {found} may damage the database: link 3.51.3 or newer");
            return Err(error(ErrorKind::Refused, message));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(|e| from_sqlite(path, e))?;
        let database = Self { connection, path: path.to_owned(), cache: Cache::default() };
        database.configure().map_err(|e| database.error(e))?;
        Ok(database)
    }

    fn configure(&self) -> rusqlite::Result<()> {
        let connection = &self.connection;
        connection.busy_timeout(SQLITE_PATIENCE)?;
        // Closing neither costs an fsync nor changes a file that is not ours.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // A commit is in the page cache and survives the process. A power cut may undo it, but
        // it ends every holder too, and the fences have a time floor.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        // Checkpoints are made by the housekeeping, so that no caller pays for one.
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.pragma_update(None, "mmap_size", 0)?;
        connection.set_prepared_statement_cache_capacity(16);
        Ok(())
    }

    /// Tells whose file it is, and refuses it if it is not ours.
    pub(crate) fn identify(&self) -> Result<Identity> {
        let pragma = |name| self.connection.pragma_query_value(None, name, |row| row.get(0));
        let application: i32 = pragma("application_id").map_err(|e| self.error(e))?;
        let version: i32 = pragma("user_version").map_err(|e| self.error(e))?;
        let shown = self.path.display();
        match (application, version) {
            (APPLICATION_ID, SCHEMA_VERSION) => return Ok(Identity::Sprag),
            (APPLICATION_ID, _) => {
                let message = format!(
                    "{shown} has schema {version} and this version of sprag knows \
                     {SCHEMA_VERSION}: upgrade sprag here"
                );
                return Err(error(ErrorKind::Corrupt, message));
            }
            (0, 0) if self.count("SELECT count(*) FROM sqlite_schema")? == 0 => {
                return Ok(Identity::Empty);
            }
            _ => {}
        }
        let message = format!(
            "{shown} is another program's SQLite database and was left as it is: use another path"
        );
        Err(error(ErrorKind::Refused, message))
    }

    /// Makes an empty file ours. Called inside the gate.
    pub(crate) fn initialize(&self) -> Result<()> {
        self.use_log()?;
        // One transaction: after a crash in the middle the file is empty as before.
        let batch = format!(
            "BEGIN IMMEDIATE; {SCHEMA} PRAGMA application_id = {APPLICATION_ID}; \
             PRAGMA user_version = {SCHEMA_VERSION}; COMMIT"
        );
        self.connection.execute_batch(&batch).map_err(|e| self.error(e))
    }

    /// Makes sure that the write-ahead log is in use. Called inside the gate.
    pub(crate) fn use_log(&self) -> Result<()> {
        let mode: String = self
            .connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
            .map_err(|e| self.error(e))?;
        if mode == "wal" {
            return Ok(());
        }
        let message = format!(
            "{} cannot use a write-ahead log here: use a directory on a local disk",
            self.path.display()
        );
        Err(error(ErrorKind::Refused, message))
    }

    /// Starts a transaction; it is rolled back unless committed.
    ///
    /// It sees one state of the database from its first read on, and a commit fails if somebody
    /// else wrote since: reading, deciding and writing are one atomic step even without the gate.
    pub(crate) fn begin(&self) -> Result<Transaction<'_>> {
        self.execute("BEGIN", [])?;
        Ok(Transaction(self))
    }

    /// How many rows a query counts.
    pub(crate) fn count(&self, query: &str) -> Result<i64> {
        let count = self.connection.query_row(query, [], |row| row.get(0));
        count.map_err(|e| self.error(e))
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

    /// Reads a text or number from `meta`.
    pub(crate) fn meta<T: rusqlite::types::FromSql>(&self, key: &str) -> Result<Option<T>> {
        let mut statement = self.prepared("SELECT value FROM meta WHERE key = ?1")?;
        let value = statement.query_row([key], |row| row.get(0)).optional();
        value.map_err(|e| self.error(e))
    }

    /// The largest fence that was cleaned away with its record.
    pub(crate) fn high_water(&self) -> Result<u64> {
        let mark: Option<i64> = self.meta(HIGH_WATER)?;
        Ok(mark.and_then(|mark| u64::try_from(mark).ok()).unwrap_or(0))
    }

    /// Copies what is in the log into the database. `truncate` also empties the log and is
    /// called inside the gate. Returns the frames in the log and how many of them are copied.
    pub(crate) fn checkpoint(&self, truncate: bool) -> Result<(i64, i64)> {
        let query = if truncate {
            "PRAGMA wal_checkpoint(TRUNCATE)"
        } else {
            "PRAGMA wal_checkpoint(PASSIVE)"
        };
        let counts = self.connection.query_row(query, [], |row| Ok((row.get(1)?, row.get(2)?)));
        counts.map_err(|e| self.error(e))
    }

    fn read(
        &self,
        name: &str,
        version: i64,
        record: rusqlite::types::ValueRef<'_>,
    ) -> Result<Record> {
        let damaged = |what: &str| corrupt(&self.path, name, what);
        let text = record.as_str().map_err(|_| damaged("the record is not text"))?;
        let record = Record::from_json(text).map_err(|e| damaged(&e.to_string()))?;
        if i64::try_from(record.version) == Ok(version) {
            Ok(record)
        } else {
            Err(damaged("the row's version is not the record's"))
        }
    }

    fn prepared(&self, query: &str) -> Result<rusqlite::CachedStatement<'_>> {
        self.connection.prepare_cached(query).map_err(|e| self.error(e))
    }

    fn execute(&self, query: &str, values: impl rusqlite::Params) -> Result<usize> {
        let done = self.prepared(query)?.execute(values);
        done.map_err(|e| self.error(e))
    }

    fn error(&self, source: rusqlite::Error) -> Error {
        from_sqlite(&self.path, source)
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

/// A record as a row.
struct Row<'a> {
    name: &'a str,
    version: i64,
    waiting: i64,
    held: i64,
    text: String,
}

impl Database {
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
        Ok(Row {
            name: name.as_str(),
            version: i64::try_from(record.version).map_err(too_large)?,
            waiting: number(record.waiters.len()),
            held: number(record.holders.len()),
            text: record.to_json(),
        })
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
