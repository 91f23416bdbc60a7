//! One row that makes trouble, and all the others of its process: a record that cannot be read, a row
//! that somebody keeps, more rows than there is time for.

use std::time::Duration;

use futures_util::future::join_all;
use sprag::{LockGuard, Locks};
use sprag_testkit::postgres_server::{Database, Psql, skipped};
use sprag_testkit::support::{LONG, eventually, eventually_within, now, request, within};

/// Long enough for ten requests under load.
const TTL: Duration = Duration::from_secs(3);

/// The store of each kind of locks, in a namespace of its own.
fn kinds(database: &Database) -> [String; 2] {
    ["lease", "advisory"].map(|kind| format!("{}?mode={kind}&namespace={kind}", database.url()))
}

/// Waits until a lock was renewed so often that it would be over without.
async fn outlives_its_ttl(guards: &[&LockGuard]) {
    let end = now().plus(2 * TTL);
    let renewed = || async { guards.iter().all(|guard| guard.valid_until() > end) };
    eventually_within(LONG, "all are renewed, over and over", renewed).await;
    assert!(guards.iter().all(|guard| guard.is_valid()), "some are lost");
}

/// F74: a record that cannot be read costs its own lock, and no other.
#[tokio::test]
async fn a_damaged_record_costs_no_other_lock() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    for url in kinds(&database) {
        let locks = Locks::open(&url).unwrap();
        let shared = locks.lock("shared").shared().ttl(TTL).acquire().await.unwrap();
        let exclusive = locks.lock("exclusive").ttl(TTL).acquire().await.unwrap();
        // It ends after the others, so that it is renewed together with them until then.
        let damaged = locks.lock("damaged").shared().ttl(2 * TTL).acquire().await.unwrap();
        database.sql("UPDATE sprag.lock SET holders = '{\"a\": 1}' WHERE name = 'damaged'");
        outlives_its_ttl(&[&shared, &exclusive]).await;
        within("nobody can have renewed it", damaged.lost()).await;
        outlives_its_ttl(&[&shared, &exclusive]).await;
        shared.release().await.unwrap();
        exclusive.release().await.unwrap();
        database.sql("UPDATE sprag.lock SET holders = '[]' WHERE name = 'damaged'");
    }
}

/// F38: a row that somebody keeps for long costs no other lock, although some of this process wait
/// for it, and no connection.
#[tokio::test]
async fn a_row_that_somebody_keeps_costs_no_other_lock() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    for url in kinds(&database) {
        let locks = Locks::open(&url).unwrap();
        let kept = locks.lock("kept").ttl(TTL).acquire().await.unwrap();
        let shared = locks.lock("shared").shared().ttl(TTL).acquire().await.unwrap();
        let exclusive = locks.lock("exclusive").ttl(TTL).acquire().await.unwrap();
        let pids = "SELECT array_agg(pid ORDER BY pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'sprag'";
        let connections = database.sql(pids);
        let row = "SELECT FROM sprag.lock WHERE name = 'kept' FOR UPDATE";
        let psql = Psql::hold(&database, &format!("BEGIN; {row}"));
        let is_kept = || async { database.try_sql(&format!("{row} NOWAIT")).is_err() };
        eventually("somebody keeps the row", is_kept).await;
        let error = locks.store().release(kept.name(), request("kept").lease).await.unwrap_err();
        assert!(error.is_busy() && error.to_string().contains("end that transaction"), "{error}");
        outlives_its_ttl(&[&shared, &exclusive]).await;
        assert!(!kept.is_valid(), "{url}: nobody can have renewed it");
        assert_eq!(database.sql(pids), connections, "{url}: a connection was given up");
        drop(psql);
        within("released", shared.release()).await.unwrap();
        within("released", exclusive.release()).await.unwrap();
    }
}

/// More renewals than there is time for: some are answered, the others are asked for again.
#[tokio::test]
async fn more_renewals_than_there_is_time_for_cost_no_lock() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let [lease, _] = kinds(&database);
    let locks = Locks::open(&lease).unwrap();
    let acquire = |number| locks.lock(format!("job/{number}")).shared().ttl(TTL).acquire();
    let guards: Vec<_> =
        join_all((0..8).map(acquire)).await.into_iter().map(Result::unwrap).collect();
    // All of them take longer than is waited for an answer, which is a sixth of their TTL.
    database.sql(
        "CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END'; \
         CREATE TRIGGER slow BEFORE UPDATE ON sprag.lock \
         FOR EACH ROW EXECUTE FUNCTION public.slow()",
    );
    outlives_its_ttl(&guards.iter().collect::<Vec<_>>()).await;
    database.sql("DROP FUNCTION public.slow() CASCADE");
}

/// Thousands of shared locks of one process stay held, on either kind; 10,000 with
/// `SPRAG_TORTURE=full`.
#[tokio::test]
async fn thousands_of_shared_locks_are_renewed() {
    if skipped() {
        return;
    }
    let full = std::env::var("SPRAG_TORTURE").is_ok_and(|value| value == "full");
    let (count, ttl) = if full { (10_000, 10 * TTL) } else { (600, 2 * TTL) };
    let database = Database::fresh();
    for url in kinds(&database) {
        let room = if url.contains("advisory") { "&max_locks=20000" } else { "" };
        let locks = Locks::open(&format!("{url}{room}")).unwrap();
        let mut guards = Vec::new();
        for number in 0..count {
            let request = locks.lock(format!("job/{number}")).shared().ttl(ttl);
            guards.push(request.acquire().await.unwrap());
        }
        let end = now().plus(2 * ttl);
        let renewed = || async { guards.iter().all(|guard| guard.valid_until() > end) };
        eventually_within(4 * LONG, "all are renewed", renewed).await;
        let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
        assert_eq!(lost, 0, "{url}");
    }
}
