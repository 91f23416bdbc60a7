//! What only the Redis store does: it shares its keys with other programs, and its server can
//! refuse in many ways.

use std::time::Duration;

use sprag::audit::{AuditKind, AuditQuery};
use sprag::store::{Evicted, Eviction};
use sprag::{
    DistributedLock, Error, LockName, Locks, Loss, RedisDistributedLock, RetryConfig, Strategy,
};
use sprag_testkit::redis_server::{RedisServer, RedisSetup};
use sprag_testkit::support::{LONG, eventually, request, within};

/// A server, unless its tests were declined.
async fn server(options: &[&str]) -> Option<RedisServer> {
    if RedisServer::skipped() { None } else { Some(RedisServer::start(options).await) }
}

fn refused(url: &str) -> Error {
    Locks::open(url).expect_err("opened")
}

#[tokio::test]
async fn a_plain_client_and_we_exclude_each_other() {
    let Some(server) = server(&[]).await else { return };
    let locks = Locks::open(&server.url()).unwrap();
    let theirs = || server.ask(&["SET", "sprag:job", "their token", "NX", "PX", "60000"]);

    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    assert_eq!(theirs(), "", "taken although it is held");
    assert_eq!(server.ask(&["GET", "sprag:job"]), guard.lease().to_string());
    guard.release().await.unwrap();

    assert_eq!(theirs(), "OK");
    assert!(locks.lock("job").try_acquire().await.unwrap().is_none());
    let view = locks.inspect("job").await.unwrap();
    assert_eq!(view.holders[0].holder.worker_id, "another program (not sprag)");
    let waiting = tokio::spawn(locks.lock("job").ttl(LONG).acquire());
    let waits = || async { locks.inspect("job").await.unwrap().waiters.len() == 1 };
    eventually("it waits", waits).await;
    assert_eq!(server.ask(&["GET", "sprag:job"]), "their token");
    server.ask(&["DEL", "sprag:job"]);
    let guard = within("it is granted", waiting).await.unwrap().unwrap();
    assert!(guard.is_valid());
}

#[tokio::test]
async fn readers_and_permits_keep_plain_clients_out() {
    let Some(server) = server(&[]).await else { return };
    let locks = Locks::open(&server.url()).unwrap();
    let theirs = |ttl: &str| server.ask(&["SET", "sprag:job", "their token", "NX", "PX", ttl]);
    let rw = locks.rw_lock("job").unwrap();
    let (one, two) =
        (rw.read().acquire().await.unwrap(), rw.read().own_party().acquire().await.unwrap());
    assert_eq!(theirs("60000"), "");
    one.release().await.unwrap();
    assert_eq!(theirs("60000"), "");
    two.release().await.unwrap();
    assert_eq!(theirs("60000"), "OK");
    assert!(locks.lock("job").shared().try_acquire().await.unwrap().is_none());
}

#[tokio::test]
async fn a_deleted_key_is_a_lost_lock() {
    let Some(server) = server(&[]).await else { return };
    let locks = Locks::open(&server.url()).unwrap();
    let ttl = Duration::from_millis(900);
    for how in [&["DEL", "sprag:job"][..], &["FLUSHALL"], &["SET", "sprag:job", "x", "PX", "50"]] {
        let before = locks.lock("job").ttl(ttl).acquire().await.unwrap();
        server.ask(how);
        within("it is told", before.lost()).await;
        let after = locks.lock("job").ttl(ttl).acquire().await.unwrap();
        assert!(after.fence() > before.fence(), "{how:?}: a fence went back");
        after.release().await.unwrap();
    }
}

/// The record of one lock is damaged for good: that lock is lost, and no other.
#[tokio::test]
async fn a_damaged_lock_takes_no_other_along() {
    let Some(server) = server(&[]).await else { return };
    let locks = Locks::open(&server.url()).unwrap();
    let ttl = Duration::from_secs(1);
    let damaged = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    let sound = locks.lock("b").ttl(ttl).acquire().await.unwrap();
    let first = sound.valid_until();
    server.ask(&["DEL", "sprag:a"]);
    server.ask(&["RPUSH", "sprag:a", "x"]);
    let loss = within("the damaged one is lost", damaged.lost()).await;
    assert_eq!(loss, Loss::StateLost);
    // Long enough to be lost if it was not renewed.
    let renewed = || async { sound.valid_until() > first.plus(ttl * 2) };
    eventually("the other is renewed", renewed).await;
    assert!(sound.is_valid());
}

