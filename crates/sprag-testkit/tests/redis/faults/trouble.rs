//! A server that answers, but not what was hoped for: each a clear error with the next step, no
//! endless asking, and no lock left behind.

use std::time::Duration;

use sprag::{Error, Locks};
use sprag_testkit::redis_server::{Certificates, RedisServer, RedisSetup};
use sprag_testkit::support::{LONG, eventually, is_unused, timed, within};

use super::{Scene, TIMEOUT};

/// What an open client is told when it asks for the lock once.
async fn told(locks: &Locks) -> Error {
    match locks.lock("report").try_acquire().await {
        Err(error) => error,
        Ok(granted) => panic!("{granted:?}"),
    }
}

#[track_caller]
fn says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text:?} does not say {words:?}");
}

/// A server that loads its data is busy for a while, and of use when it is done.
#[tokio::test]
async fn a_server_that_is_loading_is_busy() {
    if RedisServer::skipped() {
        return;
    }
    // Half a millisecond for each of ten thousand keys.
    let setup = RedisSetup::new().tcp().set("key-load-delay", "500");
    let mut server = setup.set("loading-process-events-interval-bytes", "1024").start().await;
    let url = format!("{}?timeout_ms=500&restart_quarantine=never", server.url());
    let locks = Locks::open(&url).unwrap();
    server.ask(&["EVAL", "for i = 1, 10000 do redis.call('SET', 'key' .. i, i) end", "0"]);
    assert_eq!(server.ask(&["SAVE"]), "OK");
    server.restart_loading().await;
    assert!(server.ask(&["GET", "key1"]).starts_with("LOADING"), "too fast for this test");
    let error = Locks::open(&server.url()).unwrap_err();
    assert!(error.is_busy() && error.is_retryable(), "{error:?}");
    says(&error, &["loading", "try again"]);
    let error = told(&locks).await;
    assert!(error.is_busy() || error.is_unavailable(), "{error:?}");
    let granted =
        || async { locks.lock("report").try_acquire().await.is_ok_and(|it| it.is_some()) };
    eventually("granted when it is loaded", granted).await;
}

/// A server that runs somebody's endless script is busy until that is killed.
#[tokio::test]
async fn a_server_with_an_endless_script_is_busy() {
    let Some(scene) = Scene::with(RedisSetup::new().set("busy-reply-threshold", "50")).await else {
        return;
    };
    let locks = scene.locks();
    let mut endless = scene.server.talk();
    endless.send(&["EVAL", "while true do end", "0"]).unwrap();
    let busy = || async { scene.server.ask(&["PING"]).starts_with("BUSY") };
    eventually("it is busy", busy).await;
    let error = told(&locks).await;
    assert!(error.is_busy() && error.is_retryable(), "{error:?}");
    says(&error, &["script", "SCRIPT KILL"]);
    let error = Locks::open(&scene.server.url()).unwrap_err();
    assert!(error.is_busy(), "{error:?}");
    assert_eq!(scene.server.ask(&["SCRIPT", "KILL"]), "OK");
    eventually("it goes on", || async { scene.server.ask(&["PING"]) == "PONG" }).await;
    let acquire = locks.lock("report").ttl(LONG).acquire();
    within("granted", acquire).await.unwrap().release().await.unwrap();
    assert!(is_unused(&scene.store, "report").await);
}

/// A user without the rights is told which are missing.
#[tokio::test]
async fn a_user_without_rights_is_refused() {
    let Some(scene) = Scene::new().await else { return };
    let url = format!("redis://worker:pw@{}", scene.server.address());
    let rules = [
        (&["~*", "&*", "+@all", "-evalsha", "-eval"][..], "evalsha"),
        (&["~other:*", "&*", "+@all"], "key"),
    ];
    for (rules, missing) in rules {
        let user = ["ACL", "SETUSER", "worker", "reset", "on", ">pw"];
        assert_eq!(scene.server.ask(&[&user, rules].concat()), "OK");
        let error = match Locks::open(&url) {
            Ok(locks) => told(&locks).await,
            Err(error) => error,
        };
        assert!(error.is_refused(), "{error:?}");
        says(&error, &["ACL", missing]);
    }
    let error = Locks::open(&url.replace(":pw@", ":wrong@")).unwrap_err();
    assert!(error.is_refused(), "{error:?}");
    says(&error, &["password"]);
    assert!(!format!("{error:?}").contains("wrong@"));
    assert!(is_unused(&scene.store, "report").await);
}

