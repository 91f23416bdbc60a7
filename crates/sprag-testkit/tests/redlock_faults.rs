//! Redlock with nodes that are down, hang, are slow or forget (F34 of `docs/faults.md`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use sprag::diagnosis::Health;
use sprag::{Locks, Loss, Store};
use sprag_core::store::{Attempt, Eviction};
use sprag_testkit::redis_server::{RedisServer, RedisSetup};
use sprag_testkit::support::{LONG, eventually, look, now, request, timed, until_unused, within};

/// How long a node may take in these tests. Whoever waits for one that hangs needs longer.
const NODE_TIMEOUT: Duration = Duration::from_millis(1000);
/// Well below it: nobody waited.
const AT_ONCE: Duration = Duration::from_millis(600);

struct Scene {
    nodes: Vec<RedisServer>,
    options: &'static str,
}

impl Scene {
    /// Nothing if tests with Redis were declined.
    async fn new(count: usize) -> Option<Self> {
        if RedisServer::skipped() {
            return None;
        }
        let nodes = RedisServer::several(count, &RedisSetup::new().tcp()).await;
        Some(Self { nodes, options: "" })
    }

    fn url(&self) -> String {
        let nodes: Vec<_> = self.nodes.iter().map(RedisServer::address).collect();
        let timeout = NODE_TIMEOUT.as_millis();
        format!("redlock://{}?node_timeout_ms={timeout}{}", nodes.join(","), self.options)
    }

    fn locks(&self) -> Locks {
        Locks::open(&self.url()).unwrap()
    }

    fn store(&self) -> Arc<dyn Store> {
        sprag::open(&self.url()).unwrap()
    }

    /// On how many of the nodes that run the lock has a key.
    fn keys(&self, lock: &str) -> usize {
        let key = format!("sprag:{lock}");
        let running = self.nodes.iter().filter(|node| node.is_running());
        running.filter(|node| node.ask(&["EXISTS", &key]) == "1").count()
    }

    /// Until all nodes have noted that they voted for "report", and vote by that from now on.
    async fn until_all_go_the_short_way(&self, locks: &Locks) {
        eventually("all nodes have noted it", async || {
            let guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
            guard.release().await.unwrap();
            let seen = |node: &RedisServer| node.ask(&["HGET", "{sprag:report}:n", "seen"]);
            self.nodes.iter().all(|node| !seen(node).is_empty())
        })
        .await;
    }
}

/// Takes, extends, looks at, lists, fights for and releases a lock, each at once.
async fn everything_works(locks: &Locks, other: &Locks) {
    let (guard, took) = timed(locks.lock("report").ttl(LONG).acquire()).await;
    let mut guard = guard.unwrap();
    assert!(took < AT_ONCE, "acquired after {took:?}");
    let (extended, took) = timed(guard.extend(LONG)).await;
    extended.unwrap();
    assert!(took < AT_ONCE, "extended after {took:?}");
    let (tried, took) = timed(other.lock("report").try_acquire()).await;
    assert!(tried.unwrap().is_none() && took < AT_ONCE, "refused after {took:?}");
    let view = other.inspect("report").await.unwrap();
    assert_eq!((view.holders[0].fence, view.fence), (guard.fence(), guard.fence()));
    let fence = guard.fence();
    let (released, took) = timed(guard.release()).await;
    released.unwrap();
    assert!(took < AT_ONCE, "released after {took:?}");
    let next = other.lock("report").ttl(LONG).acquire().await.unwrap();
    assert!(next.fence() > fence);
    next.release().await.unwrap();
}

#[tokio::test]
async fn one_of_three_and_two_of_five_may_be_down() {
    for (count, down) in [(3, 1), (5, 2)] {
        let Some(mut scene) = Scene::new(count).await else { return };
        let before = [scene.locks(), scene.locks()];
        everything_works(&before[0], &before[1]).await;
        scene.nodes[..down].iter_mut().for_each(RedisServer::kill);
        everything_works(&before[0], &before[1]).await;
        // Whoever comes now finds a majority, too.
        everything_works(&scene.locks(), &before[0]).await;
    }
}

