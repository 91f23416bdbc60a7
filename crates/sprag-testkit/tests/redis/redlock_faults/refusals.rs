//! Nodes that are there and refuse: the key is something else, there is no memory, locks may be
//! evicted, the password is wrong. One is as good as down; of a majority people are told.

use sprag::Locks;
use sprag_testkit::redis_server::{RedisServer, RedisSetup};
use sprag_testkit::support::{eventually, request};

use super::{Scene, everything_works};

/// Two of three nodes of this kind cannot be opened, for this reason; one can.
async fn of_this_kind(odd: &RedisSetup, reason: &str) {
    let plain = RedisSetup::new().tcp();
    for odd_ones in [1, 2] {
        let mut nodes = RedisServer::several(odd_ones, odd).await;
        nodes.extend(RedisServer::several(3 - odd_ones, &plain).await);
        let mut scene = Scene::of(nodes);
        // One that refuses is not heard, and the others were never asked for a lock.
        scene.options = "&longest_ttl_ms=1";
        match Locks::open(&scene.url()) {
            Ok(locks) => {
                assert_eq!(odd_ones, 1, "{reason}: a minority was enough");
                eventually("they vote", async || {
                    locks.lock("report").try_acquire().await.is_ok_and(|guard| guard.is_some())
                })
                .await;
                everything_works(&locks, &scene.locks()).await;
            }
            Err(error) => {
                assert_eq!(odd_ones, 2, "{error}");
                assert!(!error.is_retryable() && error.to_string().contains(reason), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn nodes_that_may_evict_locks_are_not_used() {
    if !RedisServer::skipped() {
        let evicting = RedisSetup::new().tcp().set("maxmemory-policy", "allkeys-lru");
        of_this_kind(&evicting, "maxmemory-policy").await;
    }
}

#[tokio::test]
async fn nodes_with_another_password_are_not_used() {
    if !RedisServer::skipped() {
        of_this_kind(&RedisSetup::new().tcp().password("secret"), "password").await;
    }
}

/// What is no lock is left alone.
#[tokio::test]
async fn a_key_of_another_type_is_told() {
    let Some(scene) = Scene::new(3).await else { return };
    let (locks, other, store) = (scene.locks(), scene.locks(), scene.store());
    scene.nodes[0].ask(&["RPUSH", "sprag:report", "x"]);
    let guard = locks.lock("report").acquire().await.unwrap();
    assert!(other.lock("report").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    scene.nodes[1].ask(&["RPUSH", "sprag:report", "x"]);
    let error = store.try_acquire(&request("report")).await.unwrap_err();
    assert!(!error.is_retryable() && error.to_string().contains("another type"), "{error:?}");
    for node in &scene.nodes[..2] {
        assert_eq!(node.ask(&["LLEN", "sprag:report"]), "1");
    }
    let free = async || scene.nodes[2].ask(&["EXISTS", "sprag:report"]) == "0";
    eventually("the vote is given back", free).await;
}

/// Nodes without memory vote for nobody, and let go all the same.
#[tokio::test]
async fn nodes_without_memory_do_not_vote() {
    let Some(scene) = Scene::new(3).await else { return };
    let (locks, other, store) = (scene.locks(), scene.locks(), scene.store());
    everything_works(&locks, &other).await;
    scene.nodes[0].ask(&["CONFIG", "SET", "maxmemory", "1"]);
    everything_works(&locks, &other).await;
    let guard = locks.lock("report").acquire().await.unwrap();
    scene.nodes[1].ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = store.try_acquire(&request("elsewhere")).await.unwrap_err();
    assert!(error.to_string().contains("memory"), "{error:?}");
    eventually("no key is left", async || scene.keys("elsewhere") == 0).await;
    guard.release().await.unwrap();
    eventually("it is free", async || scene.keys("report") == 0).await;
}
