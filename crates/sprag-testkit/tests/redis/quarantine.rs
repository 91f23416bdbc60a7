//! A Redis server that may have forgotten locks grants none, by whichever way they would come.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use sprag::{Error, Locks, Mode};
use sprag_testkit::redis_server::{RedisCluster, RedisServer, RedisSetup};
use sprag_testkit::support::{LONG, eventually, within};

/// Long enough to look around in the meantime.
const CLOSED: Duration = Duration::from_secs(6);

fn is_closed(error: &Error) -> bool {
    error.is_busy() && error.to_string().contains("restarted")
}

/// A server that has written all it knows to its log, and does not promise so.
async fn with_a_lazy_log() -> RedisServer {
    let setup = RedisSetup::new().tcp().set("appendonly", "yes").set("appendfsync", "everysec");
    let server = setup.start().await;
    // Until it is restarted, nothing is lost.
    assert_eq!(server.ask(&["CONFIG", "SET", "appendfsync", "always"]), "OK");
    server
}

/// The names of locks, one on each master.
fn one_on_each(cluster: &RedisCluster) -> Vec<String> {
    let owner = |name: &String| cluster.owner(cluster.slot(&format!("sprag:{name}")));
    let on = |node| (0..).map(|n| format!("job-{n}")).find(|name| owner(name) == Some(node));
    (0..3).map(|node| on(node).expect("some name is there")).collect()
}

/// For how many more seconds nothing is granted.
async fn closed_for(locks: &Locks) -> u64 {
    match locks.lock("another").ttl(Duration::from_secs(1)).try_acquire().await {
        Err(error) if is_closed(&error) => {
            let text = error.to_string();
            let (_, left) = text.split_once("for another ").expect("it says how long");
            left.split(' ').next().unwrap().parse().expect("it is a number")
        }
        Err(error) if error.is_unavailable() => 0,
        granted => panic!("{granted:?}"),
    }
}

/// The longest lease of another process may be the one that was forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn the_longest_ttl_of_other_processes_counts() {
    if RedisServer::skipped() {
        return;
    }
    let mut server = RedisSetup::new().tcp().start().await;
    let (long, url) = (Duration::from_secs(600), format!("{}?longest_ttl_ms=1", server.url()));
    let holder = Locks::open(&url).unwrap();
    let guard = holder.lock("job").ttl(long).acquire().await.unwrap();
    let noted = || async { server.ask(&["ZSCORE", "{sprag:}:longest", "ms"]) == "600000" };
    eventually("it is noted", noted).await;
    let locks = Locks::open(&url).unwrap();
    server.restart_empty().await;
    let closed = || async { closed_for(&locks).await > 590 };
    eventually("it is closed for as long", closed).await;
    drop(guard);
}

