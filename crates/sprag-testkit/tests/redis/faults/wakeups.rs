//! Waiters that are not woken, or whose connection for it goes away.

use std::time::Duration;

use sprag_testkit::proxy::{Direction, Flow};
use sprag_testkit::support::{
    LONG, eventually, now, spawn_acquire, timed, until_unused, until_waiters, within,
};

use super::Scene;

/// How long a waiter that nobody wakes may take to notice that the lock is its own.
const BOUND: Duration = Duration::from_secs(5);

/// F10: the wake-up disappears on the way: the waiter's timer finds the grant.
#[tokio::test]
async fn a_wake_up_that_is_lost_costs_time_and_not_the_lock() {
    let Some(scene) = Scene::new().await else { return };
    let (holder, locks) = (scene.direct(), scene.locks());
    for round in 0..3 {
        let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
        let waiting = spawn_acquire(locks.lock("report").ttl(LONG));
        until_waiters(&scene.store, "report", 1).await;
        eventually("it listens", || async { scene.subscriber().is_some() }).await;
        scene.proxy.set_line(scene.subscriber().unwrap(), Direction::Reply, Flow::Hole);
        guard.release().await.unwrap();
        let (granted, took) = timed(within("granted", waiting)).await;
        assert!(took < BOUND, "round {round}: {took:?}");
        granted.unwrap().unwrap().release().await.unwrap();
    }
}

/// F10: the connection for wake-ups is cut at the moment of the hand-over.
#[tokio::test]
async fn a_subscriber_that_is_cut_off_at_the_hand_over_is_granted_all_the_same() {
    let Some(scene) = Scene::new().await else { return };
    let (holder, locks) = (scene.direct(), scene.locks());
    for round in 0..10 {
        let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
        let waiting = spawn_acquire(locks.lock("report").ttl(LONG));
        until_waiters(&scene.store, "report", 1).await;
        if round % 2 == 0 {
            scene.proxy.reset_all();
        } else if let Some(line) = scene.subscriber() {
            scene.proxy.reset(line);
        }
        guard.release().await.unwrap();
        let (granted, took) = timed(within("granted", waiting)).await;
        assert!(took < BOUND, "round {round}: {took:?}");
        granted.unwrap().unwrap().release().await.unwrap();
    }
}

/// F11: connections are killed over and over while several wait: everybody is served, and nobody
/// storms the server with new connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_killed_connections_stops_nobody() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 10;
    let Some(scene) = Scene::new().await else { return };
    let mut workers = Vec::new();
    for _ in 0..CLIENTS {
        let locks = scene.locks();
        workers.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
        }));
    }
    let started = now();
    let mut storms = 0;
    while workers.iter().any(|worker| !worker.is_finished()) {
        let kind = if storms % 4 == 3 { "normal" } else { "pubsub" };
        scene.server.ask(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
        storms += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(now().since(started) < Duration::from_secs(60), "no progress");
    }
    for worker in workers {
        worker.await.unwrap();
    }
    // The connection to look at locks was killed, too.
    until_unused(&sprag::open(&scene.server.url()).unwrap(), "report").await;
    // One for each that was killed, and a few that were killed before they were of use.
    let most = CLIENTS * 2 * (storms + 2);
    assert!(scene.proxy.count() <= most, "{} connections, {storms} storms", scene.proxy.count());
}
