//! A Redis Cluster whose slots move and whose masters die, and a failover that forgets a lock.

use std::time::Duration;

use sprag::Locks;
use sprag::store::Attempt;
use sprag_testkit::proxy::Proxy;
use sprag_testkit::redis_server::{RedisCluster, RedisServer, RedisSetup, ShiftedClock};
use sprag_testkit::support::{LONG, eventually, request, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_takes_its_locks_along() {
    if RedisServer::skipped() {
        return;
    }
    let cluster = RedisCluster::start().await;
    let locks = Locks::open(&cluster.url()).unwrap();
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("job").ttl(LONG).own_party().acquire());
    let waits = || async { locks.inspect("job").await.unwrap().waiters.len() == 1 };
    eventually("it waits", waits).await;

    let slot = cluster.slot("sprag:job");
    let from = cluster.owner(slot).unwrap();
    let to = (from + 1) % 3;
    cluster.begin_move(slot, to);
    // Nobody gets in between, wherever the keys are.
    for moved in [false, true] {
        if moved {
            cluster.move_keys(slot, to);
        }
        let tried = locks.lock("job").own_party().try_acquire().await;
        assert!(!matches!(tried, Ok(Some(_))), "granted to two");
    }
    let releasing = tokio::spawn(guard.release());
    cluster.end_move(slot, to);
    within("it is released", releasing).await.unwrap().unwrap();
    let next = within("it is handed over", waiting).await.unwrap().unwrap();
    assert!(next.is_valid());
    assert_eq!(cluster.owner(slot), Some(to));
    next.release().await.unwrap();
    locks.lock("job").ttl(LONG).acquire().await.unwrap().release().await.unwrap();
}

/// A request that is sent on to a node with another time of day is limited by that one's clock: it
/// is done at once, neither refused as late nor good for an hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_sent_on_is_limited_by_the_clock_of_who_does_it() {
    if RedisServer::skipped() {
        return;
    }
    let clock = ShiftedClock::make();
    clock.ahead(Duration::from_secs(3600));
    let cluster = RedisCluster::start_with_clock(0, &clock).await;
    let (store, request) = (sprag::open(&cluster.url()).unwrap(), request("job"));
    let slot = cluster.slot("sprag:job");
    assert_ne!(cluster.owner(slot), Some(0), "it lives by the other clock already");
    // From now on the store believes to know where the slot is.
    assert!(!store.inspect(&request.name).await.unwrap().is_locked());
    cluster.begin_move(slot, 0);
    cluster.move_keys(slot, 0);
    cluster.end_move(slot, 0);
    let granted = store.try_acquire(&request).await.expect("sent on, and not late");
    assert!(matches!(granted, Attempt::Granted(_)), "{granted:?}");
}

/// F32: while some of a lock's keys are on one node and some on the other, neither can say anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_keys_are_apart_is_granted_to_nobody() {
    if RedisServer::skipped() {
        return;
    }
    let cluster = RedisCluster::start().await;
    let locks = Locks::open(&cluster.url()).unwrap();
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    let slot = cluster.slot("sprag:job");
    let to = (cluster.owner(slot).unwrap() + 1) % 3;
    cluster.begin_move(slot, to);
    for moved in ["sprag:job", "{sprag:job}:t"] {
        cluster.move_key(moved, to);
        let error = locks.lock("job").own_party().try_acquire().await.expect_err("granted");
        assert!(error.is_busy() && error.to_string().contains("moving"), "{error}");
        let waited = locks.lock("job").own_party().wait(Duration::from_millis(500)).acquire().await;
        assert!(waited.is_err(), "granted to two");
    }
    assert!(guard.is_valid());
    cluster.move_keys(slot, to);
    cluster.end_move(slot, to);
    let released = async { guard.release().await };
    within("it is released", released).await.unwrap();
    let next = locks.lock("job").ttl(LONG).acquire();
    within("it is free", next).await.unwrap().release().await.unwrap();
}

