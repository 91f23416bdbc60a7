//! Nodes that forget their locks, and when they vote again.

use std::time::Duration;

use sprag::Locks;
use sprag::diagnosis::Health;
use sprag_testkit::proxy::Proxy;
use sprag_testkit::redis_server::{RedisServer, RedisSetup};
use sprag_testkit::support::{LONG, eventually, let_time_pass, now, until_unused, within};

use super::{Scene, everything_works};

/// Where a node keeps what it knows about itself.
const MARK: &str = "{sprag:}:node";

/// A node that was restarted empty does not vote until the longest lease is over. With the votes of
/// the holder's other node and its own, a second holder would be possible.
#[tokio::test]
async fn a_node_that_has_forgotten_does_not_vote() {
    let Some(mut scene) = Scene::new(3).await else { return };
    scene.options = "&longest_ttl_ms=100";
    let (locks, other) = (scene.locks(), scene.locks());
    let ttl = Duration::from_secs(4);
    // The holder has two votes: the third node is down for the time being.
    scene.nodes[2].kill();
    let guard = locks.lock("report").ttl(ttl).no_renewal().acquire().await.unwrap();
    scene.nodes[2].restart_empty().await;
    let started = now();
    scene.nodes[1].restart_empty().await;
    for client in [&other, &scene.locks()] {
        let answer = client.lock("report").ttl(ttl).no_wait().acquire().await;
        let error = answer.map(|next| next.fence()).unwrap_err();
        assert!(error.is_held() || error.is_unavailable(), "{error:?}");
    }
    let findings = other.store().diagnose().await.unwrap();
    assert!(findings.iter().any(|finding| finding.text.contains("rests")), "{findings:?}");
    assert!(findings.iter().any(|finding| finding.health == Health::Fail), "{findings:?}");
    let next = within("granted when it is over", async {
        loop {
            if let Ok(next) = other.lock("report").ttl(ttl).acquire().await {
                break next;
            }
        }
    });
    let next = next.await;
    assert!(!guard.is_valid() && now().since(started) >= ttl, "a second holder");
    assert!(next.fence() > guard.fence());
    next.release().await.unwrap();
}

