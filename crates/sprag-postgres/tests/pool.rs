//! A connection pool that mixes up answers: PgBouncer before 1.21, when a client dies that had sent
//! several requests at once.

use std::time::Duration;

use sprag_core::Store;
use sprag_core::store::Attempt;
use sprag_postgres::{Address, PostgresConfig, PostgresStore};
use sprag_testkit::postgres_server::{Database, PgBouncer, PoolMode, skipped};
use sprag_testkit::support::{name, request, times};
use tokio_postgres::NoTls;
use tokio_postgres::types::Type;

const TAKE: &str = "SELECT sprag.take_v1($1, $2, $3, $4, $5, $6, $7, $8) FROM pg_sleep(0.002)";

/// Asks for many locks at once, as a program does that knows nothing of what a pool does with that, and
/// dies before it is answered. The answers look like those to us: a time, and a fence.
async fn ask_and_die(url: String, number: u32) {
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("connects");
    let connection = tokio::spawn(connection);
    let ask = async |place: u32| {
        let lock = format!("other-{number}-{place}");
        let lease = sprag_testkit::support::new_lease().to_string();
        let command = "{\"holder\": {\"worker_id\": \"x\", \"node_id\": \"y\"}, \"party\": \"z\"}";
        let asked: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 8] = [
            (&"default", Type::TEXT),
            (&lock, Type::TEXT),
            (&command, Type::TEXT),
            (&lease, Type::TEXT),
            (&60_000_i64, Type::INT8),
            (&i64::MAX, Type::INT8),
            (&None::<&str>, Type::TEXT),
            (&None::<i64>, Type::INT8),
        ];
        client.query_typed(TAKE, &asked).await.map(drop)
    };
    let first = ask(0);
    let all = futures_util::future::join_all((1..12).map(ask));
    tokio::select! {
        // Once the first is answered the others are on their way.
        _ = async { tokio::join!(first, all) } => {}
        () = tokio::time::sleep(Duration::from_millis(u64::from(3 + number % 7))) => {}
    }
    connection.abort();
}

/// However often others die in the middle of their requests, nobody is told that it has a lock that
/// somebody else holds.
#[tokio::test(flavor = "multi_thread")]
async fn answers_to_clients_that_died_are_nobody_elses() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let direct = Address::Unix(database.folder(), database.port());
    let direct = PostgresConfig::new(direct, database.name()).user("postgres");
    let holder = PostgresStore::connect(direct).await.unwrap();
    let Attempt::Granted(held) = holder.try_acquire(&request("job")).await.unwrap() else {
        panic!("the lock is not free");
    };
    let pool = PgBouncer::start(PoolMode::Transaction, &database.folder(), database.port()).await;
    let through = Address::Tcp("127.0.0.1".into(), pool.port());
    let through = PostgresConfig::new(through, database.name()).user("postgres");
    let store = PostgresStore::connect(through.clone()).await.unwrap();
    let (mut answers, mut unknown) = (0, 0);
    for number in 0..times(60, 1000) {
        let dying = tokio::spawn(ask_and_die(pool.url(database.name()), number));
        let late = PostgresStore::connect(through.clone());
        for _ in 0..8 {
            match store.try_acquire(&request("job")).await {
                Ok(Attempt::Held(contention)) => {
                    answers += 1;
                    assert_eq!(contention.holders[0].fence, held.fence, "of another lock");
                }
                Ok(other) => panic!("two holders after {answers} answers: {other:?}"),
                Err(error) => {
                    unknown += 1;
                    assert!(error.is_unavailable(), "{error}");
                }
            }
        }
        if let Ok(store) = late.await {
            let view = store.inspect(&name("job")).await;
            let fence = view.map(|view| view.holders.first().map(|holder| holder.fence));
            assert!(fence.is_err() || fence.unwrap() == Some(held.fence), "of another lock");
        }
        dying.await.unwrap();
    }
    assert!(answers > 0, "nothing was answered, and {unknown} times unknown");
    // It goes on as soon as nobody dies any more.
    let free = sprag_testkit::support::eventually("a free lock is granted", async || {
        matches!(store.try_acquire(&request("free")).await, Ok(Attempt::Granted(_)))
    });
    free.await;
}