/// A master that hangs takes its own locks along, and none of those on other masters.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_hangs_costs_no_lock_elsewhere() {
    if RedisServer::skipped() {
        return;
    }
    let mut cluster = RedisCluster::start().await;
    let locks = Locks::open(&cluster.url()).unwrap();
    let ttl = Duration::from_secs(3);
    let there = locks.lock("job").ttl(ttl).acquire().await.unwrap();
    let owner = cluster.owner(cluster.slot("sprag:job")).unwrap();
    let elsewhere =
        |name: &&String| cluster.owner(cluster.slot(&format!("sprag:{name}"))) != Some(owner);
    let names: Vec<_> = (0..20).map(|number| format!("other-{number}")).collect();
    let names: Vec<_> = names.iter().filter(elsewhere).cloned().collect();
    assert!(names.len() > 2, "{names:?}");
    let mut others = Vec::new();
    for name in names {
        others.push(locks.lock(name).ttl(ttl).acquire().await.unwrap());
    }
    cluster.nodes()[owner].stop().await;
    let until = there.valid_until().plus(ttl);
    let all = || async { others.iter().all(|guard| guard.valid_until() > until) };
    eventually("the others are renewed", all).await;
    assert!(others.iter().all(|guard| guard.is_valid()), "lost with a master they are not on");
    cluster.nodes()[owner].go_on();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_dies_is_followed_by_its_replica() {
    if RedisServer::skipped() {
        return;
    }
    let mut cluster = RedisCluster::start().await;
    let locks = Locks::open(&format!("{}?timeout_ms=500", cluster.url())).unwrap();
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("job").ttl(LONG).own_party().acquire());
    let waits = || async { locks.inspect("job").await.unwrap().waiters.len() == 1 };
    eventually("it waits", waits).await;
    let slot = cluster.slot("sprag:job");
    let owner = cluster.owner(slot).unwrap();
    // What the replica has not heard of yet it would forget.
    let replica = &cluster.nodes()[owner + 3];
    let key = guard.lease().to_string();
    let repeated = || async {
        let mut talk = replica.talk();
        talk.ask(&["READONLY"]).unwrap();
        talk.ask(&["GET", "sprag:job"]).unwrap() == key
    };
    eventually("the replica has it", repeated).await;
    cluster.nodes()[owner].kill();
    cluster.until_moved(slot, owner).await;

    let fence = guard.fence();
    let released = async {
        // The request that finds the new master may be the second.
        while guard.is_valid() && locks.inspect("job").await.is_err() {
            tokio::task::yield_now().await;
        }
        guard.release().await
    };
    within("it is released", released).await.unwrap();
    let next = within("it is handed over", waiting).await.unwrap().unwrap();
    assert!(next.fence() > fence);
}

/// F32: also one that dies before it was ever asked for anything: who does not know it finds its replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_dies_before_it_is_met_is_followed_by_its_replica() {
    if RedisServer::skipped() {
        return;
    }
    let mut cluster = RedisCluster::start().await;
    let locks = Locks::open(&format!("{}?timeout_ms=500", cluster.url())).unwrap();
    let slot = |name: &str| cluster.slot(&format!("sprag:{name}"));
    // The last master, through which the Cluster was not found.
    let on = |master| {
        let mut names = (0..200).map(|number| format!("job-{number}"));
        names.find(|name| cluster.owner(slot(name)) == Some(master)).expect("there are enough")
    };
    let (known, unknown) = (on(0), on(2));
    let slot = slot(&unknown);
    locks.lock(known).ttl(LONG).acquire().await.unwrap().release().await.unwrap();
    cluster.nodes()[2].kill();
    assert!(locks.lock(&*unknown).ttl(LONG).try_acquire().await.is_err(), "it is dead");
    cluster.until_moved(slot, 2).await;
    let granted = || async { locks.lock(&*unknown).ttl(LONG).try_acquire().await.is_ok() };
    eventually("its replica is asked", granted).await;
}

/// F27: without `min_replicas` a failover may forget a lock, and then the fence tells who is who;
/// with it, such a lock is never granted.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_forgets_a_lock_still_tells_the_fences_apart() {
    if RedisServer::skipped() {
        return;
    }
    let mut master = RedisSetup::new().tcp().start().await;
    let between = Proxy::start(master.address());
    let port = between.address().rsplit(':').next().unwrap().parse().unwrap();
    let replica = RedisSetup::new().tcp().replica_of(port).start().await;
    replica.until_linked().await;
    between.freeze();

    let careless = Locks::open(&master.url()).unwrap();
    let forgotten = careless.lock("job").ttl(LONG).acquire().await.unwrap();
    let careful = Locks::open(&format!("{}?min_replicas=1&timeout_ms=400", master.url())).unwrap();
    let error = careful.lock("other").ttl(LONG).acquire().await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("replicas"), "{error}");

    master.kill();
    replica.ask(&["REPLICAOF", "NO", "ONE"]);
    let after = Locks::open(&replica.url()).unwrap();
    let second = after.lock("job").ttl(Duration::from_secs(5)).try_acquire().await.unwrap();
    let second = second.expect("the replica never heard of it");
    assert!(second.fence() > forgotten.fence());
}
