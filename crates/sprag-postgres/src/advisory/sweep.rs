//! What is left of a statement that failed: session locks, which are counted and which no rollback
//! gives back.

use sprag_testkit::postgres_server::{Database, skipped};
use tokio_postgres::{Client, NoTls};

async fn connect(database: &Database) -> Client {
    let (client, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// However often a key was taken, a session has it as often afterwards as it has a right to.
#[tokio::test]
async fn a_key_is_left_as_often_as_there_is_a_right_to_it() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let (session, other) = (connect(&database).await, connect(&database).await);
    session.batch_execute(crate::SQL).await.unwrap();
    session
        .batch_execute(
            "SELECT sprag.begin_session_v1('s'); \
             INSERT INTO sprag.grip VALUES ('a', '', 'one', 1, false, pg_backend_pid(), 's'), \
               ('b', '', 'two', 2, true, pg_backend_pid(), 's'), \
               ('c', '', 'two', 2, true, pg_backend_pid(), 's'); \
             SELECT pg_advisory_lock(1), pg_advisory_lock(1), pg_advisory_lock(1), \
               pg_advisory_lock(2), pg_advisory_lock(2), pg_advisory_lock_shared(2), \
               pg_advisory_lock_shared(2), pg_advisory_lock_shared(2), \
               pg_advisory_lock(3), pg_advisory_lock(3), pg_advisory_lock_shared(3)",
        )
        .await
        .unwrap();
    session.batch_execute("SELECT sprag.sweep_v1('{1,2}')").await.unwrap();
    let free = async |how: &str| -> bool {
        let taken = format!("SELECT pg_try_advisory_xact_lock{how}");
        other.query_one(&taken, &[]).await.unwrap().get(0)
    };
    assert!(free("(3)").await, "nobody has a right to it");
    assert!(!free("_shared(1)").await, "there is a right to it");
    assert!(free("_shared(2)").await && !free("(2)").await, "there are rights to read");
    let left = session
        .query_one(
            "SELECT pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock_shared(2), \
             pg_advisory_unlock_shared(2), pg_advisory_unlock_shared(2), pg_advisory_unlock(2)",
            &[],
        )
        .await
        .unwrap();
    let left: Vec<bool> = (0..left.len()).map(|place| left.get(place)).collect();
    assert_eq!(left, [true, false, true, true, false, false]);
}
