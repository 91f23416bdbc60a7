//! [`Database`]: one connection and the schema.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use sprag_core::{Error, ErrorKind, Result};

use crate::cache::Cache;
use crate::error::{error, from_sqlite};

/// Marks the file as sprag's: "sprg".
const APPLICATION_ID: i32 = 0x7370_7267;
/// The schema this library reads and writes. Any change is a new number.
const SCHEMA_VERSION: i32 = 2;
/// Older versions may damage the database when two processes write and checkpoint at once.
const MIN_SQLITE: i32 = 3_051_003;
/// The gate is waited for instead; this only covers recovery after a crash.
pub(crate) const SQLITE_PATIENCE: Duration = Duration::from_millis(250);

/// The largest fence that was cleaned away, in `meta`.
pub(crate) const HIGH_WATER: &str = "fence";

/// A record is kept without its queue, whose waiters are rows of their own in the order in which
/// they will be granted: a hand-over reads the first few of them, however many there are. A waiter
/// is found by its place, which its process remembers; an index by lease would be one more page to
/// write with each hand-over.
///
/// Names are in an index of their own: a table sorted by name keeps only a quarter of a page per
/// row in place, and a record with a few holders would be written to two pages each time.
const SCHEMA: &str = "
    CREATE TABLE lock (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        waiting INTEGER NOT NULL,
        held INTEGER NOT NULL,
        due INTEGER NOT NULL,
        record TEXT NOT NULL
    );
    CREATE TABLE waiter (
        lock INTEGER NOT NULL,
        place INTEGER NOT NULL,
        ticket INTEGER NOT NULL,
        lease BLOB NOT NULL,
        session BLOB,
        waiter TEXT NOT NULL,
        PRIMARY KEY (lock, place, ticket)
    ) WITHOUT ROWID;
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
    pub(crate) connection: Connection,
    pub(crate) path: PathBuf,
    pub(crate) cache: Cache,
    /// How many frames the log had after the last commit.
    pub(crate) frames: Arc<AtomicU32>,
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
        let mut database = Self {
            connection,
            path: path.to_owned(),
            cache: Cache::default(),
            frames: Arc::default(),
        };
        database.configure().map_err(|e| from_sqlite(path, e))?;
        Ok(database)
    }

    fn configure(&mut self) -> rusqlite::Result<()> {
        let connection = &mut self.connection;
        connection.busy_timeout(SQLITE_PATIENCE)?;
        // Closing neither costs an fsync nor changes a file that is not ours.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // Otherwise statements with a bound LIMIT are compiled anew each time.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        // A commit is in the page cache and survives the process. A power cut may undo it, but
        // it ends every holder too, and the fences have a time floor.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        // Checkpoints are made by the housekeeping, so that no caller pays for one.
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        let frames = Arc::clone(&self.frames);
        connection.wal_hook(Some(move |_: &mut Wal, length| {
            frames.store(u32::try_from(length).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        connection.pragma_update(None, "mmap_size", 0)?;
        connection.set_prepared_statement_cache_capacity(32);
        Ok(())
    }

    /// How long SQLite itself waits for other connections.
    pub(crate) fn wait_for_others(&self, patience: Duration) -> Result<()> {
        self.connection.busy_timeout(patience).map_err(|e| self.error(e))
    }

    /// Tells whose file it is, and refuses it if it is not ours.
    pub(crate) fn identify(&self) -> Result<Identity> {
        // One look: between two, somebody else may make it ours.
        let _look = self.begin()?;
        let pragma = |name| self.connection.pragma_query_value(None, name, |row| row.get(0));
        let application: i32 = pragma("application_id").map_err(|e| self.error(e))?;
        let version: i32 = pragma("user_version").map_err(|e| self.error(e))?;
        let shown = self.path.display();
        match (application, version) {
            (APPLICATION_ID, SCHEMA_VERSION) => return Ok(Identity::Sprag),
            (APPLICATION_ID, older) if older < SCHEMA_VERSION => {
                let message = format!(
                    "{shown} has schema {version}, from before the first release: delete it while \
                     nobody uses it"
                );
                return Err(error(ErrorKind::Refused, message));
            }
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

    /// How many rows a query counts.
    pub(crate) fn count(&self, query: &str) -> Result<i64> {
        let count = self.connection.query_row(query, [], |row| row.get(0));
        count.map_err(|e| self.error(e))
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

    pub(crate) fn prepared(&self, query: &str) -> Result<rusqlite::CachedStatement<'_>> {
        self.connection.prepare_cached(query).map_err(|e| self.error(e))
    }

    pub(crate) fn execute(&self, query: &str, values: impl rusqlite::Params) -> Result<usize> {
        let done = self.prepared(query)?.execute(values);
        done.map_err(|e| self.error(e))
    }

    pub(crate) fn error(&self, source: rusqlite::Error) -> Error {
        from_sqlite(&self.path, source)
    }
}
