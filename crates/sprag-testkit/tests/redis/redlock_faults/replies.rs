//! Requests and replies that are cut, lost, late or doubled between us and the nodes: a minority of
//! them, a majority, or all.

use std::time::Duration;

use sprag::{LockState, Released};
use sprag_testkit::proxy::{Captured, Fault, Proxy};
use sprag_testkit::redis_server::RedisServer;
use sprag_testkit::support::{
    LONG, eventually, is_unused, let_time_pass, look, now, request, until_unused, within,
};

use super::{NODE_TIMEOUT, Scene};

/// A lease that ends within a test.
const SHORT: Duration = Duration::from_millis(1500);

impl Scene {
    /// Three nodes, each behind a network of its own.
    async fn behind_proxies() -> Option<Self> {
        let mut scene = Self::new(3).await?;
        scene.proxies = scene.nodes.iter().map(|node| Proxy::start(node.address())).collect();
        scene.options = "&timeout_ms=1000";
        Some(scene)
    }

    /// A way past the proxies, to look at locks.
    fn direct(&self) -> String {
        format!("redlock://{}?node_timeout_ms=1000", self.addresses())
    }

    /// Does something to the next request about the lock on so many nodes.
    fn break_some(&self, count: usize, times: usize, fault: Fault) {
        let proxies = self.proxies.iter().take(count);
        proxies.for_each(|proxy| proxy.times(times, "sprag:report", fault));
    }

    fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }

    /// Until the next one can have the lock. A node that was not told keeps the key until its time is
    /// over; here it is taken away.
    async fn free(&self) {
        let free = async || self.keys("report") <= self.nodes.len() / 2;
        eventually("a majority is free", free).await;
        for node in &self.nodes {
            node.ask(&["DEL", "sprag:report"]);
        }
    }
}

/// F07: the same attempt finds its grant, with validity counted from the first request.
#[tokio::test]
async fn a_vote_that_is_cut_off_is_found() {
    let Some(scene) = Scene::behind_proxies().await else { return };
    let (locks, store) = (scene.locks(), sprag::open(&scene.direct()).unwrap());
    let mut last = None;
    for (broken, cut) in (1..=3).flat_map(|broken| Fault::CUTS.map(|cut| (broken, cut))) {
        scene.break_some(broken, 1, cut);
        let sent = now();
        let guard = within("acquired", locks.lock("report").ttl(LONG).acquire()).await.unwrap();
        let what = format!("{cut:?} on {broken}");
        assert!(guard.valid_until() < sent.plus(LONG), "{what}: counted from a later request");
        let view = look(&store, "report").await;
        assert_eq!(view.holders.len(), 1, "{what}");
        assert_eq!((view.holders[0].lease, view.fence), (guard.lease(), guard.fence()), "{what}");
        assert!(last < Some(guard.fence()), "{what}: the fence went back");
        last = Some(guard.fence());
        scene.heal();
        assert_eq!(within("released", guard.release()).await.unwrap(), Released::Freed, "{what}");
        scene.free().await;
    }
}

/// F08: asked again, and it counts as done.
#[tokio::test]
async fn a_release_that_is_cut_off_frees_the_lock() {
    let Some(scene) = Scene::behind_proxies().await else { return };
    let locks = scene.locks();
    for (broken, cut) in (1..=3).flat_map(|broken| Fault::CUTS.map(|cut| (broken, cut))) {
        let guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
        scene.break_some(broken, 1, cut);
        let released = within("released", guard.release()).await.unwrap();
        assert_eq!(released, Released::Freed, "{cut:?} on {broken}");
        scene.heal();
        scene.free().await;
    }
}

/// F09: with a minority nobody notices; with a majority suspect, and then held again.
#[tokio::test]
async fn renewals_that_are_cut_off_are_sent_again() {
    let Some(scene) = Scene::behind_proxies().await else { return };
    let locks = scene.locks();
    for cut in [Fault::CutReply(0), Fault::CutRequest(0)] {
        let guard = locks.lock("report").ttl(2 * SHORT).acquire().await.unwrap();
        let before = guard.valid_until();
        scene.break_some(1, 1, cut);
        eventually("renewed", async || guard.valid_until() > before).await;
        assert_eq!(guard.state(), LockState::Held, "{cut:?}: one of three was noticed");
        let before = guard.valid_until();
        scene.break_some(2, 1, cut);
        eventually("suspect", async || guard.state() == LockState::Suspect).await;
        eventually("held again", async || guard.state() == LockState::Held).await;
        assert!(guard.valid_until() > before);
        scene.heal();
        assert_eq!(guard.release().await.unwrap(), Released::Freed);
    }
}

