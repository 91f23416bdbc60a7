//! Renewals on PostgreSQL: long batches, restarts of the server, records that were damaged; and the
//! five verbs.

use std::time::Duration;

use sprag::store::{Bind, Renewal, Renewed, Request};
use sprag::{DistributedLock, LockState, Locks, Mode, PostgresDistributedLock};
use sprag_testkit::postgres_server::{Database, PostgresServer, skipped};
use sprag_testkit::support::{LONG, eventually, request, within};

/// F38: a batch that takes longer than a statement may is done in parts, on both kinds of locks.
#[tokio::test]
async fn a_long_batch_of_renewals_is_done_in_parts() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let advisory = format!("{}?mode=advisory&namespace=advisory", database.url());
    for (url, kind) in [(database.url(), "lease"), (advisory, "advisory")] {
        let store = sprag::open(&url).unwrap();
        let mut leases = Vec::new();
        for number in 0..10 {
            let asked = Request { mode: Mode::Shared, ..request(&format!("job-{number}")) };
            store.try_acquire(&asked).await.unwrap();
            let Request { name, lease, .. } = asked;
            leases.push(Renewal { name, lease, ttl: LONG, bind: Bind::Keep });
        }
        // Together they take longer than the store waits for an answer.
        database.sql(
            "CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN PERFORM pg_sleep(0.25); RETURN NEW; END'; \
             CREATE TRIGGER slow BEFORE UPDATE ON sprag.lock \
             FOR EACH ROW EXECUTE FUNCTION public.slow()",
        );
        // What there was no time for is unknown, and is asked for again.
        while !leases.is_empty() {
            let renewed = within("they are renewed", store.renew(&leases)).await.unwrap();
            assert_eq!(renewed.len(), leases.len(), "{kind}");
            let held = renewed.iter().take_while(|one| matches!(one, Renewed::Held(_))).count();
            let rest = &renewed[held..];
            assert!(rest.iter().all(|one| *one == Renewed::Unknown), "{kind}: {renewed:?}");
            assert!(held > 1, "{kind}: {renewed:?}");
            leases.drain(..held);
        }
        database.sql("DROP FUNCTION public.slow() CASCADE");
    }
}

/// F37: a server that is stopped and started again in good order costs a renewal, not the lock.
#[tokio::test]
async fn renewals_go_on_after_a_restart_of_the_server() {
    if skipped() {
        return;
    }
    let mut server = PostgresServer::start(&[]).await;
    let locks = Locks::open(&server.url("postgres")).unwrap();
    let guard = locks.lock("job").ttl(LONG / 2).acquire().await.unwrap();
    let before = guard.valid_until();
    server.stop().await;
    server.start_again().await;
    let renewed = || async { guard.valid_until() > before && guard.state() == LockState::Held };
    eventually("it is renewed", renewed).await;
    guard.release().await.unwrap();
}

/// A record that somebody has damaged is told, and never taken for a free lock.
#[tokio::test]
async fn a_damaged_record_is_told() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = Locks::open(&database.url()).unwrap();
    let _plain = locks.lock("plain").acquire().await.unwrap();
    let _shared = locks.lock("shared").shared().acquire().await.unwrap();
    database.sql("UPDATE sprag.lock SET plain = 'not JSON' WHERE name = 'plain'");
    database.sql("UPDATE sprag.lock SET holders = '{\"a\": 1}' WHERE name = 'shared'");
    let others = Locks::open(&database.url()).unwrap();
    for name in ["plain", "shared"] {
        let error = others.lock(name).try_acquire().await.unwrap_err();
        assert!(error.is_corrupt(), "{name}: {error:?}");
        let view = others.inspect(name).await.unwrap();
        assert_eq!(view.holders[0].holder.worker_id, "unknown", "{name}: {view:?}");
    }
}

/// The five verbs, as a program that knows nothing else would use them.
#[tokio::test]
async fn the_five_verbs_work() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let url = database.url();
    let one = PostgresDistributedLock::new(&url).await.unwrap();
    let two = PostgresDistributedLock::with_pool_size(&url, 2).await.unwrap();
    for (here, there) in [(&one, &two), (&two, &one)] {
        let ttl = Duration::from_secs(30);
        let mut guard = DistributedLock::acquire(here, "job", ttl).await.unwrap();
        assert!(DistributedLock::is_locked(there, "job").await.unwrap());
        assert!(DistributedLock::try_acquire(there, "job", ttl).await.unwrap().is_none());
        let before = guard.valid_until();
        DistributedLock::extend(here, &mut guard, LONG).await.unwrap();
        assert!(guard.valid_until() > before);
        DistributedLock::release(here, guard).await.unwrap();
        assert!(!DistributedLock::is_locked(there, "job").await.unwrap());
    }
    for few in [0, 1] {
        let error = PostgresDistributedLock::with_pool_size(&url, few).await.unwrap_err();
        assert!(error.is_bad_input(), "{error:?}");
    }
}
