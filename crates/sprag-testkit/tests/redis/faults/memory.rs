//! A server that forgets, or whose clock jumps.

use std::time::Duration;

use sprag::diagnosis::Health;
use sprag::{Level, LockState, Locks, Loss};
use sprag_testkit::redis_server::{RedisServer, RedisSetup, ShiftedClock};
use sprag_testkit::support::{LONG, eventually, let_time_pass, look, now, within};

use super::{SHORT, Scene};

/// F24: the holder is told at its next renewal, and the next fence is larger although the server
/// has forgotten all of them.
#[tokio::test]
async fn flushed_while_held_it_is_lost_and_the_fence_grows() {
    let Some(scene) = Scene::new().await else { return };
    let locks = scene.locks();
    for how in ["FLUSHALL", "FLUSHDB"] {
        let before = locks.lock("report").ttl(SHORT).acquire().await.unwrap();
        scene.server.ask(&[how]);
        assert_eq!(within("told", before.lost()).await, Loss::StateLost, "{how}");
        let after = locks.lock("report").ttl(SHORT).acquire().await.unwrap();
        assert!(after.fence() > before.fence(), "{how}: a fence went back");
        after.release().await.unwrap();
    }
}

/// F25: restarted without what it knew, nobody who saw it is granted a lock until the longest lease
/// has ended that the server may have forgotten; the next fence is larger.
#[tokio::test]
async fn restarted_without_a_log_it_grants_nothing_until_old_leases_have_ended() {
    let Some(mut scene) = Scene::new().await else { return };
    let longest = 3 * SHORT;
    let url = format!("{}?longest_ttl_ms={}", scene.server.url(), longest.as_millis());
    let (holder, other) = (Locks::open(&url).unwrap(), Locks::open(&url).unwrap());
    let before = holder.lock("report").ttl(longest).acquire().await.unwrap();
    // It tells its age in whole seconds: one that is a tenth of a second old may say one.
    let micros = |server: &RedisServer| {
        server.ask(&["TIME"]).lines().last().unwrap().parse::<u32>().unwrap()
    };
    let late = || async { micros(&scene.server) > 800_000 };
    eventually("the end of a second", late).await;
    let killed = now();
    scene.server.restart().await;
    let early = || async { micros(&scene.server) < 800_000 };
    eventually("the next second", early).await;
    let error = other.lock("report").ttl(SHORT).try_acquire().await.unwrap_err();
    assert!(error.is_busy() && error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains("appendfsync"), "{error}");
    let after = loop {
        match other.lock("report").ttl(SHORT).try_acquire().await {
            Ok(Some(guard)) => break guard,
            Ok(None) => panic!("held by nobody"),
            Err(error) => assert!(error.is_busy(), "{error:?}"),
        }
        assert!(now().since(killed) < 4 * longest, "closed for too long");
        let_time_pass(SHORT / 50).await;
    };
    let closed = now().since(killed);
    assert!(closed >= longest - longest / 100, "two could hold it: granted after {closed:?}");
    let loss = within("told", before.lost()).await;
    assert!(matches!(loss, Loss::StateLost | Loss::Unreachable | Loss::Expired), "{loss:?}");
    assert!(after.fence() > before.fence(), "a fence went back");
}

/// F25: who comes later has seen no restart, and is not held up.
#[tokio::test]
async fn who_saw_no_restart_is_not_held_up() {
    let Some(mut scene) = Scene::new().await else { return };
    scene.server.restart().await;
    assert!(scene.direct().lock("report").try_acquire().await.unwrap().is_some());
    let always = format!("{}?restart_quarantine=always", scene.server.url());
    let error = Locks::open(&always).unwrap().lock("other").try_acquire().await.unwrap_err();
    assert!(error.is_busy(), "{error:?}");
}

/// F26: with a log that is written before the answer, what was acknowledged is there after
/// `kill -9`.
#[tokio::test]
async fn killed_with_a_log_it_still_knows_every_lock() {
    let Some(mut scene) = Scene::with(RedisSetup::new().log()).await else { return };
    let locks = scene.direct();
    for _ in 0..10 {
        let guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
        scene.server.kill();
        scene.server.restart().await;
        let other = scene.direct();
        let view = other.inspect("report").await.unwrap();
        assert_eq!(view.holders[0].lease, guard.lease());
        assert!(other.lock("report").try_acquire().await.unwrap().is_none());
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
    assert!(scene.direct().inspect("report").await.unwrap().holders.is_empty());
}

/// F26: a log that is written a moment after the answer is not believed: a server that is killed may
/// have forgotten the last locks.
#[tokio::test]
async fn a_log_that_is_written_later_is_not_believed() {
    let setup = RedisSetup::new().log().set("appendfsync", "everysec");
    let Some(mut scene) = Scene::with(setup).await else { return };
    let locks = scene.direct();
    assert_eq!(locks.capability().level, Level::Efficiency);
    locks.lock("report").acquire().await.unwrap().release().await.unwrap();
    scene.server.restart().await;
    let error = locks.lock("report").try_acquire().await.unwrap_err();
    assert!(error.is_busy() && error.to_string().contains("appendfsync"), "{error}");
    scene.server.ask(&["CONFIG", "SET", "appendfsync", "always"]);
    assert_eq!(scene.direct().capability().level, Level::LeaseExclusive);
}

/// F28: a server that may evict keys is refused, whatever it evicts; who insists is warned.
#[tokio::test]
async fn a_server_that_may_evict_is_refused() {
    let Some(scene) = Scene::new().await else { return };
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        for policy in [policy, &policy.replace("volatile", "allkeys")] {
            // There is no allkeys-ttl.
            if scene.server.ask(&["CONFIG", "SET", "maxmemory-policy", policy]) != "OK" {
                continue;
            }
            let error = Locks::open(&scene.server.url()).unwrap_err();
            let text = error.to_string();
            assert!(error.is_refused() && text.contains(policy), "{text}");
            assert!(text.contains("CONFIG SET maxmemory-policy noeviction"), "{text}");
            let url = format!("{}?allow_eviction=true", scene.server.url());
            let findings = sprag::open(&url).unwrap().diagnose().await.unwrap();
            assert!(findings.iter().any(|finding| finding.health == Health::Fail), "{policy}");
        }
    }
}

