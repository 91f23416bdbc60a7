//! What can happen to a PostgreSQL server itself: it crashes, its disk or its table of locks is full,
//! its clock jumps. Each test names its scenario of `docs/faults.md`.

use std::process::Command;
use std::time::Duration;

use sprag::store::{Bind, Renewal, Request};
use sprag::{ErrorKind, Locks, Loss, Mode};
use sprag_testkit::postgres_server::{PostgresServer, skipped};
use sprag_testkit::redis_server::ShiftedClock;
use sprag_testkit::small_disk::SmallDisk;
use sprag_testkit::support::{
    LONG, let_time_pass, look, name, now, request, until_waiters, within,
};

const NAME: &str = "report";
const TTL: Duration = Duration::from_secs(3);

/// F37: what was granted or renewed is on the disk, although the DBA has set for everybody that
/// nothing is waited for. The server is killed right after its answer.
#[tokio::test]
async fn grants_and_renewals_are_on_the_disk_whatever_is_set() {
    if skipped() {
        return;
    }
    let off = ["-c", "synchronous_commit=off", "-c", "wal_writer_delay=10s"];
    let mut server = PostgresServer::start(&off).await;
    for whom in ["DATABASE postgres", "ROLE postgres"] {
        server.sql("postgres", &format!("ALTER {whom} SET synchronous_commit = off"));
    }
    server.sql("postgres", "CREATE TABLE witness (what text)");
    let url = server.url("postgres");
    let mut last = None;
    for what in ["exclusive", "shared", "handed over", "renewed"] {
        let store = sprag::open(&url).unwrap();
        server.stop_writer();
        let first = Request {
            mode: if what == "shared" { Mode::Shared } else { Mode::Exclusive },
            ..request(NAME)
        };
        let mut holder = first.lease;
        let granted = async |asked| store.try_acquire(&asked).await.unwrap();
        granted(first.clone()).await;
        if what == "handed over" {
            let second = Request { queue: true, ..request(NAME) };
            holder = second.lease;
            granted(second).await;
            store.release(&first.name, first.lease).await.unwrap();
        } else if what == "renewed" {
            let (lease, ttl) = (first.lease, 10 * LONG);
            let renewal = Renewal { name: name(NAME), lease, ttl, bind: Bind::Keep };
            store.renew(&[renewal]).await.unwrap();
        }
        server.sql("postgres", &format!("INSERT INTO witness VALUES ('{what}')"));
        server.murder().await;
        server.start_again().await;
        let forgotten = server.sql("postgres", "SELECT count(*) FROM witness");
        assert_eq!(forgotten, "0", "{what}: nothing was forgotten: a weak test");
        let others = sprag::open(&url).unwrap();
        let view = look(&others, NAME).await;
        assert_eq!(view.holders.iter().map(|it| it.lease).collect::<Vec<_>>(), [holder], "{what}");
        assert!(view.holders[0].ttl == if what == "renewed" { 10 * LONG } else { first.ttl });
        // Readers have the fence of the last writer.
        let grown = Some(view.fence) > last || (what == "shared" && Some(view.fence) == last);
        assert!(grown, "{what}: the fence went back");
        last = Some(view.fence);
        others.release(&first.name, holder).await.unwrap();
    }
    let next = Locks::open(&url).unwrap().lock(NAME).acquire().await.unwrap();
    assert!(Some(next.fence()) > last);
}

/// F68: the disk with the tables is full: told as that, what is held stays held, and it passes.
#[tokio::test]
async fn a_full_disk_of_the_server_is_told_and_passes() {
    if skipped() {
        return;
    }
    let server = PostgresServer::start(&["-c", "fsync=off"]).await;
    let Some(disk) = SmallDisk::mount(server.folder().join("small"), "24m") else { return };
    let owner = server.folder().join("data");
    let mut give = Command::new("chown");
    assert!(give.arg("--reference").arg(&owner).arg(disk.path()).status().unwrap().success());
    server
        .sql("postgres", &format!("CREATE TABLESPACE small LOCATION '{}'", disk.path().display()));
    server.sql("postgres", "CREATE DATABASE small TABLESPACE small");
    let locks = Locks::open(&server.url("small")).unwrap();
    let held = locks.lock("held").ttl(TTL).acquire().await.unwrap();
    let fill = disk.path().join("fill");
    // It fails when the disk is full.
    let mut filling = Command::new("dd");
    filling.arg("if=/dev/zero").arg(format!("of={}", fill.display())).arg("bs=4096");
    assert!(!filling.output().unwrap().status.success());
    let mut error = None;
    for number in 0..5_000 {
        let asked = locks.lock(format!("job/{number}")).ttl(LONG).try_acquire().await;
        if let Err(told) = asked {
            error = Some(told);
            break;
        }
    }
    let error = error.expect("the disk is never full");
    assert_eq!(error.kind(), &ErrorKind::StoreFull, "{error:?}");
    assert!(held.is_valid());
    std::fs::remove_file(&fill).unwrap();
    let end = now().plus(2 * TTL);
    let renewed = || async { held.valid_until() > end };
    sprag_testkit::support::eventually("it is renewed", renewed).await;
    within("it passes", locks.lock("job").acquire()).await.unwrap().release().await.unwrap();
}

