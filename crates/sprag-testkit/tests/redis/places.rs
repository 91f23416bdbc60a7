//! The Redis store over TLS, behind Sentinel, with replicas, and after a restart.

use std::time::Duration;

use sprag::{Error, Locks, Loss, Mode};
use sprag_testkit::redis_server::{
    Certificates, RedisSentinels, RedisServer, RedisSetup, ShiftedClock,
};
use sprag_testkit::support::{LONG, eventually, within};

fn refused(url: &str) -> Error {
    Locks::open(url).expect_err("opened")
}

async fn take_and_give_back(locks: &Locks) -> u64 {
    let guard = locks.lock("job").ttl(LONG).acquire().await.expect("it is free");
    let fence = guard.fence().get();
    guard.release().await.expect("the server answers");
    fence
}

#[tokio::test]
async fn a_secured_server_is_used_if_it_is_the_right_one() {
    if RedisServer::skipped() {
        return;
    }
    let certificates = Certificates::make();
    let server = RedisSetup::new().tls(&certificates).start().await;
    let trusting = format!("{}?tls_ca={}", server.url(), certificates.authority().display());
    take_and_give_back(&Locks::open(&trusting).unwrap()).await;

    let error = refused(&server.url());
    assert!(error.is_refused() && error.to_string().contains("certificate"), "{error}");
    let error = refused(&server.url().replace("rediss", "redis"));
    assert!(error.to_string().contains("rediss://"), "{error}");
    let plain = RedisSetup::new().tcp().start().await;
    let error = refused(&format!("{}?timeout_ms=300", plain.url().replace("redis", "rediss")));
    assert!(error.is_unavailable() && error.to_string().contains("redis://"), "{error}");
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_is_shown_one() {
    if RedisServer::skipped() {
        return;
    }
    let certificates = Certificates::make().mutual();
    let server = RedisSetup::new().tls(&certificates).start().await;
    let trusting = format!("{}?tls_ca={}", server.url(), certificates.authority().display());
    refused(&trusting);
    let (certificate, key) = certificates.client();
    let (certificate, key) = (certificate.display(), key.display());
    let shown = Locks::open(&format!("{trusting}&tls_cert={certificate}&tls_key={key}")).unwrap();
    take_and_give_back(&shown).await;
}

#[tokio::test]
async fn a_failover_is_followed_and_fences_grow() {
    if RedisServer::skipped() {
        return;
    }
    let mut set = RedisSentinels::start(1).await;
    // It tells its age in whole seconds, and has to be older than the last answer of its master.
    let replica = &set.servers()[1];
    let age = || async { replica.info("uptime_in_seconds").parse::<u32>().unwrap() };
    eventually("the replica is old enough", || async { age().await >= 3 }).await;
    let locks = Locks::open(&set.url()).unwrap();
    let before = take_and_give_back(&locks).await;
    let guard = locks.lock("held").ttl(Duration::from_secs(5)).acquire().await.unwrap();
    let fence = guard.fence().get();
    set.fail_over().await;
    let again = async { take_and_give_back(&locks).await };
    assert!(within("the new master is used", again).await > before);
    // Whether the replica had heard of it is not promised; that its fences are larger is.
    drop(guard);
    let again = async { locks.lock("held").ttl(LONG).acquire().await.unwrap() };
    assert!(within("it is free some day", again).await.fence().get() > fence);
}

#[tokio::test]
async fn a_master_that_became_a_replica_is_left() {
    if RedisServer::skipped() {
        return;
    }
    let mut set = RedisSentinels::start(1).await;
    // A replica that is younger than a second or two counts as restarted.
    let locks = Locks::open(&format!("{}?restart_quarantine=never", set.url())).unwrap();
    take_and_give_back(&locks).await;
    let old = set.master().port();
    // The old master stays up and is told to follow the new one.
    set.sentinels()[0].ask(&["SENTINEL", "FAILOVER", "mymaster"]);
    set.until_elected(old).await;
    let again = async { take_and_give_back(&locks).await };
    within("the new master is used", again).await;
}

#[tokio::test]
async fn sentinels_that_do_not_know_the_master_say_so() {
    if RedisServer::skipped() {
        return;
    }
    let set = RedisSentinels::start(1).await;
    let error = refused(&set.url().replace(set.name(), "nobody"));
    assert!(error.is_refused() && error.to_string().contains("nobody"), "{error}");
    let server = RedisSetup::new().tcp().start().await;
    let error = refused(&format!("redis+sentinel://127.0.0.1:{}/mymaster", server.port()));
    assert!(!error.is_unavailable(), "{error}");
}

#[tokio::test]
async fn a_lock_that_too_few_replicas_have_is_given_up() {
    if RedisServer::skipped() {
        return;
    }
    let master = RedisSetup::new().tcp().start().await;
    let replica = RedisSetup::new().tcp().replica_of(master.port()).start().await;
    replica.until_linked().await;
    let url = format!("{}?min_replicas=1&timeout_ms=800", master.url());
    let locks = Locks::open(&url).unwrap();
    let key = "sprag:job";
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    assert_eq!(replica.ask(&["GET", key]), guard.lease().to_string(), "it is not there yet");
    // Handed over, and confirmed as well.
    let waiting = tokio::spawn(locks.lock("job").ttl(LONG).own_party().acquire());
    let waits = || async { locks.inspect("job").await.unwrap().waiters.len() == 1 };
    eventually("it waits", waits).await;
    guard.release().await.unwrap();
    let guard = within("it is handed over", waiting).await.unwrap().unwrap();
    assert_eq!(replica.ask(&["GET", key]), guard.lease().to_string(), "it is not there yet");
    guard.release().await.unwrap();

    replica.stop().await;
    let error = locks.lock("job").ttl(LONG).try_acquire().await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("0 of the 1 replicas"), "{error}");
    let free = || async { master.ask(&["GET", key]).is_empty() };
    eventually("it is given up", free).await;
    replica.go_on();
    let comes_back = || async { locks.lock("job").ttl(LONG).try_acquire().await.is_ok() };
    eventually("the replica confirms again", comes_back).await;
}

