//! A planned failover of a healthy set behind Sentinel (F27 of `docs/faults.md`): the old master lives, and
//! for a while both believe to be the master. Nobody gets a lock that another one holds.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sprag::{LockGuard, Locks, Released};
use sprag_testkit::redis_server::{RedisSentinels, RedisServer};
use sprag_testkit::support::{LONG, eventually, within};

/// A set in which the old master is left alone for longer than a test takes.
async fn set_with_two_masters_for_a_while(replicas: usize) -> RedisSentinels {
    let mut set = RedisSentinels::start(replicas).await;
    for sentinel in set.sentinels() {
        // It is told to follow after four of these.
        let slower = ["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "30000"];
        assert_eq!(sentinel.ask(&slower), "OK");
    }
    set
}

/// A new client, which asks the sentinels and so uses the new master.
fn newcomer(set: &RedisSentinels) -> Locks {
    // A replica that is younger than a second or two counts as restarted.
    Locks::open(&format!("{}?restart_quarantine=never", set.url())).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_failover_makes_no_second_holder() {
    if RedisServer::skipped() {
        return;
    }
    let mut set = set_with_two_masters_for_a_while(1).await;
    let locks = newcomer(&set);
    let mut kept = locks.lock("kept").ttl(LONG).no_renewal().acquire().await.unwrap();
    let old = set.master().port();
    // Locks are taken all the time.
    let enough = Arc::new(AtomicBool::new(false));
    let taking = {
        let (locks, enough) = (locks.clone(), Arc::clone(&enough));
        tokio::spawn(async move {
            let mut held: Vec<(String, LockGuard)> = Vec::new();
            for number in 0.. {
                if enough.load(Ordering::Relaxed) {
                    break;
                }
                let name = format!("job-{number}");
                let taken = locks.lock(&name).ttl(LONG).no_renewal().try_acquire().await;
                // Some of them are not, while there is no master.
                held.extend(taken.ok().flatten().map(|guard| (name, guard)));
            }
            held
        })
    };
    let answer = set.sentinels()[0].ask(&["SENTINEL", "FAILOVER", "mymaster"]);
    assert_eq!(answer, "OK");
    set.until_elected(old).await;
    let other = newcomer(&set);
    let theirs = other.lock("fought for").ttl(LONG).acquire().await.unwrap();
    let is_alone = set.servers().iter().filter(|server| server.says("role", "master")).count() == 2;
    assert!(is_alone, "the old master has stepped down already: nothing is shown");

    // Who was there before does not go on with the old one: to take, to renew and to give back.
    let tried = locks.lock("fought for").ttl(LONG).try_acquire().await;
    assert!(!matches!(tried, Ok(Some(_))), "two holders");
    within("extended", async { while kept.extend(2 * LONG).await.is_err() {} }).await;
    let view = other.inspect("kept").await.unwrap();
    assert_eq!(view.holders[0].lease, kept.lease());
    assert!(view.holders[0].remaining.unwrap() >= kept.time_remaining(), "renewed elsewhere");
    let fence = kept.fence();
    assert_eq!(kept.release().await.unwrap(), Released::Freed);
    let next = other.lock("kept").ttl(LONG).try_acquire().await.unwrap().expect("it is free");
    assert!(next.fence() > fence, "the fence went back");

    enough.store(true, Ordering::Relaxed);
    let held = within("the taking ends", taking).await.unwrap();
    assert!(!held.is_empty(), "none was taken");
    for (name, guard) in &held {
        let second = other.lock(name).ttl(LONG).try_acquire().await.unwrap();
        assert!(!guard.is_valid() || second.is_none(), "two hold {name}");
    }
    theirs.release().await.unwrap();
}

/// Where there is no replica left, nobody has to confirm anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_without_replicas_is_used() {
    if RedisServer::skipped() {
        return;
    }
    let mut set = RedisSentinels::start(1).await;
    let locks = newcomer(&set);
    let findings = locks.store().diagnose().await.unwrap();
    assert!(findings.iter().any(|it| it.text.contains("1 confirm each lock")), "{findings:?}");
    locks.lock("job").ttl(LONG).acquire().await.unwrap().release().await.unwrap();
    set.fail_over().await;
    let taken = || async { locks.lock("job").try_acquire().await.is_ok_and(|it| it.is_some()) };
    eventually("the lonely master is used", taken).await;
}