/// F09: the renewals reach all nodes and a majority of replies never comes back: the lock is lost at
/// the deadline of the last reply, and never believed in beyond it.
#[tokio::test]
async fn replies_of_a_majority_that_never_come_cost_the_lock_in_time() {
    let Some(scene) = Scene::behind_proxies().await else { return };
    let (locks, store) = (scene.locks(), sprag::open(&scene.direct()).unwrap());
    let guard = locks.lock("report").ttl(SHORT).acquire().await.unwrap();
    scene.break_some(2, usize::MAX, Fault::LoseReply);
    let watch = async {
        loop {
            let (asked, valid) = (now(), guard.is_valid());
            assert!(!valid || asked < guard.valid_until(), "believed in for too long");
            if !valid {
                break guard.valid_until();
            }
            tokio::task::yield_now().await;
        }
    };
    let believed_until = within("lost", watch).await;
    within("told", guard.lost()).await;
    let_time_pass(SHORT / 3).await;
    assert!(!guard.is_valid() && guard.valid_until() == believed_until, "it came back");
    scene.heal();
    until_unused(&store, "report").await;
}

/// F31: requests that lay in the network until their caller gave up take no lock.
#[tokio::test]
async fn votes_that_are_asked_for_too_late_are_not_given() {
    let Some(scene) = Scene::behind_proxies().await else { return };
    let through = scene.store();
    let direct = sprag::open(&scene.direct()).unwrap();
    scene.break_some(3, 1, Fault::FreezeRequest);
    let error = through.try_acquire(&request("report")).await.unwrap_err();
    assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
    // By then it is too late by the nodes' clocks, too.
    let_time_pass(NODE_TIMEOUT / 5).await;
    let done = |node: &RedisServer| {
        let stats = node.ask(&["INFO", "commandstats"]);
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:"))?;
        line.split(['=', ',']).nth(1)?.parse::<u64>().ok()
    };
    let before: Vec<_> = scene.nodes.iter().map(done).collect();
    scene.heal();
    eventually("what was frozen is done", async || {
        scene.nodes.iter().map(done).zip(&before).all(|(after, before)| after > *before)
    })
    .await;
    eventually("no key is left", async || scene.keys("report") == 0).await;
    assert!(is_unused(&direct, "report").await, "an orphan");
}

/// F62: every request, sent once more, changes nothing: neither at once nor after many others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn votes_that_are_asked_for_once_more_are_not_given() {
    let Some(scene) = Scene::behind_proxies().await else { return };
    let locks = scene.locks();
    let mut guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
    let ours = |proxy: &Proxy| -> Vec<Captured> {
        proxy.captured().into_iter().filter(|call| call.contains("sprag:report")).collect()
    };
    // So that each request is seen by itself.
    let asked = async |times| {
        let all = async || scene.proxies.iter().all(|proxy| ours(proxy).len() >= times);
        eventually("every node was asked", all).await;
    };
    eventually("every node has it", async || scene.keys("report") == 3).await;
    guard.extend(LONG).await.unwrap();
    asked(2).await;
    guard.release().await.unwrap();
    asked(3).await;
    eventually("no key is left", async || scene.keys("report") == 0).await;
    let captured: Vec<_> = scene.proxies.iter().map(ours).collect();
    let replay = || {
        for (proxy, calls) in scene.proxies.iter().zip(&captured) {
            calls.iter().for_each(|call| drop(proxy.replay(call)));
        }
    };
    replay();
    assert_eq!(scene.keys("report"), 0, "a duplicate took the lock");
    let_time_pass(NODE_TIMEOUT).await;
    for _ in 0..20 {
        locks.lock("report").acquire().await.unwrap().release().await.unwrap();
    }
    eventually("no key is left", async || scene.keys("report") == 0).await;
    replay();
    assert_eq!(scene.keys("report"), 0, "a late duplicate took the lock");
    let current = locks.lock("report").ttl(LONG).acquire().await.unwrap();
    replay();
    let after = locks.inspect("report").await.unwrap();
    assert_eq!((after.holders[0].lease, after.fence), (current.lease(), current.fence()));
    current.release().await.unwrap();
}
