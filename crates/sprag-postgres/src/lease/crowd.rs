//! What those who wait read of a queue, however long it is.

use sprag_testkit::postgres_server::{Database, skipped};
use tokio_postgres::{Client, NoTls};

/// Two queues: one as long as is counted, and one much longer.
const SHORT: i64 = 150;
const LONG: i64 = 3_000;

/// As a client asks for the lock, with a place in the queue.
const ASK: &str = "SELECT sprag.take_v1('', $1, jsonb_build_object('do', 'acquire', \
       'lease', 'lease ' || number, 'party', 'p', 'mode', 'exclusive', 'ttl_ms', 600000, 'priority', 0, \
       'queue', true, 'session', 's', 'max_waiters', 4096, 'holder', \
       jsonb_build_object('worker_id', 'w', 'node_id', 'n'))::text, 'lease ' || number, 600000, \
     9007199254740991, 'here', NULL) FROM generate_series($2::bigint, $3) AS number";
const RELEASE: &str = "SELECT sprag.leave_v1('', $1, $2, 'here', NULL)";
const RENEW: &str = "SELECT answer::text FROM unnest(sprag.renew_v1('', ARRAY[$1], jsonb_build_array( \
     jsonb_build_object('do', 'renew', 'lease', $2::text, 'ttl_ms', 600000)), NULL, 10000000)) AS answer";

/// How many rows of the queue a statement reads.
async fn read_by(client: &Client, work: impl AsyncFnOnce()) -> i64 {
    // What was read before may still be counted.
    let read = async || -> i64 {
        let read = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables \
             WHERE relname = 'waiter'";
        client.query_one(read, &[]).await.unwrap().get(0)
    };
    client.batch_execute("BEGIN").await.unwrap();
    let before = read().await;
    work().await;
    let after = read().await;
    client.batch_execute("COMMIT").await.unwrap();
    after - before
}

/// Who asks again, is renewed or is handed the lock reads as much of a long queue as of a short one.
#[tokio::test]
async fn what_is_read_does_not_depend_on_the_length_of_the_queue() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let (client, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(crate::SQL).await.unwrap();
    let calm = "ALTER TABLE sprag.waiter SET (autovacuum_enabled = off); \
         SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off";
    client.batch_execute(calm).await.unwrap();
    let mut costs = Vec::new();
    for (name, length) in [("short", SHORT), ("long", LONG)] {
        for first in (0..=length).step_by(100) {
            let last = (first + 99).min(length);
            client.query(ASK, &[&name, &first, &last]).await.unwrap();
        }
        let last = format!("lease {length}");
        let asks = async || drop(client.query(ASK, &[&name, &length, &length]).await.unwrap());
        let renews = async || {
            let renewed = client.query_one(RENEW, &[&name, &last]).await.unwrap();
            assert!(renewed.get::<_, String>(0).contains("queued"));
        };
        let leaves = async || {
            let left = client.query_one(RELEASE, &[&name, &"lease 0"]).await.unwrap();
            assert!(left.get::<_, String>(0).contains("lease 1:"));
        };
        costs.push([
            read_by(&client, asks).await,
            read_by(&client, renews).await,
            read_by(&client, leaves).await,
        ]);
        client.execute("DELETE FROM sprag.waiter", &[]).await.unwrap();
    }
    assert_eq!(costs[0], costs[1], "asking, renewing, releasing");
    assert!(costs[0].iter().all(|read| *read < SHORT), "{costs:?}");
}
