//! Sessions of ours that are in each other's way for a moment are no other programs.

use sprag_testkit::postgres_server::{Database, skipped};
use tokio_postgres::{Client, NoTls};

async fn connect(database: &Database) -> Client {
    let (client, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn session(database: &Database, name: &str) -> Client {
    let client = connect(database).await;
    let begin = format!("SELECT sprag.begin_session_v1('{name}'), sprag.enter_v1('', NULL)");
    client.batch_execute(&begin).await.unwrap();
    client
}

/// What somebody is told who asks for the lock with the key 7: who is in the way, and whether that is
/// over soon.
async fn ask(client: &Client, lease: &str) -> (String, bool) {
    let ask = "SELECT coalesce(it ->> 'outsider', ''), (it ->> 'bare')::boolean FROM \
         sprag.advisory_v1('', 'job', jsonb_build_object('do', 'acquire', 'lease', $1::text, \
           'party', 'p', 'mode', 'exclusive', 'ttl_ms', 6000, 'priority', 0, 'queue', false, \
           'max_waiters', 9, 'holder', jsonb_build_object('worker_id', 'w', 'node_id', 'n')), 7) AS it";
    let row = client.query_one(ask, &[&lease]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn a_session_of_ours_that_asks_is_no_other_program() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    connect(&database).await.batch_execute(crate::SQL).await.unwrap();
    let (one, other) = (session(&database, "one").await, session(&database, "other").await);
    // As every statement does that asks for a lock, until it is over.
    one.batch_execute("BEGIN; SELECT pg_advisory_xact_lock_shared(7)").await.unwrap();
    let (who, is_soon_over) = ask(&other, "a").await;
    assert!(is_soon_over, "it is told to wait for {who}");
    one.batch_execute("ROLLBACK").await.unwrap();

    // A program that knows nothing of us is one.
    let stranger = connect(&database).await;
    stranger.batch_execute("SELECT pg_advisory_lock_shared(7)").await.unwrap();
    let (who, is_soon_over) = ask(&other, "b").await;
    assert!(!is_soon_over && who.starts_with("pid "), "{who}");
    stranger.batch_execute("SELECT pg_advisory_unlock_shared(7)").await.unwrap();
    assert_eq!(ask(&other, "c").await, (String::new(), false));
}
