//! A crowd that waits on Redis is quiet: two connections and one channel per process, one channel for all,
//! and hardly any requests.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use sprag::Locks;
use sprag_testkit::redis_server::RedisServer;
use sprag_testkit::support::{LONG, eventually, let_time_pass, now, within};

const CROWD: usize = 50;

/// How often a command was called since the last reset.
fn calls(server: &RedisServer, command: &str) -> usize {
    let (stats, line) =
        (server.ask(&["INFO", "commandstats"]), format!("cmdstat_{command}:calls="));
    let found = stats.lines().find_map(|stat| stat.strip_prefix(&line));
    found.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// How many connections there are beside the one that asks.
fn connections(server: &RedisServer) -> usize {
    server.ask(&["CLIENT", "LIST"]).lines().count() - 1
}

/// How many channels somebody listens to.
fn channels(server: &RedisServer) -> usize {
    server.ask(&["PUBSUB", "CHANNELS"]).lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_waiters_is_quiet_and_one_of_them_is_woken() {
    if RedisServer::skipped() {
        return;
    }
    let server = RedisServer::start(&[]).await;
    let (holder, locks) =
        (Locks::open(&server.url()).unwrap(), Locks::open(&server.url()).unwrap());
    let guard = holder.lock("job").ttl(LONG).acquire().await.unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..CROWD {
        let (asked, tell) = (locks.lock("job").ttl(LONG).own_party().acquire(), tell.clone());
        tokio::spawn(async move { tell.send(asked.await.unwrap()).unwrap() });
    }
    let wait = || async { holder.inspect("job").await.unwrap().waiters.len() == CROWD };
    eventually("all wait", wait).await;
    // Two of each process: whoever has held a lock for a second hears if it is taken away.
    eventually("the holder listens, too", || async { channels(&server) == 3 }).await;
    assert_eq!(connections(&server), 4);

    server.ask(&["CONFIG", "RESETSTAT"]);
    let began = now();
    let_time_pass(Duration::from_secs(2)).await;
    // Three of them look four times a second or a little more often, the others every few seconds.
    let looked = calls(&server, "evalsha");
    let seconds = usize::try_from(now().since(began).as_secs()).unwrap() + 1;
    assert!(looked <= seconds * CROWD, "{looked} requests of a crowd that waits, in {seconds} s");
    assert_eq!(calls(&server, "publish"), 0);

    server.ask(&["CONFIG", "RESETSTAT"]);
    guard.release().await.unwrap();
    let next = within("handed over", told.recv()).await.unwrap();
    assert_eq!(calls(&server, "publish"), 1, "another process is told once");
    let asked = calls(&server, "evalsha");
    assert!(asked <= CROWD / 2, "{asked} requests for one hand-over");
    // Within one process the answer to the release tells it.
    next.release().await.unwrap();
    drop(within("handed over", told.recv()).await.unwrap());
    assert_eq!(calls(&server, "publish"), 1);
    assert_eq!(connections(&server), 4);
    assert_eq!(channels(&server), 3);
}
