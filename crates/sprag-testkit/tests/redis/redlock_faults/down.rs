//! Nodes that are down, hang or are slow, and what the others make of it.

use std::time::Duration;

use sprag::{Locks, Loss};
use sprag_core::store::{Attempt, Eviction, Listing};
use sprag_testkit::redis_server::{RedisServer, RedisSetup};
use sprag_testkit::support::{LONG, eventually, look, request, timed, within};

use super::{AT_ONCE, Scene, everything_works};

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

/// The same with as little time for a node as there is by default. It may be too little on a busy
/// machine, so that all is tried again; but nothing else may fail.
#[tokio::test]
async fn nodes_that_hang_or_are_down_are_done_without_by_default() {
    let Some(mut scene) = Scene::new(5).await else { return };
    let locks = Locks::open(&format!("redlock://{}", scene.addresses())).unwrap();
    scene.nodes[0].kill();
    scene.nodes[1].stop().await;
    eventually("all of it works", async || {
        let all = async {
            let mut guard = locks.lock("report").ttl(LONG).acquire().await?;
            guard.extend(LONG).await?;
            let listed = locks.list(&Listing::default()).await?;
            assert_eq!(listed.locks.len(), 1);
            guard.release().await
        };
        let done = all.await.map_err(|error| assert!(error.is_unavailable(), "{error:?}"));
        done.is_ok()
    })
    .await;
    scene.nodes[1].go_on();
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
    let mut scene = Scene::of(nodes);
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