/// A server whose disk fails takes no locks, and says so.
#[tokio::test]
async fn a_server_that_cannot_save_takes_no_locks() {
    let Some(scene) = Scene::with(RedisSetup::new().set("save", "3600 1")).await else { return };
    let (locks, held) = (scene.locks(), scene.direct());
    let guard = held.lock("held").ttl(LONG).acquire().await.unwrap();
    // A folder where the file should be.
    let folder = scene.server.socket().with_file_name("dump.rdb");
    std::fs::create_dir_all(folder.join("in the way")).unwrap();
    scene.server.ask(&["SET", "a", "1"]);
    scene.server.ask(&["BGSAVE"]);
    let failed = || async { scene.server.info("rdb_last_bgsave_status") == "err" };
    eventually("it could not save", failed).await;
    let error = told(&locks).await;
    assert!(error.is_store_full(), "{error:?}");
    says(&error, &["disk"]);
    std::fs::remove_dir_all(&folder).unwrap();
    scene.server.ask(&["BGSAVE"]);
    let saved = || async { scene.server.info("rdb_last_bgsave_status") == "ok" };
    eventually("it could save", saved).await;
    guard.release().await.unwrap();
    locks.lock("report").acquire().await.unwrap().release().await.unwrap();
}

/// A port that speaks TLS, asked without, is told apart from a lock that is held, in time.
#[tokio::test]
async fn a_port_with_tls_asked_without_is_an_error_in_time() {
    if RedisServer::skipped() {
        return;
    }
    let server = RedisSetup::new().tls(&Certificates::make()).start().await;
    let url = format!("redis://{}?timeout_ms=500", server.address());
    let (opened, took) = timed(async { Locks::open(&url) }).await;
    let error = opened.unwrap_err();
    assert!(error.is_unavailable() || error.is_refused(), "{error:?}");
    says(&error, &[&server.address()]);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// A server that is away is reported after a bounded number of attempts, and used again when it is
/// back.
#[tokio::test]
async fn a_server_that_is_away_is_reported_and_used_again() {
    let Some(mut scene) = Scene::new().await else { return };
    let locks = scene.locks();
    locks.lock("report").acquire().await.unwrap().release().await.unwrap();
    scene.server.kill();
    let before = scene.proxy.count();
    let (answer, took) = timed(locks.lock("report").wait_forever().acquire()).await;
    let error = answer.unwrap_err();
    assert!(error.is_unavailable() && !error.is_held(), "{error:?}");
    says(&error, &[&scene.proxy.address()]);
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert!(scene.proxy.count() - before <= 20, "{} attempts", scene.proxy.count() - before);
    scene.server.restart().await;
    let again = || async { locks.lock("report").try_acquire().await.is_ok_and(|it| it.is_some()) };
    eventually("it is used again", again).await;
}

/// FAULTS 7, F36: nothing comes through and nobody is told: the holder knows in time, and who asks
/// is told in time.
#[tokio::test]
async fn in_a_hole_everybody_knows_in_time() {
    let Some(scene) = Scene::new().await else { return };
    let (locks, other) = (scene.locks(), scene.direct());
    let guard = locks.lock("report").ttl(super::SHORT).acquire().await.unwrap();
    scene.proxy.lose_everything();
    let (answer, took) = timed(locks.lock("other").try_acquire()).await;
    let error = answer.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert!(took < 12 * TIMEOUT, "{took:?}");
    within("told", guard.lost()).await;
    assert!(!guard.is_valid());
    let after = within("free for others", other.lock("report").acquire()).await.unwrap();
    assert!(after.fence() > guard.fence());
    scene.proxy.heal();
    let again = || async { locks.lock("other").try_acquire().await.is_ok_and(|it| it.is_some()) };
    eventually("it is used again", again).await;
}
