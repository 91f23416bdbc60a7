//! Real processes behind networks of their own that are clogged, and a server that is halted.

use std::time::Duration;

use sprag_testkit::history::{Recorder, Rules};
use sprag_testkit::process::{Churn, TakerConfig};
use sprag_testkit::proxy::{Direction, Flow, Proxy};
use sprag_testkit::support::{LONG, let_time_pass, now, spawn_acquire, until_waiters, within};
use sprag_testkit::torture::settle;

use super::{SHORT, Scene};

const TAKER: &str = env!("CARGO_BIN_EXE_sprag-taker");

/// F60, FAULTS 7: the server is halted for longer than the lease: its holder knows before the
/// server goes on, and one of those who wait gets the lock then.
#[tokio::test]
async fn a_server_halted_past_the_lease_costs_the_lock() {
    let Some(scene) = Scene::new().await else { return };
    let (locks, other) = (scene.locks(), scene.direct());
    let guard = locks.lock("report").ttl(SHORT).acquire().await.unwrap();
    let waiting = spawn_acquire(other.lock("report").ttl(LONG));
    until_waiters(&scene.store, "report", 1).await;
    scene.server.stop().await;
    within("told", guard.lost()).await;
    assert!(!guard.is_valid() && now() < guard.valid_until().plus(SHORT));
    scene.server.go_on();
    let after = match within("an answer", waiting).await.unwrap() {
        Ok(after) => after,
        // It may have been told that nobody answers, and asks again.
        Err(_) => within("granted", other.lock("report").ttl(LONG).acquire()).await.unwrap(),
    };
    assert!(after.fence() > guard.fence());
}

/// F61: five processes fight over two locks, each through a network of its own. The networks are
/// clogged one by one, in one direction or both, frozen, lost or reset, and unclogged in another
/// order. Nobody ever believes in a lock that another one has, no update is lost, and when it is
/// over everybody is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn networks_clogged_in_any_order_break_no_rule() {
    const PROCESSES: usize = 5;
    let Some(scene) = Scene::new().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let history = folder.path().join("history.jsonl");
    let plan = |seed| Churn {
        locks: 2,
        folder: folder.path().to_owned(),
        ttl: SHORT,
        checked: true,
        seed,
    };
    let proxies: Vec<_> = (0..PROCESSES).map(|_| Proxy::start(scene.server.address())).collect();
    let mut takers = Vec::new();
    for (number, proxy) in proxies.iter().enumerate() {
        let url = format!("redis://{}?timeout_ms=300", proxy.address());
        let config = TakerConfig::new(TAKER, &url).history(&history);
        let config = config.name(format!("p{number}")).churn(plan(number as u64));
        takers.push(config.spawn().await);
    }
    for round in 0..3 {
        let mut order: Vec<_> = (0..PROCESSES).collect();
        fastrand::shuffle(&mut order);
        for index in &order {
            clog(&proxies[*index], index + round);
            let_time_pass(SHORT / 6).await;
        }
        fastrand::shuffle(&mut order);
        for index in order {
            proxies[index].heal();
            let_time_pass(SHORT / 6).await;
        }
    }
    let healed_at_ns = Some(Recorder::now_ns());
    let_time_pass(SHORT * 2).await;
    let mut grants = 0;
    for taker in &mut takers {
        taker.close();
        taker.ended().await;
        grants += taker.last_words().await.expect("it ends in order").grants;
    }
    let rules = Rules {
        fifo: false,
        healed_at_ns,
        grant_within: Duration::from_secs(10),
        lost_slack: None,
        ..Rules::default()
    };
    let judgement = settle(&scene.store, &plan(0), &history, &rules).await;
    assert!(judgement.found.is_empty(), "{}", judgement.found.join("\n"));
    assert!(grants > 100, "only {grants} grants");
}

/// One way or another, nothing comes through.
fn clog(proxy: &Proxy, kind: usize) {
    match kind % 5 {
        0 => proxy.freeze(),
        1 => proxy.set(Direction::Reply, Flow::Hole),
        2 => proxy.set(Direction::Request, Flow::Frozen),
        3 => {
            proxy.refuse(true);
            proxy.reset_all();
        }
        _ => proxy.lose_everything(),
    }
}
