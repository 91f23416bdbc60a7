//! What can happen to advisory locks: other programs, connections that end, limits. Each test names
//! its scenario of `docs/faults.md`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use sprag::{Error, ErrorKind, LockState, Locks, Loss, advisory_key};
use sprag_testkit::postgres_server::{Database, PgBouncer, PoolMode, PostgresServer, skipped};
use sprag_testkit::proxy::Proxy;
use sprag_testkit::support::{
    LONG, eventually, let_time_pass, spawn_acquire, until_waiters, within,
};

const NAME: &str = "report";

fn advisory(url: &str) -> Locks {
    let mark = if url.contains('?') { '&' } else { '?' };
    Locks::open(&format!("{url}{mark}mode=advisory")).unwrap()
}

fn key() -> i64 {
    advisory_key("default", NAME)
}

/// Who has the key of the lock, by the server's own view.
fn pids(database: &Database) -> String {
    database.holders_of(key())
}

/// F12: behind a pool an advisory lock belongs to nobody.
#[tokio::test]
async fn advisory_locks_are_refused_behind_a_pool() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let pool = PgBouncer::start(PoolMode::Transaction, &database.folder(), database.port()).await;
    let refused = |url: &str| -> Error {
        Locks::open(&format!("{url}?mode=advisory")).map(drop).unwrap_err()
    };
    let error = refused(&pool.url(database.name()));
    assert_eq!(error.kind(), &ErrorKind::Refused, "{error:?}");
    assert!(error.to_string().contains("mode=lease"), "{error}");
}

/// F35: the holder is told at once, and the next one is let in.
#[tokio::test]
async fn a_session_that_is_ended_loses_its_locks_at_once() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let (locks, others) = (advisory(&database.url()), advisory(&database.url()));
    let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let waiting = spawn_acquire(others.lock(NAME).ttl(LONG));
    until_waiters(others.store(), NAME, 1).await;
    database.sql(&format!("SELECT pg_terminate_backend({})", pids(&database)));
    assert_eq!(within("told", guard.lost()).await, Loss::SessionDied);
    assert_eq!(guard.state(), LockState::Lost(Loss::SessionDied));
    let next = within("the next is let in", waiting).await.unwrap().unwrap();
    assert!(next.fence() > guard.fence());
    next.release().await.unwrap();
    // The client connects again by itself.
    let again = locks.lock(NAME).acquire().await.unwrap();
    again.release().await.unwrap();
}

/// F36: who is cut off is sure of nothing after half the time that the server waits for it.
#[tokio::test]
async fn a_holder_that_is_cut_off_gives_up_before_the_server_does() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let proxy = Proxy::start(format!("127.0.0.1:{}", database.port()));
    let url =
        format!("postgres://postgres@{}/{}?sslmode=disable", proxy.address(), database.name());
    let locks = advisory(&url);
    let guard = locks.lock(NAME).ttl(LONG * 60).acquire().await.unwrap();
    let_time_pass(Duration::from_millis(1500)).await;
    assert!(guard.is_valid());
    proxy.lose_everything();
    let cut = tokio::time::timeout(Duration::from_secs(9), guard.lost()).await;
    assert_eq!(cut.expect("told within half of 11 s and some"), Loss::SessionDied);
    assert!(!guard.is_valid());
}

/// F37: grants do not wait for the disk, so a crash forgets the last ones; fences grow all the same,
/// of readers too.
#[tokio::test]
async fn fences_grow_over_a_crash_that_forgets_grants() {
    if skipped() {
        return;
    }
    let mut server = PostgresServer::start(&[]).await;
    let url = server.url("postgres");
    for crash in 0..2 {
        let locks = advisory(&url);
        let mut last = within("let in", locks.lock(NAME).acquire()).await.unwrap().fence();
        server.stop_writer();
        for _ in 0..20 {
            last = locks.lock(NAME).acquire().await.unwrap().fence();
        }
        if crash == 0 {
            server.crash().await;
        } else {
            server.murder().await;
            server.start_again().await;
        }
        let left = server.sql("postgres", "SELECT coalesce(max(fence), 0) FROM sprag.lock");
        assert!(left.parse::<u64>().unwrap() < last.get(), "nothing was forgotten: a weak test");
        let others = advisory(&url);
        let early = others.lock(NAME).shared().try_acquire().await.unwrap();
        assert!(early.is_none(), "who held it may not know yet that it is lost");
        let reader = within("let in", others.lock(NAME).shared().acquire()).await.unwrap();
        assert!(reader.fence() > last, "{:?} after {last:?}", reader.fence());
        reader.release().await.unwrap();
        let writer = others.lock(NAME).acquire().await.unwrap();
        assert!(writer.fence() > last);
        writer.release().await.unwrap();
    }
}