#[tokio::test]
async fn nobody_waits_for_nodes_that_hang() {
    for (count, hung) in [(3, 1), (5, 2)] {
        let Some(scene) = Scene::new(count).await else { return };
        let locks = [scene.locks(), scene.locks()];
        everything_works(&locks[0], &locks[1]).await;
        for node in &scene.nodes[..hung] {
            node.stop().await;
        }
        for _ in 0..5 {
            everything_works(&locks[0], &locks[1]).await;
        }
        scene.nodes[..hung].iter().for_each(RedisServer::go_on);
        // What they were asked meanwhile is done late, and leaves nothing behind.
        eventually("no key is left", || async { scene.keys("report") == 0 }).await;
        everything_works(&locks[0], &locks[1]).await;
    }
}

/// Three of five are down: that is told at once, names them, and leaves no key on the others.
#[tokio::test]
async fn without_a_majority_it_fails_and_unlocks_all() {
    let Some(mut scene) = Scene::new(5).await else { return };
    let (locks, store) = (scene.locks(), scene.store());
    let guard = locks.lock("held").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    scene.nodes[2..].iter_mut().for_each(RedisServer::kill);
    let (answer, took) = timed(store.try_acquire(&request("report"))).await;
    let error = answer.unwrap_err();
    assert!(error.is_unavailable() && took < AT_ONCE, "{error:?} after {took:?}");
    for node in &scene.nodes[2..] {
        assert!(error.to_string().contains(&node.address()), "{error} does not name it");
    }
    eventually("no key is left", || async { scene.keys("report") == 0 }).await;
    let lost = within("the holder is told", guard.lost()).await;
    assert!(matches!(lost, Loss::Unreachable | Loss::Expired), "{lost:?}");
    assert!(locks.inspect("report").await.unwrap_err().is_unavailable());
    assert!(Locks::open(&scene.url()).unwrap_err().is_unavailable());
}

/// A grant that only a minority could give is taken back, also on the node that hangs.
#[tokio::test]
async fn a_minority_of_votes_is_given_back() {
    let Some(scene) = Scene::new(3).await else { return };
    let store = scene.store();
    for node in &scene.nodes[1..] {
        node.ask(&["SET", "sprag:report", "another program", "PX", "60000"]);
    }
    let Attempt::Held(contention) = store.try_acquire(&request("report")).await.unwrap() else {
        panic!("a minority is enough")
    };
    assert!(contention.holders[0].holder.worker_id.contains("another program"));
    assert_eq!(look(&store, "report").await.holders[0].fence, contention.holders[0].fence);
    let own = || async { scene.nodes[0].ask(&["GET", "sprag:report"]).is_empty() };
    eventually("the vote is given back", own).await;
}

