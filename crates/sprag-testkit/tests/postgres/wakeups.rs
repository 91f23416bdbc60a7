//! Who is woken on PostgreSQL, by what, and how soon.

use std::time::Duration;

use sprag::Locks;
use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::process::{Ask, TakerConfig};
use sprag_testkit::support::{LONG, name, now, spawn_acquire, until_waiters, within};

const TAKER: &str = env!("CARGO_BIN_EXE_sprag-taker");
const NAME: &str = "report";

/// Writes down every notification that a function of ours sends.
const SPY: &str = "CREATE TABLE public.told (channel text, payload text); \
     CREATE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE sql AS \
     'INSERT INTO public.told VALUES ($1, $2); SELECT pg_catalog.pg_notify($1, $2)'; \
     DO $do$ DECLARE its text; BEGIN \
       FOR its IN SELECT pg_get_functiondef(oid) FROM pg_proc \
         WHERE pronamespace = 'sprag'::regnamespace AND position('pg_notify(' IN prosrc) > 0 LOOP \
         EXECUTE replace(its, 'pg_notify(', 'public.pg_notify('); END LOOP; END $do$";
const TOLD: &str = "SELECT count(*) FROM public.told";

/// A notification takes a lock of the whole server: there is one for whoever waits in another process,
/// and none if nobody does.
#[tokio::test]
async fn there_are_notifications_only_for_who_waits() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    drop(Locks::open(&database.url()).unwrap());
    database.sql(SPY);
    for kind in ["lease", "advisory"] {
        let url = format!("{}?mode={kind}&namespace={kind}", database.url());
        let (locks, others) = (Locks::open(&url).unwrap(), Locks::open(&url).unwrap());
        for _ in 0..3 {
            let mut guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
            guard.extend(2 * LONG).await.unwrap();
            assert!(others.lock(NAME).try_acquire().await.unwrap().is_none());
            guard.release().await.unwrap();
            locks.lock(NAME).shared().acquire().await.unwrap().release().await.unwrap();
        }
        assert_eq!(database.sql(TOLD), "0", "{kind}: nobody waits");

        let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
        let waiting = spawn_acquire(others.lock(NAME).ttl(LONG));
        until_waiters(locks.store(), NAME, 1).await;
        guard.release().await.unwrap();
        let next = within("granted", waiting).await.unwrap().unwrap();
        let told = format!("{TOLD} WHERE payload LIKE '{}:%'", next.lease());
        assert_eq!(database.sql(&told), "1", "{kind}: the one who waits");
        assert_eq!(database.sql(TOLD), "1", "{kind}: and nobody else");
        next.release().await.unwrap();
        database.sql("TRUNCATE public.told");
    }
}

/// F02: the server frees the advisory locks of a process that was killed at once, and who waits in
/// another process has it within milliseconds, not when a timer ends.
#[tokio::test]
async fn the_death_of_a_holder_of_advisory_locks_is_noticed_at_once() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let url = format!("{}?mode=advisory", database.url());
    let locks = Locks::open(&url).unwrap();
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    let mut times = Vec::new();
    for round in 0..7 {
        let mut holder = TakerConfig::new(TAKER, &url).name("holder").spawn().await;
        let held = holder.acquire(Ask::new(name(NAME), LONG)).await;
        let waiting = spawn_acquire(locks.lock(NAME).ttl(LONG));
        until_waiters(locks.store(), NAME, 1).await;
        assert_eq!(database.sql(connections), "2", "one of the holder, one of who waits");
        let killed = now();
        holder.kill().await;
        let guard = within("granted", waiting).await.unwrap().unwrap();
        times.push(now().since(killed));
        assert!(guard.fence() > held.fence, "round {round}");
        guard.release().await.unwrap();
    }
    times.sort();
    let median = times[times.len() / 2];
    assert!(median < Duration::from_millis(60), "{times:?}");
}