/// F29: the clock jumps ahead: the lock is gone early, its holder is told at the next renewal, and
/// the fence still grows.
#[tokio::test]
async fn a_clock_that_jumps_ahead_ends_the_lock_and_the_fence_grows() {
    if RedisServer::skipped() {
        return;
    }
    let clock = ShiftedClock::make();
    let server = RedisSetup::new().clock(&clock).start().await;
    let (locks, other) = (Locks::open(&server.url()).unwrap(), Locks::open(&server.url()).unwrap());
    let before = locks.lock("report").ttl(3 * SHORT).acquire().await.unwrap();
    let queued = tokio::spawn(other.lock("report").ttl(LONG).acquire());
    let store = sprag::open(&server.url()).unwrap();
    sprag_testkit::support::until_waiters(&store, "report", 1).await;
    clock.ahead(Duration::from_secs(120));
    let loss = within("told", before.lost()).await;
    assert_ne!(loss, Loss::Released);
    assert!(now() < before.valid_until().plus(SHORT), "told too late");
    // Whoever waited may have been taken for dead; then it is told, and asks again.
    let after = match within("an answer", queued).await.unwrap() {
        Ok(after) => after,
        Err(_) => within("granted", other.lock("report").ttl(LONG).acquire()).await.unwrap(),
    };
    assert!(after.fence() > before.fence(), "a fence went back");
}

/// F29: the clock jumps back: the lock stays with its holder, nobody else gets it, the fence still
/// grows, and what is released is free.
#[tokio::test]
async fn a_clock_that_jumps_back_frees_nothing_and_the_fence_grows() {
    if RedisServer::skipped() {
        return;
    }
    let clock = ShiftedClock::make();
    let server = RedisSetup::new().clock(&clock).start().await;
    let (locks, other) = (Locks::open(&server.url()).unwrap(), Locks::open(&server.url()).unwrap());
    let before = locks.lock("report").ttl(SHORT).acquire().await.unwrap();
    clock.behind(Duration::from_secs(3600));
    let until = now().plus(2 * SHORT);
    while now() < until {
        assert!(other.lock("report").try_acquire().await.unwrap().is_none(), "two holders");
        let_time_pass(SHORT / 10).await;
    }
    assert_ne!(before.state(), LockState::Lost(Loss::Expired), "its renewals came through");
    let fence = before.fence();
    before.release().await.unwrap();
    let after = within("acquired", other.lock("report").ttl(SHORT).acquire()).await.unwrap();
    assert!(after.fence() > fence, "a fence went back");
    after.release().await.unwrap();
    let store = sprag::open(&server.url()).unwrap();
    assert!(look(&store, "report").await.holders.is_empty());
}

/// F29: the clock jumps back and the holder is gone: its lease lasts for a TTL from when somebody asks
/// for the lock, and not for an hour more.
#[tokio::test]
async fn a_clock_that_jumps_back_keeps_no_lock_of_the_dead() {
    if RedisServer::skipped() {
        return;
    }
    let clock = ShiftedClock::make();
    let server = RedisSetup::new().clock(&clock).start().await;
    let (locks, other) = (Locks::open(&server.url()).unwrap(), Locks::open(&server.url()).unwrap());
    let shared = |name: &str| locks.lock(name).shared().ttl(SHORT).no_renewal().acquire();
    let alone = locks.lock("report").ttl(SHORT).no_renewal().acquire().await.unwrap();
    let readers = [shared("read").await.unwrap(), shared("read").await.unwrap()];
    clock.behind(Duration::from_secs(3600));
    let after = within("it ends", other.lock("report").ttl(LONG).acquire()).await.unwrap();
    assert!(!alone.is_valid(), "two holders");
    assert!(after.fence() > alone.fence(), "a fence went back");
    let writer = within("they end", other.lock("read").ttl(LONG).acquire()).await.unwrap();
    assert!(readers.iter().all(|reader| !reader.is_valid()), "beside readers");
    writer.release().await.unwrap();
}
