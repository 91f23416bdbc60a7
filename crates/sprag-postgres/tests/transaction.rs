//! Locks for the length of a transaction, on a connection of the caller's own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use sprag_core::store::{Attempt, Released};
use sprag_core::{ErrorKind, LockName, Store};
use sprag_postgres::{Address, AdvisoryStore, PostgresConfig, lock_for_transaction};
use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::support::{eventually, request, within};
use tokio_postgres::{Client, NoTls};

async fn connect(database: &Database) -> Client {
    let mut config = tokio_postgres::Config::new();
    config.host_path(database.folder()).port(database.port()).user("postgres");
    let (client, connection) = config.dbname(database.name()).connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn it_excludes_the_store_until_the_transaction_ends() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let address = Address::Unix(database.folder(), database.port());
    let config = PostgresConfig::new(address, database.name()).user("postgres");
    let store = AdvisoryStore::connect(config).await.unwrap();
    let (mut client, name) = (connect(&database).await, LockName::new("report").unwrap());

    let transaction = client.transaction().await.unwrap();
    lock_for_transaction(&transaction, PostgresConfig::NAMESPACE, &name).await.unwrap();
    assert!(matches!(store.try_acquire(&request("report")).await.unwrap(), Attempt::Held(_)));
    transaction.commit().await.unwrap();
    let held = request("report");
    assert!(matches!(store.try_acquire(&held).await.unwrap(), Attempt::Granted(_)));

    let transaction = client.transaction().await.unwrap();
    let waiting = lock_for_transaction(&transaction, PostgresConfig::NAMESPACE, &name);
    let releasing = async {
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        eventually("the transaction waits", async || database.sql(waits) == "1").await;
        assert_eq!(store.release(&held.name, held.lease).await.unwrap(), Released::Freed);
    };
    let (taken, ()) = within("it is let in", async { tokio::join!(waiting, releasing) }).await;
    taken.unwrap();
}

#[tokio::test]
async fn a_deadlock_that_the_server_finds_is_told() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let (mut one, mut two) = (connect(&database).await, connect(&database).await);
    let (one, two) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
    let [a, b] = ["a", "b"].map(|name| LockName::new(name).unwrap());
    let space = PostgresConfig::NAMESPACE;
    lock_for_transaction(&one, space, &a).await.unwrap();
    lock_for_transaction(&two, space, &b).await.unwrap();
    let first = async {
        let taken = lock_for_transaction(&one, space, &b).await;
        one.rollback().await.unwrap();
        taken
    };
    let second = async {
        let taken = lock_for_transaction(&two, space, &a).await;
        two.rollback().await.unwrap();
        taken
    };
    let (first, second) = within("one gives way", async { tokio::join!(first, second) }).await;
    let victim = if first.is_err() { &first } else { &second };
    assert_eq!(victim.as_ref().unwrap_err().kind(), &ErrorKind::Deadlock, "{first:?} {second:?}");
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
}
