//! Every conformance case on the SQLite store, with a database of its own for each.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use sprag::{SqliteConfig, SqliteStore};
use sprag_core::record::Record;
use sprag_core::{Client, LockName};
use sprag_testkit::bent_clock::BentClock;
use sprag_testkit::harness::{Harness, Session};
use sprag_testkit::support::{LONG, let_time_pass, within};

struct Sqlite(tempfile::TempDir);

impl Sqlite {
    fn path(&self) -> PathBuf {
        self.0.path().join("sprag.db")
    }
}

#[async_trait]
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
        // The row repeats some of what is in a record that can be read, and its waiters are rows.
        let read = Record::from_json(text);
        let mut record = read.clone().unwrap_or_default();
        let waiters = std::mem::take(&mut record.waiters);
        let text = read.map_or_else(|_| text.to_owned(), |_| record.to_json());
        let number = |count: usize| i64::try_from(count).unwrap();
        let (waiting, held) = (number(waiters.len()), number(record.holders.len()));
        let version = (record.version > 0).then(|| i64::try_from(record.version).unwrap());
        let insert = "INSERT INTO waiter (lock, place, ticket, lease, waiter) \
                      SELECT id, ?2, ?3, ?4, ?5 FROM lock WHERE name = ?1";
        for wait in waiters {
            let (place, ticket) = wait.order();
            let lease = wait.lease.as_u128().to_be_bytes();
            let ticket = i64::try_from(ticket).unwrap();
            let values = (name.as_str(), place, ticket, lease, wait.to_json());
            database.execute(insert, values).unwrap();
        }
        let update = "UPDATE lock SET record = ?2, version = coalesce(?3, version), waiting = ?4, \
                      held = ?5, due = 0 WHERE name = ?1";
        let values = (name.as_str(), text, version, waiting, held);
        database.execute(update, values).unwrap() == 1
    }
}

sprag_testkit::conformance!(Sqlite);

/// FAULTS 23, on the machine of the store: its time of day is the floor of new fences, and nothing
/// else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_time_of_day_jumps_keeps_leases_and_fences() {
    let place = Sqlite::fresh().await;
    let clock = Arc::new(BentClock::default());
    let config = SqliteConfig::new(place.path()).clock(Arc::clone(&clock) as _);
    let store = Arc::new(SqliteStore::with_config(config).unwrap());
    let (holder, other) = (Client::new(Arc::clone(&store) as _), Client::new(store));
    let ttl = place.ttl() * 2;
    let guard = holder.lock("report").ttl(ttl).acquire().await.unwrap();
    let mut fence = guard.fence();
    for hours in [1, -1, 24, -24] {
        clock.set(hours);
        let_time_pass(ttl / 2).await;
        assert!(guard.is_valid(), "ended early");
        assert!(other.lock("report").try_acquire().await.unwrap().is_none());
    }
    guard.release().await.unwrap();
    for hours in [0, 1, -1, 24, -24] {
        clock.set(hours);
        let next = other.lock("report").ttl(LONG).acquire().await.unwrap();
        assert!(next.fence() > fence, "{} after {fence}", next.fence());
        fence = next.fence();
        next.release().await.unwrap();
    }
    // And no lease lasts longer.
    let fixed = holder.lock("report").ttl(ttl).no_renewal().acquire().await.unwrap();
    clock.set(-1);
    drop(within("its lease is over", other.lock("report").acquire()).await.unwrap());
    assert!(!fixed.is_valid());
}