#[tokio::test]
async fn what_a_plain_client_holds_can_be_broken_and_forced_on_purpose_only() {
    let Some(server) = server(&[]).await else { return };
    let locks = Locks::builder(&server.url()).allow_force(true).open().unwrap();
    let theirs = || server.ask(&["SET", "sprag:job", "their token", "NX"]);
    assert_eq!(theirs(), "OK");
    let steal = Strategy::StealStale { after: Duration::from_millis(1) };
    assert!(locks.lock("job").strategy(steal).try_acquire().await.unwrap().is_none());
    let fence = locks.inspect("job").await.unwrap().holders[0].fence;
    let store = sprag::open(&server.url()).unwrap();
    let name = LockName::new("job").unwrap();
    let eviction = Eviction { name, fence, by: "ops".into(), reason: "stuck".into() };
    assert!(
        matches!(store.evict(&eviction).await.unwrap(), Evicted::Broken(broken) if broken.len() == 1)
    );
    assert_eq!(server.ask(&["GET", "sprag:job"]), "");
    assert_eq!(theirs(), "OK");
    let guard = locks.lock("job").strategy(Strategy::ForceAcquire).acquire().await.unwrap();
    assert_eq!(server.ask(&["GET", "sprag:job"]), guard.lease().to_string());
}

#[tokio::test]
async fn the_named_type_has_its_own_prefix() {
    let Some(server) = server(&[]).await else { return };
    let retry = RetryConfig::no_retry();
    let lock =
        RedisDistributedLock::with_config(&server.url(), "myapp:lock:", retry).await.unwrap();
    let guard = lock.acquire("job", LONG).await.unwrap();
    assert_eq!(server.ask(&["GET", "myapp:lock:job"]), guard.lease().to_string());
    let other = RedisDistributedLock::new(&server.url()).await.unwrap();
    assert!(!other.is_locked("job").await.unwrap());
    lock.release(guard).await.unwrap();
}

