//! Every conformance case on the SQLite store, with a database of its own for each.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;

use sprag::SqliteStore;
use sprag_core::LockName;
use sprag_core::record::Record;
use sprag_testkit::harness::{Harness, Session};

struct Sqlite(tempfile::TempDir);

impl Sqlite {
    fn path(&self) -> PathBuf {
        self.0.path().join("sprag.db")
    }
}

impl Harness for Sqlite {
    async fn fresh() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// When the last handle is dropped the session file is unlocked, and nothing else happens:
    /// what the kernel does for a process that was killed.
    async fn session(&self) -> Arc<Session> {
        let store = SqliteStore::open(self.path()).unwrap();
        Arc::new(Session::new(Arc::new(store), || {}))
    }

    fn url(&self) -> Option<String> {
        Some(format!("sqlite:{}", self.path().display()))
    }

    async fn write_record(&self, name: &LockName, text: &str) -> bool {
        let database = rusqlite::Connection::open(self.path()).unwrap();
        // The row repeats some of what is in a record that can be read.
        let record = Record::from_json(text).unwrap_or_default();
        let number = |count: usize| i64::try_from(count).unwrap();
        let (waiting, held) = (number(record.waiters.len()), number(record.holders.len()));
        let version = (record.version > 0).then(|| i64::try_from(record.version).unwrap());
        let update = "UPDATE lock SET record = ?2, version = coalesce(?3, version), waiting = ?4, \
                      held = ?5 WHERE name = ?1";
        let values = (name.as_str(), text, version, waiting, held);
        database.execute(update, values).unwrap() == 1
    }
}

sprag_testkit::conformance!(Sqlite);
