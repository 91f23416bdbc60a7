//! What a batch of renewals reads, whatever the planner believed when it made its plan.

use sprag_testkit::postgres_server::{Database, skipped};
use tokio_postgres::{Client, NoTls};

const OTHERS: i64 = 5_000;
const OURS: i64 = 700;

/// Renews the first locks; how many were.
async fn renew(client: &Client, count: i64) -> i64 {
    let renew = "SELECT count(*) FROM (SELECT array_agg('lock ' || number ORDER BY number) AS names, \
           jsonb_agg(jsonb_build_object('do', 'renew', 'lease', 'lease ' || number, \
             'ttl_ms', 40000) ORDER BY number) AS commands FROM generate_series(1::bigint, $1) AS number) AS all_of, \
         unnest(sprag.renew_v1('', names, commands, NULL, 10000000)) AS answer \
         WHERE answer -> 'outcome' ? 'granted' AND answer ? 'plain'";
    client.query_one(renew, &[&count]).await.unwrap().get(0)
}

/// A plan that was made for an empty table is used for a full one.
#[tokio::test]
async fn a_batch_reads_only_its_own_rows() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let (client, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(crate::SQL).await.unwrap();
    client.batch_execute("ALTER TABLE sprag.lock SET (autovacuum_enabled = off)").await.unwrap();
    client
        .batch_execute("ANALYZE sprag.lock; SET plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    let hold = "INSERT INTO sprag.lock (space, name, plain, plain_lease, plain_us, plain_ttl_ms) \
         SELECT '', 'lock ' || number, '{}', 'lease ' || number, sprag.now_us(), 30000 \
         FROM generate_series($1::bigint, $2) AS number";
    client.execute(hold, &[&1_i64, &1_i64]).await.unwrap();
    assert_eq!(renew(&client, 1).await, 1);
    client.execute(hold, &[&2_i64, &(OURS + OTHERS)]).await.unwrap();

    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(renew(&client, OURS).await, OURS);
    let read =
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'lock'";
    let read: i64 = client.query_one(read, &[]).await.unwrap().get(0);
    client.batch_execute("COMMIT").await.unwrap();
    assert!((OURS..=2 * OURS).contains(&read), "{read} rows were read for {OURS}");
    let ttls = "SELECT count(*) FROM sprag.lock WHERE plain_ttl_ms = 40000";
    assert_eq!(client.query_one(ttls, &[]).await.unwrap().get::<_, i64>(0), OURS);
}