#[tokio::test]
async fn what_too_few_replicas_have_heard_of_is_not_believed() {
    if RedisServer::skipped() {
        return;
    }
    let master = RedisSetup::new().tcp().start().await;
    let replica = RedisSetup::new().tcp().replica_of(master.port()).start().await;
    replica.until_linked().await;
    let url = format!("{}?min_replicas=1&timeout_ms=800", master.url());
    let locks = Locks::open(&url).unwrap();
    let mut guard = locks.lock("job").upgradable().ttl(LONG).acquire().await.unwrap();
    guard.extend(LONG).await.unwrap();
    replica.stop().await;
    let until = guard.valid_until();
    let error = guard.extend(2 * LONG).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("0 of the 1 replicas"), "{error}");
    assert!(guard.is_valid() && guard.valid_until() <= until, "it counts as renewed");
    let error = guard.try_upgrade().await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("0 of the 1 replicas"), "{error}");
    assert_eq!(guard.mode(), Mode::Upgradable);

    replica.go_on();
    let confirmed = async {
        while guard.extend(2 * LONG).await.is_err() {}
        while !guard.try_upgrade().await.unwrap_or(false) {}
    };
    within("the replica confirms again", confirmed).await;
    assert!(guard.valid_until() > until);
    assert_eq!(guard.mode(), Mode::Exclusive);
}

#[tokio::test]
async fn after_a_restart_that_forgot_the_locks_none_is_granted_for_the_longest_ttl() {
    if RedisServer::skipped() {
        return;
    }
    let mut server = RedisSetup::new().tcp().start().await;
    let url = format!("{}?longest_ttl_ms=1", server.url());
    let locks = Locks::open(&url).unwrap();
    let guard = locks.lock("job").ttl(Duration::from_secs(3)).acquire().await.unwrap();
    let fence = guard.fence().get();
    server.restart_empty().await;
    // Its holder may still believe in it.
    let refused = || async {
        let tried = locks.lock("job").ttl(Duration::from_secs(3)).own_party().try_acquire().await;
        assert!(!matches!(&tried, Ok(Some(_))), "granted at once");
        tried.is_err_and(|error| error.is_busy() && error.to_string().contains("restarted"))
    };
    eventually("it is refused", refused).await;
    let finding = locks.store().diagnose().await.unwrap();
    assert!(finding.iter().any(|it| it.text.contains("quarantine")), "{finding:?}");
    assert!(matches!(guard.lost().await, Loss::StateLost | Loss::Expired | Loss::Unreachable));
    let next = locks.lock("job").ttl(Duration::from_secs(3)).own_party().acquire();
    let next = within("it is granted in the end", next).await.unwrap();
    assert!(next.fence().get() > fence);
    assert!(server.info("uptime_in_seconds").parse::<u64>().unwrap() >= 2);
    // Who meets this server for the first time is not held up, unless it wants to be.
    take_and_give_back(&Locks::open(&format!("{}?prefix=other:", server.url())).unwrap()).await;
    let cautious = format!("{}?restart_quarantine=always&longest_ttl_ms=600000", server.url());
    let error = Locks::open(&cautious).unwrap().lock("x").try_acquire().await.unwrap_err();
    assert!(error.is_busy(), "{error}");
}

#[tokio::test]
async fn a_jump_of_the_servers_clock_is_told() {
    if RedisServer::skipped() {
        return;
    }
    let clock = ShiftedClock::make();
    let server = RedisSetup::new().clock(&clock).start().await;
    let locks = Locks::open(&server.url()).unwrap();
    let before = take_and_give_back(&locks).await;
    let told = async || {
        let findings = locks.store().diagnose().await.unwrap();
        findings.iter().find(|it| it.text.contains("jumped by")).map(|it| it.text.clone())
    };
    assert_eq!(told().await, None);
    clock.ahead(Duration::from_secs(120));
    let ahead = take_and_give_back(&locks).await;
    assert!(ahead >= before + 119_000_000, "the fence is not of the server's time");
    assert!(told().await.unwrap().contains("jumped by 1"));
    clock.behind(Duration::from_secs(3600));
    assert!(take_and_give_back(&locks).await > ahead, "the fence went back");
    assert!(told().await.unwrap().contains("jumped by -3"));
}

/// Renewing is all that this client does.
#[tokio::test]
async fn a_holder_notices_a_jump_of_the_servers_clock() {
    if RedisServer::skipped() {
        return;
    }
    let clock = ShiftedClock::make();
    let server = RedisSetup::new().clock(&clock).start().await;
    let locks = Locks::open(&server.url()).unwrap();
    let guard = locks.lock("job").ttl(Duration::from_secs(3)).acquire().await.unwrap();
    clock.behind(Duration::from_secs(3600));
    let told = || async {
        let findings = locks.store().diagnose().await.unwrap();
        findings.iter().any(|it| it.text.contains("jumped by -3"))
    };
    eventually("the jump is told", told).await;
    assert!(guard.is_valid());
}
