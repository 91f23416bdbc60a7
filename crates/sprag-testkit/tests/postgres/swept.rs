//! What is left of locks that nobody uses any more.

use sprag::Locks;
use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::support::eventually;

/// Names that were used once, an hour ago, and given back.
const OLD: &str = "INSERT INTO sprag.lock (space, name, fence, used_us) \
     SELECT 'default', 'old/' || number, 7, sprag.now_us() - 3600000000 \
     FROM generate_series(1, 150) AS number";
const COUNT: &str = "SELECT count(*) FROM sprag.lock WHERE name LIKE 'old/%'";

/// A process sweeps them away beside its requests, and ends what the dead have left.
#[tokio::test]
async fn names_that_were_used_once_are_swept_away() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = Locks::open(&database.url()).unwrap();
    let dead = locks.lock("old/dead").acquire().await.unwrap();
    let waits = "INSERT INTO sprag.waiter SELECT space, name, 'dead', 0, 0, 0, 0, NULL, \
         plain::jsonb || '{\"renewed_ms\": 0, \"arrived_ms\": 0, \"ticket\": 0, \"lease\": \"dead\"}' FROM sprag.lock";
    database.sql(waits);
    database.sql("UPDATE sprag.lock SET waiting = 1, plain_us = 1, used_us = 1");
    database.sql(OLD);
    // All but the one of the dead, whose end is known from now on, and of which that is kept.
    eventually("they are gone", async || database.sql(COUNT) == "1").await;
    let ended = "SELECT count(*) FROM sprag.lock WHERE name = 'old/dead' AND plain_lease IS NULL \
         AND holders = '[]' AND waiting = 0";
    eventually("it is ended", async || database.sql(ended) == "1").await;
    assert!(!locks.inspect("old/dead").await.unwrap().is_locked());
    drop(dead);
}

/// Whoever uses a name that is new looks at a handful of others, so that there are never many more than
/// are used; and no process is needed that stays.
#[tokio::test]
async fn with_each_new_name_a_handful_of_old_ones_go() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = Locks::open(&database.url()).unwrap();
    for number in 0..100 {
        if number == 10 {
            database.sql(OLD);
        }
        let guard = locks.lock(format!("new/{number}")).shared().acquire().await.unwrap();
        assert!(number < 10 || guard.fence().get() >= 7, "the fence of who is gone is forgotten");
        guard.release().await.unwrap();
    }
    assert_eq!(database.sql(COUNT), "0");
    assert_eq!(database.sql("SELECT count(*) FROM sprag.lock"), "100", "they are too young");
}

/// The trail has its bound at each moment, and no request removes more than a few of its entries.
#[tokio::test]
async fn the_trail_is_cut_a_little_at_a_time() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = Locks::open(&database.url()).unwrap();
    database.sql(
        "INSERT INTO sprag.trail (space, name, at_ms, plain, fence, came, after_ms) \
         SELECT 'default', 'x', 1, '{}', 1, true, 0 FROM generate_series(1, 10064)",
    );
    let spy = "CREATE TABLE public.removed (number bigint); \
         CREATE FUNCTION public.spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           INSERT INTO public.removed SELECT count(*) FROM gone; RETURN NULL; END $$; \
         CREATE TRIGGER spy AFTER DELETE ON sprag.trail REFERENCING OLD TABLE AS gone \
           FOR EACH STATEMENT EXECUTE FUNCTION public.spy()";
    database.sql(spy);
    for _ in 0..64 {
        locks.lock("y").acquire().await.unwrap().release().await.unwrap();
    }
    let kept: i64 = database.sql("SELECT count(*) FROM sprag.trail").parse().unwrap();
    assert!((10_000..10_032).contains(&kept), "{kept} entries");
    let most: i64 = database.sql("SELECT max(number) FROM public.removed").parse().unwrap();
    assert!(most <= 100, "{most} at once");
}
