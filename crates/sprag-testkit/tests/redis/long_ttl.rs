//! One long TTL that was given back at once does not disable locks later (F34 of `docs/faults.md`), and
//! a name that was used once is not kept for long.

use std::time::Duration;

use sprag::clock::{BootClock, Clock as _};
use sprag::{Error, Locks};
use sprag_testkit::redis_server::{RedisServer, RedisSetup};
use sprag_testkit::support::eventually;

const MONTHS: Duration = Duration::from_secs(300 * 24 * 3600);
/// No quarantine is longer, unless that is configured.
const MOST: u64 = 15 * 60;

/// For how many more seconds nothing is granted.
fn closed_for(error: &Error) -> Option<u64> {
    let text = error.to_string();
    let (_, left) = text.split_once("for another ")?;
    left.split(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quarantine_ends_in_minutes_or_by_command() {
    if RedisServer::skipped() {
        return;
    }
    let mut server = RedisSetup::new().tcp().start().await;
    let locks = Locks::open(&server.url()).unwrap();
    locks.lock("job").ttl(MONTHS).acquire().await.unwrap().release().await.unwrap();
    let noted = || async { !server.ask(&["ZSCORE", "{sprag:}:longest", "ms"]).is_empty() };
    eventually("it is noted", noted).await;
    server.restart_empty().await;
    let closed = || async {
        match locks.lock("job").try_acquire().await {
            Err(error) => closed_for(&error).is_some_and(|left| {
                assert!(left <= MOST, "nothing is granted for {left} s");
                assert!(error.to_string().contains("SET '{sprag:}:open' yes EX 60"), "{error}");
                true
            }),
            Ok(granted) => panic!("{granted:?}"),
        }
    };
    eventually("it is closed", closed).await;
    let findings = locks.store().diagnose().await.unwrap();
    assert!(findings.iter().any(|it| it.text.contains("quarantine")), "{findings:?}");
    assert_eq!(server.ask(&["SET", "{sprag:}:open", "yes", "EX", "60"]), "OK");
    let open = || async { locks.lock("job").try_acquire().await.is_ok_and(|it| it.is_some()) };
    eventually("it is open", open).await;
}

/// For how many milliseconds a node rests.
fn rest_of(node: &RedisServer) -> Option<u128> {
    let until: u128 = node.ask(&["HGET", "{sprag:}:node", "rest"]).parse().ok()?;
    let now = Duration::from_micros(BootClock.unix_micros());
    until.checked_sub(now.as_millis())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_rests_for_the_leases_that_are_not_over() {
    if RedisServer::skipped() {
        return;
    }
    let nodes = RedisServer::several(3, &RedisSetup::new().tcp()).await;
    let addresses: Vec<_> = nodes.iter().map(RedisServer::address).collect();
    let url = format!("redlock://{}?node_timeout_ms=300", addresses.join(","));
    let locks = Locks::open(&url).unwrap();
    let all_vote = async |locks: &Locks| {
        let findings = locks.store().diagnose().await.unwrap();
        findings.iter().any(|finding| finding.text.contains("all 3 vote"))
    };
    let rests = async |node: &RedisServer| {
        node.ask(&["FLUSHALL"]);
        // Whoever asks lets it in.
        let in_again = || async {
            drop(locks.lock("other").try_acquire().await);
            rest_of(node).is_some()
        };
        eventually("it is let in", in_again).await;
        let rest = Duration::from_millis(u64::try_from(rest_of(node).unwrap()).unwrap());
        // By hand: whoever does so knows better.
        assert_eq!(node.ask(&["HDEL", "{sprag:}:node", "rest"]), "1");
        assert!(all_vote(&locks).await, "the command did not end it");
        rest
    };
    // Given back in the long way and in the short one, and not granted at all.
    for _ in 0..3 {
        locks.lock("job").ttl(MONTHS).acquire().await.unwrap().release().await.unwrap();
    }
    let guard = locks.lock("job").acquire().await.unwrap();
    assert!(locks.lock("job").ttl(MONTHS).own_party().try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let rest = rests(&nodes[0]).await;
    assert!(rest <= Duration::from_secs(MOST), "it rests for {rest:?}");

    let guard = locks.lock("job").ttl(MONTHS).acquire().await.unwrap();
    let rest = rests(&nodes[1]).await;
    assert!(rest > MONTHS - Duration::from_secs(3600), "a lease is forgotten after {rest:?}");
    guard.release().await.unwrap();
    let rest = rests(&nodes[2]).await;
    assert!(rest <= Duration::from_secs(MOST), "it rests for {rest:?}");
}

/// What is left of a name that was used once: not for days.
#[tokio::test]
async fn a_name_that_was_used_once_is_forgotten_within_hours() {
    if RedisServer::skipped() {
        return;
    }
    let server = RedisServer::start(&[]).await;
    let locks = Locks::open(&server.url()).unwrap();
    locks.lock("once").acquire().await.unwrap().release().await.unwrap();
    let keys = server.ask(&["KEYS", "*once*"]);
    assert!(keys.contains("{sprag:once}:r"), "{keys}");
    for key in keys.lines() {
        let left: i64 = server.ask(&["TTL", key]).parse().unwrap();
        // Two hours from the end of its lease.
        assert!((1..=2 * 3600 + 60).contains(&left), "{key} is kept for {left} s");
    }
}
