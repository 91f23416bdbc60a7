//! Locks for the length of a transaction, on a connection of the caller's own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use sprag_core::store::{Attempt, Released};
use sprag_core::{ErrorKind, LockName, Store};
use sprag_postgres::{Address, AdvisoryStore, PostgresConfig, PostgresStore, lock_for_transaction};
use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::support::{eventually, request, within};
use tokio_postgres::{Client, NoTls};

async fn connect(database: &Database) -> Client {
    connect_as("postgres", database).await
}

fn config(database: &Database) -> PostgresConfig {
    let address = Address::Unix(database.folder(), database.port());
    PostgresConfig::new(address, database.name()).user("postgres")
}

async fn connect_as(user: &str, database: &Database) -> Client {
    let mut config = tokio_postgres::Config::new();
    config.host_path(database.folder()).port(database.port()).user(user);
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
    let store = AdvisoryStore::connect(config(&database)).await.unwrap();
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

/// A lease is no advisory lock: a transaction that took the key would exclude nobody who has one.
#[tokio::test]
async fn a_namespace_of_leases_is_refused() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    // Where nobody has used sprag there is no schema.
    let mut client = connect(&database).await;
    let name = LockName::new("report").unwrap();
    let early = client.transaction().await.unwrap();
    lock_for_transaction(&early, PostgresConfig::NAMESPACE, &name).await.unwrap();
    early.commit().await.unwrap();

    let odd = "it's $$ odd";
    for space in [PostgresConfig::NAMESPACE, odd] {
        let leases = PostgresStore::connect(config(&database).namespace(space)).await.unwrap();
        let held = leases.try_acquire(&request("report")).await.unwrap();
        assert!(matches!(held, Attempt::Granted(_)), "{held:?}");
        let transaction = client.transaction().await.unwrap();
        let error = lock_for_transaction(&transaction, space, &name).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Refused, "{error:?}");
        assert!(error.to_string().contains("mode=advisory"), "{error}");
        // Who does not look at the answer writes nothing without the lock.
        assert!(transaction.batch_execute("SELECT 1").await.is_err(), "it goes on");
    }

    let other = client.transaction().await.unwrap();
    lock_for_transaction(&other, "other", &name).await.unwrap();
    other.commit().await.unwrap();
}

/// Who may not see what kind of locks there are is refused, and told what it needs.
#[tokio::test]
async fn a_user_without_rights_is_told_which() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let _store = AdvisoryStore::connect(config(&database)).await.unwrap();
    let (user, name) = (format!("user_of_{}", database.name()), LockName::new("report").unwrap());
    database.sql(&format!("CREATE ROLE {user} LOGIN"));
    let mut client = connect_as(&user, &database).await;
    let transaction = client.transaction().await.unwrap();
    let refused = lock_for_transaction(&transaction, PostgresConfig::NAMESPACE, &name).await;
    drop(transaction);
    database.sql(&format!("GRANT USAGE ON SCHEMA sprag TO {user}"));
    database.sql(&format!("GRANT SELECT ON sprag.namespace TO {user}"));
    let transaction = client.transaction().await.unwrap();
    let taken = lock_for_transaction(&transaction, PostgresConfig::NAMESPACE, &name).await;
    drop(transaction);
    drop(client);
    database.sql(&format!("DROP OWNED BY {user}"));
    database.sql(&format!("DROP ROLE {user}"));
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Refused, "{error:?}");
    assert!(error.to_string().contains("GRANT SELECT ON sprag.namespace"), "{error}");
    taken.unwrap();
}