/// Who still holds a long lease says so again, before the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn what_holders_tell_after_a_restart_counts() {
    if RedisServer::skipped() {
        return;
    }
    let mut server = RedisSetup::new().tcp().start().await;
    let (long, url) = (Duration::from_secs(600), format!("{}?longest_ttl_ms=20000", server.url()));
    let (holder, locks) = (Locks::open(&url).unwrap(), Locks::open(&url).unwrap());
    // Too late for the other one to hear of it before.
    let guard = holder.lock("job").ttl(long).acquire().await.unwrap();
    server.restart_empty().await;
    let closed = || async { closed_for(&locks).await > 0 };
    eventually("it is closed", closed).await;
    let asks = || async { holder.inspect("job").await.is_ok() };
    eventually("the holder asks for something", asks).await;
    let closed = || async { closed_for(&locks).await > 500 };
    eventually("it is closed for as long as the lease", closed).await;
    drop(guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_of_a_young_cluster_grants_its_first_lock() {
    if RedisServer::skipped() {
        return;
    }
    let cluster = RedisCluster::start().await;
    let names = one_on_each(&cluster);
    let cautious = format!("{}?restart_quarantine=always&longest_ttl_ms=600000", cluster.url());
    for name in &names {
        let locks = Locks::open(&cautious).unwrap();
        let error = locks.lock(name).try_acquire().await.expect_err("granted");
        assert!(is_closed(&error), "{error}");
        let waited = locks.lock(name).wait(CLOSED / 10).acquire().await;
        assert!(waited.expect_err("granted").is_timeout());
        assert!(locks.inspect(name).await.unwrap().holders.is_empty(), "left behind");
    }
    let careless = Locks::open(&cluster.url()).unwrap();
    for name in &names {
        let guard = careless.lock(name).try_acquire().await.unwrap().expect("it is free");
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_to_a_node_that_forgot_is_granted_to_nobody() {
    if RedisServer::skipped() {
        return;
    }
    let mut cluster = RedisCluster::start().await;
    let names = one_on_each(&cluster);
    let (moving, there) = (&names[0], &names[1]);
    let locks = Locks::open(&format!("{}?longest_ttl_ms=600000", cluster.url())).unwrap();
    for name in &names {
        locks.lock(name).acquire().await.unwrap().release().await.unwrap();
    }
    cluster.nodes()[1].restart().await;
    cluster.until_whole().await;
    let seen = || async { locks.lock(there).try_acquire().await.is_err_and(|e| is_closed(&e)) };
    eventually("its restart is seen", seen).await;
    // The other one has forgotten nothing, and this client believes the slot to be there.
    locks.lock(moving).acquire().await.unwrap().release().await.unwrap();
    let slot = cluster.slot(&format!("sprag:{moving}"));
    cluster.begin_move(slot, 1);
    cluster.move_keys(slot, 1);
    cluster.end_move(slot, 1);
    let error = locks.lock(moving).ttl(LONG).try_acquire().await.expect_err("granted");
    assert!(is_closed(&error), "{error}");
    let free = || async { locks.inspect(moving).await.unwrap().holders.is_empty() };
    eventually("nothing is left behind", free).await;
}

/// The server hands the lock over to who waits, as it does not know that it may have forgotten
/// something.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_is_handed_the_lock_gives_it_back_and_waits() {
    if RedisServer::skipped() {
        return;
    }
    let mut server = with_a_lazy_log().await;
    let careless = Locks::open(&format!("{}?restart_quarantine=never", server.url())).unwrap();
    let url = format!("{}?longest_ttl_ms={}", server.url(), CLOSED.as_millis());
    let locks = Locks::open(&url).unwrap();
    let guard = careless.lock("job").ttl(CLOSED).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("job").ttl(CLOSED).acquire());
    let waits = || async { careless.inspect("job").await.unwrap().waiters.len() == 1 };
    eventually("it waits", waits).await;

    server.restart().await;
    guard.release().await.unwrap();
    let free = || async { server.ask(&["GET", "sprag:job"]).is_empty() };
    eventually("it is given back", free).await;
    // It counts the seconds that have begun.
    let age = || server.info("uptime_in_seconds").parse::<u64>().unwrap();
    assert!(age() < CLOSED.as_secs(), "it was left to end by itself");
    assert!(!waiting.is_finished(), "granted by a server that may have forgotten who holds it");
    let granted = within("it is granted in the end", waiting).await.unwrap().unwrap();
    assert!(age() >= CLOSED.as_secs(), "granted after {} s", age());
    assert!(granted.is_valid());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_becomes_the_only_one_where_readers_may_be_forgotten() {
    if RedisServer::skipped() {
        return;
    }
    let mut server = with_a_lazy_log().await;
    let url = format!("{}?longest_ttl_ms={}", server.url(), CLOSED.as_millis());
    let locks = Locks::open(&url).unwrap();
    let mut reader = locks.lock("job").upgradable().ttl(CLOSED).acquire().await.unwrap();
    server.restart().await;
    let refused = async {
        loop {
            match reader.try_upgrade().await {
                Ok(upgraded) => panic!("upgraded: {upgraded}"),
                Err(error) if is_closed(&error) => return,
                // The connection is gone.
                Err(error) => assert!(error.is_unavailable(), "{error}"),
            }
        }
    };
    within("it is refused", refused).await;
    assert_eq!(reader.mode(), Mode::Upgradable);
    within("it is granted in the end", reader.upgrade()).await.unwrap();
    let age = server.info("uptime_in_seconds").parse::<u64>().unwrap();
    assert!(age >= CLOSED.as_secs(), "granted after {age} s");
    assert_eq!(reader.mode(), Mode::Exclusive);
}