/// A script that the server has forgotten is sent again.
#[tokio::test]
async fn forgotten_scripts_are_sent_again() {
    let Some(server) = server(&[]).await else { return };
    let locks = Locks::open(&server.url()).unwrap();
    server.ask(&["SCRIPT", "FLUSH"]);
    let guard = locks.lock("job").acquire().await.unwrap();
    server.ask(&["SCRIPT", "FLUSH"]);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_refusal_says_what_to_do() {
    let Some(locked) = server(&["--requirepass", "hunter2"]).await else { return };
    let error = refused(&locked.url());
    assert!(error.is_refused() && error.to_string().contains("password"), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"));

    let evicting = RedisServer::start(&["--maxmemory-policy", "volatile-ttl"]).await;
    let error = refused(&evicting.url());
    assert!(error.is_refused() && error.to_string().contains("noeviction"), "{error}");
    Locks::open(&format!("{}?allow_eviction=true", evicting.url())).unwrap();

    let replica = RedisServer::start(&["--replicaof", "127.0.0.1 1"]).await;
    let error = refused(&replica.url());
    assert!(error.is_refused() && error.to_string().contains("127.0.0.1:1"), "{error}");

    let node = RedisServer::start(&["--cluster-enabled", "yes"]).await;
    let error = refused(&node.url());
    assert!(error.is_refused() && error.to_string().contains("redis+cluster"), "{error}");
    let single = RedisSetup::new().tcp().start().await;
    let error = refused(&single.url().replace("redis://", "redis+cluster://"));
    assert!(error.is_refused() && error.to_string().contains("write redis://"), "{error}");

    let error = refused("redis+unix:///no/such/socket");
    assert!(error.is_unavailable() && error.to_string().contains("/no/such/socket"), "{error}");
}

/// No heir is refused, seen as a waiter while it holds, or left in the queue's keys.
#[tokio::test]
async fn a_lock_is_handed_over_although_memory_is_full() {
    let Some(server) = server(&["--maxmemory", "100mb"]).await else { return };
    let locks = Locks::open(&server.url()).unwrap();
    let mut guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for waiting in 1..=2 {
        let asked = locks.lock("job").ttl(LONG).own_party().acquire();
        let tell = tell.clone();
        tokio::spawn(async move { tell.send(asked.await.unwrap()).unwrap() });
        let waits = || async { locks.inspect("job").await.unwrap().waiters.len() == waiting };
        eventually("it waits", waits).await;
    }
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    for left in [1, 0] {
        guard.release().await.unwrap();
        guard = within("handed over", told.recv()).await.unwrap();
        let view = locks.inspect("job").await.unwrap();
        assert_eq!(view.holders[0].lease, guard.lease());
        assert_eq!(view.waiters.len(), left);
    }
    guard.release().await.unwrap();
    assert_eq!(server.ask(&["KEYS", "{sprag:job}:*"]), "{sprag:job}:r");
}

/// Neither alone nor while others wait.
#[tokio::test]
async fn a_lease_is_renewed_although_memory_is_full() {
    let Some(server) = server(&["--maxmemory", "100mb"]).await else { return };
    let locks = Locks::open(&server.url()).unwrap();
    let mut guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    let left = || server.ask(&["PTTL", "sprag:job"]).parse::<u128>().unwrap();
    let mut renewed = async |ttl: Duration| {
        server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
        guard.extend(ttl).await.unwrap();
        server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
        assert!(left() > LONG.as_millis(), "it was not renewed");
    };
    renewed(2 * LONG).await;
    let waiting = tokio::spawn(locks.lock("job").ttl(LONG).own_party().acquire());
    let waits = || async { locks.inspect("job").await.unwrap().waiters.len() == 1 };
    eventually("it waits", waits).await;
    renewed(3 * LONG).await;
    guard.release().await.unwrap();
    within("handed over", waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// A hand-over is one entry of the trail: who has read its first half finds the second.
#[tokio::test]
async fn a_page_of_the_trail_may_begin_within_a_hand_over() {
    let Some(server) = server(&[]).await else { return };
    let locks = Locks::open(&server.url()).unwrap();
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("job").ttl(LONG).own_party().acquire());
    let waits = || async { locks.inspect("job").await.unwrap().waiters.len() == 1 };
    eventually("it waits", waits).await;
    guard.release().await.unwrap();
    let heir = within("handed over", waiting).await.unwrap().unwrap();
    let mut after = 1;
    let mut kinds = Vec::new();
    loop {
        let query = AuditQuery { after, limit: 1, ..AuditQuery::default() };
        let page = locks.store().audit(&query).await.unwrap();
        let Some(entry) = page.first() else { break };
        kinds.push((entry.kind, entry.lease == heir.lease()));
        after = entry.sequence;
    }
    let told = [AuditKind::Acquired, AuditKind::Released, AuditKind::Acquired];
    assert_eq!(kinds, [(told[0], false), (told[1], false), (told[2], true)]);
    heir.release().await.unwrap();
}

#[tokio::test]
async fn a_server_in_trouble_is_told_apart() {
    let Some(server) = server(&["--maxmemory", "100mb"]).await else { return };
    let url = format!("{}?timeout_ms=500", server.url());
    let (locks, store) = (Locks::open(&url).unwrap(), sprag::open(&url).unwrap());
    let guard = locks.lock("held").ttl(LONG).acquire().await.unwrap();

    server.ask(&["RPUSH", "sprag:list", "x"]);
    let error = locks.lock("list").try_acquire().await.unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains("another type"), "{error}");

    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = locks.lock("other").try_acquire().await.unwrap_err();
    assert!(error.is_store_full() && error.to_string().contains("maxmemory"), "{error}");
    assert_eq!(server.ask(&["KEYS", "*other*"]), "", "left behind");
    // Who gives back is not refused.
    guard.release().await.unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);

    server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = locks.lock("other").try_acquire().await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("replica"), "{error}");
    server.ask(&["REPLICAOF", "NO", "ONE"]);

    // Done so late that its caller has given up, the request must not take the lock.
    server.ask(&["CLIENT", "PAUSE", "1500", "ALL"]);
    let error = store.try_acquire(&request("other")).await.unwrap_err();
    assert!(error.is_unavailable() && error.is_indeterminate(), "{error:?}");
    let answers = || async { locks.inspect("other").await.is_ok() };
    eventually("it goes on", answers).await;
    assert!(locks.lock("other").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn connections_that_are_cut_are_made_again() {
    let Some(server) = server(&[]).await else { return };
    let locks = Locks::open(&server.url()).unwrap();
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    let other = Locks::open(&server.url()).unwrap();
    let waiting = tokio::spawn(other.lock("job").ttl(LONG).acquire());
    let waits = || async { locks.inspect("job").await.is_ok_and(|view| view.waiters.len() == 1) };
    eventually("it waits", waits).await;
    for kind in ["normal", "pubsub"] {
        server.ask(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
    guard.release().await.unwrap();
    within("it is granted", waiting).await.unwrap().unwrap().release().await.unwrap();
}
