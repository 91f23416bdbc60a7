//! A record that somebody has damaged (F74): each part of it, told and never taken for a free lock.

use sprag::{Locks, Mode};
use sprag_testkit::support::{LONG, spawn_acquire, until_waiters, within};

use super::Scene;

const RECORD: &str = "{sprag:report}:r";

/// Changes the numbers of the record by an expression of Lua, in which they are `n`.
fn rewrite(scene: &Scene, expression: &str) {
    let script = format!(
        "local n = redis.call('HGET', KEYS[1], 'n') \
         return redis.call('HSET', KEYS[1], 'n', {expression})"
    );
    assert_eq!(scene.server.ask(&["EVAL", &script, "1", RECORD]), "0");
}

/// Leaves out a part of the record.
fn remove(scene: &Scene, field: &str) {
    assert_eq!(scene.server.ask(&["HDEL", RECORD, field]), "1", "there is no {field}");
}

/// Nobody gets the lock, and whoever asks is told what is wrong.
async fn is_told(locks: &Locks, what: &str) {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let request = locks.lock("report").own_party();
        let request = if mode == Mode::Shared { request.shared() } else { request };
        let error = request.try_acquire().await.expect_err("granted");
        assert!(error.is_corrupt() && error.to_string().contains(what), "{error}");
    }
    is_seen(locks, what).await;
}

async fn is_seen(locks: &Locks, what: &str) {
    let error = locks.inspect("report").await.expect_err("it looks fine");
    assert!(error.is_corrupt() && error.to_string().contains(what), "{error}");
}

#[tokio::test]
async fn numbers_that_cannot_be_right_are_told() {
    for (expression, what) in [
        ("string.sub(n, 1, #n - 1)", "it is cut off"),
        ("n .. 'x'", "it is cut off"),
        ("string.sub(n, 1, 9)", "it is cut off"),
        ("''", "its numbers are missing"),
        ("'\\4' .. string.sub(n, 2)", "upgrade sprag here"),
        ("'\\2' .. string.sub(n, 2)", "of an older sprag"),
    ] {
        let Some(scene) = Scene::new().await else { return };
        let locks = scene.direct();
        let guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
        rewrite(&scene, expression);
        is_told(&scene.direct(), what).await;
        assert_eq!(scene.server.ask(&["GET", "sprag:report"]), guard.lease().to_string());
    }
}

#[tokio::test]
async fn parts_that_are_missing_are_told() {
    let Some(scene) = Scene::new().await else { return };
    let locks = scene.direct();
    let forget = || {
        scene.server.ask(&["DEL", "sprag:report", RECORD]);
    };
    let guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
    remove(&scene, "h");
    is_told(&scene.direct(), "a holder cannot be right").await;
    remove(&scene, "n");
    scene.server.ask(&["HSET", RECORD, "h", "x"]);
    is_told(&scene.direct(), "it has no numbers").await;
    drop(guard);

    forget();
    let guard = locks.lock("report").shared().ttl(LONG).acquire().await.unwrap();
    remove(&scene, "x");
    is_told(&scene.direct(), "its holders are missing").await;
    drop(guard);

    forget();
    locks.lock("report").ttl(LONG).acquire().await.unwrap().release().await.unwrap();
    remove(&scene, "g0");
    // Who takes a free lock need not know who had it before.
    is_seen(&scene.direct(), "lost leases are missing").await;

    forget();
    let guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
    locks.evict("report", guard.fence(), "it hangs").await.unwrap();
    remove(&scene, "o");
    is_seen(&scene.direct(), "lost leases are missing").await;
}

/// A promise that cannot be read lets in nobody: who was promised the lock may be inside.
#[tokio::test]
async fn a_promise_that_is_missing_is_told() {
    let Some(scene) = Scene::new().await else { return };
    let locks = scene.direct();
    let first = locks.lock("report").ttl(LONG).acquire().await.unwrap();
    let next = spawn_acquire(locks.lock("report").ttl(LONG));
    until_waiters(&scene.store, "report", 1).await;
    let heir = spawn_acquire(locks.lock("report").ttl(LONG));
    until_waiters(&scene.store, "report", 2).await;
    first.release().await.unwrap();
    let next = within("handed over", next).await.unwrap().unwrap();
    remove(&scene, "p");
    is_told(&scene.direct(), "its promise is missing").await;
    scene.server.ask(&["HSET", RECORD, "p", "too short"]);
    is_told(&scene.direct(), "its promise is missing").await;
    assert!(next.is_valid() && !heir.is_finished());
    heir.abort();
}