/// F39: the server's table of locks is full, because others fill it too: told as that; what is held
/// stays held, and nothing is left of what failed.
#[tokio::test]
async fn a_full_table_of_locks_is_told_and_passes() {
    if skipped() {
        return;
    }
    let few = ["-c", "max_connections=12", "-c", "max_locks_per_transaction=10", "-c", "fsync=off"];
    let server = PostgresServer::start(&few).await;
    let url = format!("{}?mode=advisory&max_locks=1000000", server.url("postgres"));
    let locks = Locks::open(&url).unwrap();
    let mut held = Vec::new();
    let error = loop {
        match locks.lock(format!("job/{}", held.len())).ttl(LONG).try_acquire().await {
            Ok(guard) => held.push(guard.unwrap()),
            Err(error) => break error,
        }
        assert!(held.len() < 20_000, "the table is never full");
    };
    assert_eq!(error.kind(), &ErrorKind::StoreFull, "{error:?}");
    assert!(error.to_string().contains("max_locks_per_transaction"), "{error}");
    // The session is asked for a sign of life meanwhile.
    let_time_pass(TTL / 2).await;
    assert!(held.iter().all(|guard| guard.is_valid()), "some are lost");
    for guard in held.drain(..held.len() / 2) {
        // A release needs room too, for the row it writes; the client then asks again by itself.
        if let Err(error) = guard.release().await {
            assert_eq!(error.kind(), &ErrorKind::StoreFull, "{error:?}");
        }
    }
    // Only now there is room for another session.
    let has = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1";
    let left = held.len().to_string();
    sprag_testkit::support::eventually("half are given back", || async {
        server.sql("postgres", has) == left
    })
    .await;
    locks.lock("another").acquire().await.unwrap().release().await.unwrap();
}

/// The clock of the server jumps ahead: the lease ends early, its holder is told, the fence grows.
#[tokio::test]
async fn a_clock_that_jumps_ahead_ends_a_lease_and_the_fence_grows() {
    if skipped() {
        return;
    }
    let clock = ShiftedClock::make();
    let server = PostgresServer::start_with_clock(&clock).await;
    let url = server.url("postgres");
    let (locks, others) = (Locks::open(&url).unwrap(), Locks::open(&url).unwrap());
    let before = locks.lock(NAME).ttl(TTL).acquire().await.unwrap();
    let queued = tokio::spawn(others.lock(NAME).ttl(LONG).acquire());
    until_waiters(locks.store(), NAME, 1).await;
    clock.ahead(Duration::from_secs(3600));
    assert_ne!(within("told", before.lost()).await, Loss::Released);
    assert!(now() < before.valid_until().plus(TTL), "told too late");
    // Whoever waited may have been taken for dead; then it is told, and asks again.
    let after = match within("an answer", queued).await.unwrap() {
        Ok(after) => after,
        Err(_) => within("granted", others.lock(NAME).ttl(LONG).acquire()).await.unwrap(),
    };
    assert!(after.fence() > before.fence(), "a fence went back");
}

/// It jumps back: the lock stays with its holder, the fence grows, and what is released is free.
#[tokio::test]
async fn a_clock_that_jumps_back_frees_no_lease_and_the_fence_grows() {
    if skipped() {
        return;
    }
    let clock = ShiftedClock::make();
    let server = PostgresServer::start_with_clock(&clock).await;
    for kind in ["lease", "advisory"] {
        let url = format!("{}?mode={kind}&namespace={kind}", server.url("postgres"));
        clock.ahead(Duration::ZERO);
        let (locks, others) = (Locks::open(&url).unwrap(), Locks::open(&url).unwrap());
        // Nobody gets an advisory lock in the first seconds after a start.
        let before = within("let in", locks.lock(NAME).ttl(TTL).acquire()).await.unwrap();
        clock.behind(Duration::from_secs(3600));
        let until = now().plus(2 * TTL);
        while now() < until {
            assert!(
                others.lock(NAME).try_acquire().await.unwrap().is_none(),
                "{kind}: two holders"
            );
            let_time_pass(TTL / 10).await;
        }
        assert!(before.is_valid(), "{kind}: its renewals came through: {:?}", before.state());
        let fence = before.fence();
        before.release().await.unwrap();
        let after = within("acquired", others.lock(NAME).acquire()).await.unwrap();
        assert!(after.fence() > fence, "{kind}: a fence went back");
        after.release().await.unwrap();
    }
}
