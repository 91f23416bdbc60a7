//! Advisory locks beside another library that has them: sqlx.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sprag::{DistributedLock as _, Locks, advisory_key};
use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::support::{LONG, eventually, spawn_acquire, within};
use sqlx_core::Either;
use sqlx_core::connection::Connection as _;
use sqlx_postgres::{PgAdvisoryLock, PgAdvisoryLockKey, PgConnection};

const NAME: &str = "report";

fn ours(database: &Database) -> Locks {
    Locks::open(&format!("{}?mode=advisory", database.tcp_url())).unwrap()
}

async fn connect(database: &Database) -> PgConnection {
    PgConnection::connect(&format!("{}?sslmode=disable", database.tcp_url())).await.unwrap()
}

/// The same lock, as sqlx knows it.
fn theirs() -> PgAdvisoryLock {
    PgAdvisoryLock::with_key(PgAdvisoryLockKey::BigInt(advisory_key("default", NAME)))
}

#[tokio::test]
async fn sqlx_and_we_exclude_each_other() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let (locks, lock) = (ours(&database), theirs());

    let held = lock.acquire(connect(&database).await).await.unwrap();
    assert!(locks.lock(NAME).try_acquire().await.unwrap().is_none(), "sqlx has it");
    assert!(locks.is_locked(NAME).await.unwrap());
    let waiting = spawn_acquire(locks.lock(NAME).ttl(LONG));
    let connection = held.release_now().await.unwrap();
    let guard = within("let in once sqlx has left", waiting).await.unwrap().unwrap();

    let Either::Right(connection) = lock.try_acquire(connection).await.unwrap() else {
        panic!("sqlx was let in beside us");
    };
    let entering = tokio::spawn(async move { theirs().acquire(connection).await.map(drop) });
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually("sqlx waits", async || database.sql(waits) == "1").await;
    guard.release().await.unwrap();
    within("sqlx is let in once we have left", entering).await.unwrap().unwrap();
}

/// One at a time, whoever it is.
#[derive(Default)]
struct Room {
    inside: AtomicUsize,
    visits: AtomicUsize,
}

impl Room {
    async fn visit(&self) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "somebody is inside");
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.visits.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_both_enters_one_by_one() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let room = Arc::new(Room::default());
    let mut crowd = Vec::new();
    for _ in 0..4 {
        let (locks, inside) = (ours(&database), Arc::clone(&room));
        crowd.push(tokio::spawn(async move {
            for _ in 0..5 {
                let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
                inside.visit().await;
                guard.release().await.unwrap();
            }
        }));
        let (mut connection, inside) = (connect(&database).await, Arc::clone(&room));
        crowd.push(tokio::spawn(async move {
            let lock = theirs();
            for _ in 0..5 {
                let held = lock.acquire(connection).await.unwrap();
                inside.visit().await;
                connection = held.release_now().await.unwrap();
            }
        }));
    }
    for one in crowd {
        within("everybody has been inside", one).await.unwrap();
    }
    assert_eq!(room.visits.load(Ordering::SeqCst), 40);
}
