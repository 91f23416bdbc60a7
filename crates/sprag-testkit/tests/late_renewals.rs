//! A renewal that lies in the network until a following one was answered (F62 of `docs/faults.md`).
//! It asks for less, and must not end the lease earlier than its holder was told.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use sprag::{Locks, Released, Store};
use sprag_testkit::postgres_server::{self, Database};
use sprag_testkit::proxy::{Fault, Proxy};
use sprag_testkit::redis_server::{RedisServer, RedisSetup};
use sprag_testkit::support::{eventually, look, within};

/// What is asked for first, and arrives last.
const SHORT: Duration = Duration::from_secs(5);
/// What is asked for and answered meanwhile.
const LONG: Duration = Duration::from_secs(60);
/// How long our clients wait for an answer.
const TIMEOUT: Duration = Duration::from_millis(500);
const NAME: &str = "report";

/// How a lease is renewed: by its guard, or by its id as `sprag renew` does.
#[derive(Clone, Copy, Debug)]
enum By {
    Guard,
    Id,
}

/// Extends to `SHORT` unanswered, to `LONG` answered; then what was under way arrives. `keep_back`
/// keeps requests from arriving, `let_go` lets them pass and `deliver` brings what was kept back.
async fn a_late_one_changes_nothing(
    (locks, store): (&Locks, &Arc<dyn Store>),
    by: By,
    (keep_back, let_go): (impl Fn(), impl Fn()),
    deliver: impl AsyncFn(),
) {
    let mut guard = locks.lock(NAME).ttl(LONG / 2).no_renewal().acquire().await.unwrap();
    // From now on the servers know how to renew.
    guard.extend(LONG / 2).await.unwrap();
    keep_back();
    let unanswered = match by {
        By::Guard => guard.extend(SHORT).await,
        By::Id => locks.renew_lease(NAME, guard.lease(), SHORT).await.map(drop),
    };
    assert!(unanswered.unwrap_err().is_unavailable());
    let_go();
    within("extended", async { while guard.extend(LONG).await.is_err() {} }).await;
    assert!(guard.time_remaining() > LONG / 2);
    deliver().await;
    let believed = guard.time_remaining();
    let view = look(store, NAME).await;
    let left = view.holders[0].remaining.unwrap();
    assert!(left >= believed, "{by:?}: over in {left:?}, believed in for {believed:?}");
    assert!(guard.is_valid());
    assert_eq!(guard.release().await.unwrap(), Released::Freed);
}

/// The same before servers of Redis, to which requests can be sent once more.
#[expect(clippy::future_not_send, reason = "it stays on the thread of its test")]
async fn on_redis(nodes: &[RedisServer], url: impl Fn(Vec<String>) -> String) {
    let proxies: Vec<_> = nodes.iter().map(|node| Proxy::start(node.address())).collect();
    let store = sprag::open(&url(nodes.iter().map(RedisServer::address).collect())).unwrap();
    for by in [By::Guard, By::Id] {
        let locks = Locks::open(&url(proxies.iter().map(Proxy::address).collect())).unwrap();
        let kept: Vec<_> = proxies.iter().map(|proxy| (proxy, OnceCell::new())).collect();
        let keep_back = || {
            for (proxy, seen) in &kept {
                seen.set(proxy.captured().len()).unwrap();
                proxy.times(usize::MAX, NAME, Fault::CutRequest(0));
            }
        };
        let deliver = async || {
            for (proxy, seen) in &kept {
                let captured = proxy.captured().split_off(*seen.get().unwrap());
                let late = captured.iter().find(|request| request.contains(NAME)).unwrap();
                assert!(late.contains(&SHORT.as_millis().to_string()), "{late:?}");
                let reply = proxy.replay(late);
                assert!(!reply.starts_with(b"-"), "{}", String::from_utf8_lossy(&reply));
            }
        };
        let let_go = || kept.iter().for_each(|(proxy, _)| proxy.heal());
        a_late_one_changes_nothing((&locks, &store), by, (keep_back, let_go), deliver).await;
    }
}

#[tokio::test]
async fn a_late_renewal_does_not_shorten_a_lease_on_redis() {
    if RedisServer::skipped() {
        return;
    }
    let server = [RedisSetup::new().tcp().start().await];
    let timeout = TIMEOUT.as_millis();
    on_redis(&server, |at| format!("redis://{}?timeout_ms={timeout}", at[0])).await;
}

#[tokio::test]
async fn a_late_renewal_does_not_shorten_a_lease_on_redlock() {
    if RedisServer::skipped() {
        return;
    }
    let nodes = RedisServer::several(3, &RedisSetup::new().tcp()).await;
    let timeout = TIMEOUT.as_millis();
    on_redis(&nodes, |at| format!("redlock://{}?node_timeout_ms={timeout}", at.join(","))).await;
}

#[tokio::test]
async fn a_late_renewal_does_not_shorten_a_lease_on_postgres() {
    if postgres_server::skipped() {
        return;
    }
    let database = Database::fresh();
    let proxy = Proxy::start(format!("127.0.0.1:{}", database.port()));
    let store = sprag::open(&database.url()).unwrap();
    let (address, name, timeout) = (proxy.address(), database.name(), TIMEOUT.as_millis());
    let url = format!("postgres://postgres@{address}/{name}?sslmode=disable&timeout_ms={timeout}");
    // Each renewal is a new version of the record.
    let version = || {
        let sql = format!("SELECT version FROM sprag.lock WHERE name = '{NAME}'");
        database.sql(&sql).trim().parse::<u64>().unwrap()
    };
    for by in [By::Guard, By::Id] {
        let locks = Locks::open(&url).unwrap();
        // What is frozen stays under way on its connection; the next request goes on another.
        let keep_back = || proxy.once(NAME, Fault::FreezeRequest);
        let deliver = async || {
            let before = version();
            proxy.heal();
            eventually("it has arrived", || async { version() > before }).await;
        };
        a_late_one_changes_nothing((&locks, &store), by, (keep_back, || ()), deliver).await;
    }
}