/// F41: a standby that has missed the last grants becomes the primary. Leases are let in twice then,
/// as is written; fences grow. Session locks are not let in at once, as nobody knows who had them.
#[tokio::test]
async fn fences_grow_over_a_failover_that_forgets_grants() {
    if skipped() {
        return;
    }
    let server = PostgresServer::start(&[]).await;
    let leases = Locks::open(&format!("{}?namespace=leases", server.url("postgres"))).unwrap();
    let locks = advisory(&server.url("postgres"));
    for store in [&leases, &locks] {
        store.lock(NAME).acquire().await.unwrap().release().await.unwrap();
    }
    let mut standby = server.start_standby().await;
    let refused = Locks::open(&standby.url("postgres")).map(drop).unwrap_err();
    assert_eq!(refused.kind(), &ErrorKind::Refused, "{refused:?}");
    assert!(refused.to_string().contains("primary"), "{refused}");
    // It follows no longer, and misses what comes now.
    standby.sql("postgres", "ALTER SYSTEM SET primary_conninfo = ''");
    standby.sql("postgres", "SELECT pg_reload_conf()");
    let followers = "SELECT count(*) FROM pg_stat_replication";
    eventually("it is cut off", async || server.sql("postgres", followers) == "0").await;
    let lease = leases.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let held = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    standby.promote().await;

    let url = standby.url("postgres");
    let again = Locks::open(&format!("{url}?namespace=leases")).unwrap();
    let again = again.lock(NAME).acquire().await.unwrap();
    assert!(again.fence() > lease.fence());
    let others = advisory(&url);
    assert!(others.lock(NAME).try_acquire().await.unwrap().is_none(), "too early");
    let next = within("let in", others.lock(NAME).ttl(LONG).acquire()).await.unwrap();
    assert!(next.fence() > held.fence());
}

/// F37: after a crash nothing is held, and fences grow.
#[tokio::test]
async fn advisory_locks_end_with_the_server() {
    if skipped() {
        return;
    }
    let mut server = PostgresServer::start(&[]).await;
    let locks = advisory(&server.url("postgres"));
    let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    server.kill().await;
    assert_eq!(within("told", guard.lost()).await, Loss::SessionDied);
    server.start_again().await;
    let others = advisory(&server.url("postgres"));
    // Who held it may be out of reach: nobody is let in before it must have noticed.
    assert!(others.lock(NAME).try_acquire().await.unwrap().is_none());
    let next = within("let in", others.lock(NAME).ttl(LONG).acquire()).await.unwrap();
    assert!(next.fence() > guard.fence());
    assert!(next.is_valid());
}

/// F13, F38: limits that were set for all users do not end our session or our requests.
#[tokio::test]
async fn the_limits_of_the_dba_do_not_end_the_session() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    for limit in ["idle_session_timeout", "lock_timeout", "idle_in_transaction_session_timeout"] {
        database.sql(&format!("ALTER DATABASE {} SET {limit} = '400ms'", database.name()));
    }
    let locks = advisory(&database.url());
    let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let_time_pass(Duration::from_millis(900)).await;
    assert!(guard.is_valid() && !pids(&database).is_empty());
    guard.release().await.unwrap();
}

/// F39: more locks than were allowed are refused here, before the server refuses everybody.
#[tokio::test]
async fn too_many_locks_are_refused_before_the_server_is_full() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = advisory(&format!("{}?max_locks=3", database.url()));
    let mut held = Vec::new();
    for number in 0..3 {
        held.push(locks.lock(format!("lock/{number}")).acquire().await.unwrap());
    }
    let error = locks.lock("lock/3").acquire().await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::StoreFull, "{error:?}");
    held.pop().unwrap().release().await.unwrap();
    locks.lock("lock/3").acquire().await.unwrap().release().await.unwrap();
}

/// The two kinds of locks never meet in one namespace.
#[tokio::test]
async fn a_namespace_has_one_kind_of_locks() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let _locks = advisory(&database.url());
    let error = Locks::open(&database.url()).map(drop).unwrap_err();
    assert!(error.to_string().contains("mode=advisory"), "{error}");
}
