//! Crowds that wait for one lock, as sessions of many processes do.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use sprag::{Fence, Locks};
use sprag_testkit::postgres_server::{Database, PostgresServer, skipped};
use sprag_testkit::support::{LONG, eventually_within, name, request, sized, within};

const NAME: &str = "report";
/// How long a crowd may take on a busy machine. Without a queue that works it takes for ever.
const LIMIT: Duration = Duration::from_secs(150);
const TTL: Duration = Duration::from_secs(30);

/// Waits for the lock, alone, and gives it back.
async fn visit(locks: Locks, inside: Arc<AtomicBool>) -> Fence {
    let guard = locks.lock(NAME).ttl(TTL).wait(LIMIT).own_party().acquire().await.unwrap();
    assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
    assert!(guard.is_valid());
    let fence = guard.fence();
    inside.store(false, Ordering::SeqCst);
    guard.release().await.unwrap();
    fence
}

/// All of them have been inside, each with a fence of its own.
async fn all_visited(visits: Vec<tokio::task::JoinHandle<Fence>>) {
    let count = visits.len();
    let all = tokio::time::timeout(LIMIT, join_all(visits)).await.expect("the crowd stands still");
    let mut fences: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), count);
}

/// Sessions with a connection each, as processes have them; a thousand in the full size. They share the
/// process of the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_sessions_drains() {
    if skipped() {
        return;
    }
    let crowd = sized(40, 1_000);
    let most = format!("max_connections={}", crowd + 20);
    let server = PostgresServer::start(&["-c", &most, "-c", "fsync=off"]).await;
    for kind in ["lease", "advisory"] {
        let url = format!("{}?mode={kind}&namespace={kind}", server.url("postgres"));
        let open = |_| Locks::open(&url).unwrap();
        let all: Vec<_> = (0..=crowd).map(open).collect();
        let first = all[0].lock(NAME).ttl(LONG).acquire().await.unwrap();
        let inside = Arc::new(AtomicBool::new(false));
        let visit = |locks: &Locks| tokio::spawn(visit(locks.clone(), Arc::clone(&inside)));
        let visits = all[1..].iter().map(visit).collect();
        let waiting = format!("SELECT count(*) FROM sprag.waiter WHERE space = '{kind}'");
        let all_wait = || async { server.sql("postgres", &waiting) == crowd.to_string() };
        eventually_within(LIMIT, "all wait", all_wait).await;
        let connections = "SELECT count(*) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        assert_eq!(server.sql("postgres", connections), all.len().to_string(), "{kind}");
        first.release().await.unwrap();
        all_visited(visits).await;
    }
}

/// A process that dies with its whole crowd, whose time is over then: to tell each of them took longer than a
/// statement may, and so the lock was never free again.
#[tokio::test]
async fn a_crowd_that_is_dead_holds_nobody_up() {
    const DEAD: usize = 3_000;
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = Locks::open(&database.url()).unwrap();
    let (holder, waiter) = (request(NAME), request(NAME));
    locks.store().try_acquire(&holder).await.unwrap();
    let mut waits = waiter.clone();
    waits.queue = true;
    locks.store().try_acquire(&waits).await.unwrap();
    database.sql(&format!(
        "INSERT INTO sprag.waiter SELECT space, name, 'dead ' || number, arrival + number, number, 1, permits, \
           channel, request || jsonb_build_object('lease', 'dead ' || number, 'ticket', number) \
           FROM sprag.waiter, generate_series(10, {DEAD} + 9) AS number; \
         UPDATE sprag.waiter SET expires_ms = 1; \
         UPDATE sprag.lock SET waiting = {DEAD} + 1, patience_ms = 1, plain_us = 1"
    ));
    let guard = within("it is free", locks.lock(NAME).ttl(LONG).acquire()).await.unwrap();
    assert_eq!(database.sql("SELECT count(*) FROM sprag.waiter"), "0");
    assert_eq!(guard.name(), &name(NAME));
    guard.release().await.unwrap();
}