/// A failed extension, for want of a majority, does not end a lease that is still good.
#[tokio::test]
async fn a_failed_extension_leaves_the_lock_valid() {
    let Some(scene) = Scene::new(3).await else { return };
    let locks = scene.locks();
    let mut guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
    for node in &scene.nodes[1..] {
        node.stop().await;
    }
    assert!(guard.extend(LONG).await.unwrap_err().is_unavailable());
    assert!(guard.is_valid());
    scene.nodes[1..].iter().for_each(RedisServer::go_on);
    eventually("extended", || async { locks.inspect("report").await.is_ok() }).await;
    guard.extend(LONG).await.unwrap();
    guard.release().await.unwrap();
}

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
    let mut scene = Scene { nodes, options: "" };
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
    let mut scene = Scene { nodes, options: "" };
    let locks = scene.locks();
    let take = async || locks.lock("report").ttl(LONG).acquire().await.unwrap();
    scene.until_all_go_the_short_way(&locks).await;
    let stats = |node: &RedisServer| node.ask(&["INFO", "commandstats"]);
    for node in &scene.nodes {
        node.ask(&["CONFIG", "RESETSTAT"]);
    }
    take().await.release().await.unwrap();
    // One that does not go the short way reads more.
    let short = "cmdstat_hmget:calls=1,";
    eventually("it went the short way", async || {
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

/// The clock of one node is an hour ahead, so that its fences are larger than all others; fences
/// grow all the same when it is not part of the majority.
#[tokio::test]
async fn fences_grow_although_a_clock_is_ahead() {
    use sprag_testkit::redis_server::ShiftedClock;
    if RedisServer::skipped() {
        return;
    }
    let clock = ShiftedClock::make();
    let ahead = RedisSetup::new().tcp().clock(&clock).start().await;
    clock.ahead(Duration::from_secs(3600));
    let mut nodes = RedisServer::several(2, &RedisSetup::new().tcp()).await;
    nodes.insert(0, ahead);
    let mut scene = Scene { nodes, options: "" };
    let locks = scene.locks();
    let mut last = sprag::Fence::ZERO;
    for down in [Some(1), None, Some(0), Some(2), None] {
        // Halted nodes do not vote, and the others have to know the fence.
        if let Some(down) = down {
            scene.nodes[down].stop().await;
        }
        for _ in 0..3 {
            let guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
            assert!(guard.fence() > last, "{:?} after {last:?}", guard.fence());
            last = guard.fence();
            guard.release().await.unwrap();
        }
        if let Some(down) = down {
            scene.nodes[down].go_on();
            let back = || async { scene.nodes[down].ask(&["PING"]) == "PONG" };
            eventually("it is back", back).await;
        }
    }
    scene.nodes[1].kill();
}

/// Without fences all are 0, and the lock is a lock all the same.
#[tokio::test]
async fn without_fences_it_excludes() {
    let Some(mut scene) = Scene::new(3).await else { return };
    scene.options = "&fences=false";
    let (locks, other) = (scene.locks(), scene.locks());
    let guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
    assert_eq!(guard.fence(), sprag::Fence::ZERO);
    assert!(other.lock("report").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(other.lock("report").try_acquire().await.unwrap().is_some());
}

/// Whoever wants no fences leaves those of the others alone.
#[tokio::test]
async fn without_fences_those_of_others_still_grow() {
    let Some(mut scene) = Scene::new(3).await else { return };
    let fenced = scene.locks();
    scene.options = "&fences=false";
    let plain = scene.locks();
    let mut last = sprag::Fence::ZERO;
    for _ in 0..3 {
        let guard = fenced.lock("report").ttl(LONG).acquire().await.unwrap();
        assert!(guard.fence() > last, "{:?} after {last:?}", guard.fence());
        last = guard.fence();
        guard.release().await.unwrap();
        let mut guard = plain.lock("report").ttl(LONG).acquire().await.unwrap();
        guard.extend(LONG).await.unwrap();
        assert_eq!(guard.fence(), sprag::Fence::ZERO);
        guard.release().await.unwrap();
    }
}

/// The short way grants no lease that was broken, and the long way knows why.
#[tokio::test]
async fn a_broken_lease_does_not_come_back() {
    let Some(scene) = Scene::new(3).await else { return };
    let store = scene.store();
    let asked = request("report");
    scene.until_all_go_the_short_way(&scene.locks()).await;
    let Attempt::Granted(grant) = store.try_acquire(&asked).await.unwrap() else {
        panic!("it is free")
    };
    let (by, reason) = (String::from("operator"), String::from("it hangs"));
    let name = asked.name.clone();
    store.evict(&Eviction { name, fence: grant.fence, by, reason }).await.unwrap();
    for others in 0..2 {
        let answer = store.try_acquire(&asked).await.unwrap();
        assert!(matches!(answer, Attempt::Gone(Loss::Broken { .. })), "{others}: {answer:?}");
        scene.until_all_go_the_short_way(&scene.locks()).await;
    }
}