/// The same by `FLUSHALL`; the others are enough meanwhile.
#[tokio::test]
async fn an_emptied_node_rests_and_the_others_go_on() {
    let Some(scene) = Scene::new(3).await else { return };
    let (locks, other) = (scene.locks(), scene.locks());
    let guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
    scene.nodes[0].ask(&["FLUSHALL"]);
    everything_works_but_one(&other, "elsewhere").await;
    assert_eq!(scene.nodes[0].ask(&["EXISTS", "sprag:elsewhere"]), "0", "it voted");
    assert!(guard.is_valid());
    assert!(other.lock("report").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

async fn everything_works_but_one(locks: &Locks, lock: &str) {
    let mut guard = locks.lock(lock).ttl(LONG).acquire().await.unwrap();
    guard.extend(LONG).await.unwrap();
    guard.release().await.unwrap();
    until_unused(locks.store(), lock).await;
}

/// An append-only file may lack what was answered last: a node with one rests as well, and what it
/// remembers still counts.
#[tokio::test]
async fn a_node_with_a_log_rests_after_a_restart_too() {
    if RedisServer::skipped() {
        return;
    }
    let nodes = RedisServer::several(3, &RedisSetup::new().tcp().log()).await;
    let mut scene = Scene::of(nodes);
    let (locks, other) = (scene.locks(), scene.locks());
    let guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
    scene.nodes[0].restart().await;
    assert_eq!(scene.nodes[0].ask(&["GET", "sprag:report"]), guard.lease().to_string());
    let elsewhere = other.lock("elsewhere").ttl(LONG).acquire().await.unwrap();
    assert_eq!(scene.nodes[0].ask(&["EXISTS", "sprag:elsewhere"]), "0", "it voted");
    elsewhere.release().await.unwrap();
    assert!(other.lock("report").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

/// A node votes by what it noted at the last vote for the lock. That is void after a restart that kept
/// it, and gone with everything else.
#[tokio::test]
async fn a_vote_from_before_does_not_count_for_a_node_that_has_forgotten() {
    if RedisServer::skipped() {
        return;
    }
    let nodes = RedisServer::several(3, &RedisSetup::new().tcp().log()).await;
    let mut scene = Scene::of(nodes);
    let locks = scene.locks();
    let take = async || locks.lock("report").ttl(LONG).acquire().await.unwrap();
    scene.until_all_go_the_short_way(&locks).await;
    let stats = |node: &RedisServer| node.ask(&["INFO", "commandstats"]);
    // One that does not go the short way reads more; so does who asks it whether it votes, at times.
    let short = "cmdstat_hmget:calls=1,";
    eventually("it went the short way", async || {
        for node in &scene.nodes {
            node.ask(&["CONFIG", "RESETSTAT"]);
        }
        take().await.release().await.unwrap();
        scene.nodes.iter().all(|node| stats(node).contains(short))
    })
    .await;
    scene.nodes[0].restart().await;
    assert!(!scene.nodes[0].ask(&["HGET", "{sprag:report}:n", "seen"]).is_empty(), "it is kept");
    for after in ["PING", "FLUSHALL"] {
        let node = &scene.nodes[0];
        node.ask(&[after]);
        node.ask(&["CONFIG", "RESETSTAT"]);
        let guard = take().await;
        eventually("it was asked", async || stats(node).contains("cmdstat_eval")).await;
        assert_eq!(node.ask(&["EXISTS", "sprag:report"]), "0", "it voted after {after}");
        guard.release().await.unwrap();
    }
}

/// A node that has forgotten a lock does not vote because those who answer know of none: the one that
/// hangs may. One lease is enough to tell, so a rest of any length would not do.
#[tokio::test]
async fn silence_is_no_proof_that_nobody_holds_a_lock() {
    let Some(mut scene) = Scene::new(3).await else { return };
    scene.options = "&longest_ttl_ms=100&timeout_ms=500";
    let (locks, other) = (scene.locks(), scene.locks());
    // The first lock there ever was is known to two nodes: as if the third had not been asked.
    let guard = locks.lock("report").ttl(LONG).no_renewal().acquire().await.unwrap();
    eventually("all have voted", async || scene.keys("report") == 3).await;
    scene.nodes[2].ask(&["DEL", "sprag:report", "{sprag:report}:n"]);
    scene.nodes[2].ask(&["HDEL", MARK, "longest"]);
    scene.nodes[0].restart_empty().await;
    scene.nodes[1].stop().await;
    let until = now().plus(Duration::from_secs(3));
    while now() < until {
        let newcomer = Locks::open(&scene.url()).map_err(|error| assert!(error.is_unavailable()));
        for client in newcomer.iter().chain([&other]) {
            let answer = client.lock("report").ttl(LONG).no_wait().acquire().await;
            let error = answer.map(|next| next.fence()).expect_err("two hold it");
            assert!(error.is_held() || error.is_unavailable(), "{error:?}");
        }
        let_time_pass(Duration::from_millis(50)).await;
    }
    assert!(guard.is_valid());
    // Asked again, the one that hung says how long it takes.
    scene.nodes[1].go_on();
    eventually("it rests", async || {
        let tried = other.lock("report").no_wait().acquire().await;
        assert!(tried.is_err(), "two hold it");
        let findings = other.store().diagnose().await.unwrap();
        findings.iter().any(|finding| finding.text.contains("rests for"))
    })
    .await;
    let rest = scene.nodes[0].ask(&["HGET", MARK, "rest"]).parse::<u64>().unwrap();
    let time = scene.nodes[0].ask(&["TIME"]).lines().next().unwrap().parse::<u64>().unwrap();
    assert!(rest / 1000 >= time + LONG.as_secs() / 2, "it rests until {rest}, and it is {time}");
    guard.release().await.unwrap();
    other.lock("report").ttl(LONG).acquire().await.unwrap().release().await.unwrap();
}

/// A node that has forgotten its locks is let in while nobody needs it. So it votes when another one
/// fails, much later.
#[tokio::test]
async fn a_node_is_let_in_before_it_is_needed() {
    let Some(mut scene) = Scene::new(3).await else { return };
    scene.options = "&longest_ttl_ms=100&timeout_ms=300";
    let (locks, other) = (scene.locks(), scene.locks());
    let ttl = Duration::from_secs(2);
    let visit = async || {
        locks.lock("report").ttl(ttl).acquire().await.unwrap().release().await.unwrap();
    };
    visit().await;
    scene.nodes[0].ask(&["FLUSHALL"]);
    eventually("it is let in", async || {
        visit().await;
        !scene.nodes[0].ask(&["HGET", MARK, "run"]).is_empty()
    })
    .await;
    eventually("it votes", async || {
        visit().await;
        !scene.nodes[0].ask(&["HGET", "{sprag:report}:n", "who"]).is_empty()
    })
    .await;
    scene.nodes[1].kill();
    everything_works(&locks, &other).await;
}

/// Whoever lets a node in and is slow does not let it in once it has forgotten more.
#[tokio::test]
async fn to_be_let_in_counts_for_one_life() {
    let Some(mut scene) = Scene::new(3).await else { return };
    scene.proxies = scene.nodes.iter().map(|node| Proxy::start(node.address())).collect();
    let locks = scene.locks();
    let run = scene.nodes[0].info("run_id");
    let requests = scene.proxies[0].captured();
    let let_in = requests.iter().find(|request| request.contains(&run)).unwrap();
    let guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
    scene.nodes[0].ask(&["FLUSHALL"]);
    let reply = scene.proxies[0].replay(let_in);
    let reply = String::from_utf8_lossy(&reply);
    assert!(reply.contains("blank"), "it was let in: {reply}");
    assert_eq!(scene.nodes[0].ask(&["HGET", MARK, "run"]), "");
    guard.release().await.unwrap();
}

/// A node that rests has no part in a lease, and notes how long it lasts all the same.
#[tokio::test]
async fn a_node_that_rests_notes_how_long_leases_last() {
    let Some(mut scene) = Scene::new(3).await else { return };
    scene.options = "&longest_ttl_ms=60000&timeout_ms=300";
    let locks = scene.locks();
    let node = &scene.nodes[0];
    node.ask(&["FLUSHALL"]);
    eventually("it is let in", async || {
        locks.lock("report").ttl(LONG).acquire().await.unwrap().release().await.unwrap();
        !node.ask(&["HGET", MARK, "rest"]).is_empty()
    })
    .await;
    let (long, longer) = (Duration::from_secs(600), Duration::from_secs(1200));
    let mut guard = locks.lock("other").ttl(long).acquire().await.unwrap();
    let noted = async |ttl: Duration| {
        let ttl = ttl.as_millis().to_string();
        eventually("it is noted", async || node.ask(&["HGET", MARK, "longest"]) == ttl).await;
    };
    noted(long).await;
    guard.extend(longer).await.unwrap();
    // What is longer than a quarter of an hour is noted by itself, until it is over.
    noted(Duration::from_secs(900)).await;
    let long = || node.ask(&["ZCARD", &format!("{MARK}:long")]);
    eventually("it is noted", async || long() == "1").await;
    assert_eq!(node.ask(&["EXISTS", "sprag:other"]), "0", "it voted");
    guard.release().await.unwrap();
    eventually("it does not count any more", async || long() == "0").await;
}
