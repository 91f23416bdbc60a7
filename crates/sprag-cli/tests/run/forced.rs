//! A lock is taken by force, or broken: the old command is dead before the new one enters, or it is
//! told until when it may run.

use std::time::Duration;

use rustix::process::Signal;
use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::redis_server::RedisServer;

use crate::support::{Place, Run, block_on, now};

/// Ignores TERM and writes `A` as long as it lives.
const STUBBORN: &str = "trap '' TERM; echo $$ > pid; while :; do echo A >> log; sleep 0.01; done";
const NEXT: &str = "echo B >> log; sleep 0.2; echo B >> log";

fn old(place: &Place, store: &str, ttl: &[&str], script: &str) -> Run {
    let words = ["run", "-S", store, "--holder", "ann"];
    let run = place.start(&[&words[..], ttl, &["x", "--", "sh", "-c", script]].concat());
    place.wait_lines("pid", 1);
    run
}

fn never_together(place: &Place, store: &str) {
    let run = old(place, store, &["--ttl", "4500ms", "--kill-after", "1s"], STUBBORN);
    place.wait_lines("log", 2);
    let forced = place.end(&["run", "-S", store, "--force", "x", "--", "sh", "-c", NEXT]);
    assert_eq!(forced.code, 0, "{forced:?}");
    assert!(forced.err.contains("taken from ann by force; waiting until"), "{forced:?}");
    assert_eq!(run.end().code, 76);
    let log = place.read("log");
    let first = log.lines().position(|line| line == "B").unwrap();
    assert!(
        log.lines().skip(first).all(|line| line == "B"),
        "the old command wrote beside the new"
    );
}

#[test]
fn who_forces_enters_when_the_old_command_is_dead() {
    never_together(&Place::new(), "sqlite:");
}

#[test]
fn who_forces_on_redis_enters_when_the_old_command_is_dead() {
    if RedisServer::skipped() {
        return;
    }
    let (place, server) = (Place::new(), block_on(RedisServer::start(&[])));
    never_together(&place, &server.url());
}

/// The next renewal would be three minutes later.
fn told_at_once(place: &Place, store: &str) {
    let script = "echo $SPRAG_TOKEN > token; echo $$ > pid; exec sleep 1000";
    for forced in [true, false] {
        let run = old(place, store, &["--ttl", "10m"], script);
        let begun = now();
        if forced {
            let next = place.end(&["run", "-S", store, "--force", "x", "echo", "mine"]);
            assert_eq!((next.code, next.out.as_str()), (0, "mine\n"), "{next:?}");
        } else {
            let token = place.read("token").trim().to_owned();
            let words = ["break", "-S", store, "x", "--token", &token, "-m", "why", "--force"];
            let broken = place.end(&[&words[..], &["--yes"]].concat());
            assert!(broken.out.contains(": it is told now, and stopped"), "{broken:?}");
        }
        let ended = run.end();
        let took = now().since(begun);
        assert_eq!(ended.code, 76, "{ended:?}");
        assert!(took < Duration::from_secs(25), "it was told after {took:?}");
        std::fs::remove_file(place.path("pid")).unwrap();
    }
}

#[test]
fn an_old_holder_is_told_at_once_on_sqlite() {
    told_at_once(&Place::new(), "sqlite:");
}

#[test]
fn an_old_holder_is_told_at_once_on_redis() {
    if RedisServer::skipped() {
        return;
    }
    let (place, server) = (Place::new(), block_on(RedisServer::start(&[])));
    told_at_once(&place, &server.url());
}

#[test]
fn an_old_holder_is_told_at_once_in_postgres() {
    if skipped() {
        return;
    }
    let (place, database) = (Place::new(), Database::fresh());
    told_at_once(&place, &database.url());
}

/// Nobody says that the command is dead: the time after which it must be is waited for.
#[test]
fn an_old_holder_that_says_nothing_is_outlasted() {
    let place = Place::new();
    let run = old(&place, "sqlite:", &["--ttl", "3s", "--kill-after", "500ms"], STUBBORN);
    run.send(Signal::STOP);
    let forced = place.end(&["run", "--force", "x", "--", "sh", "-c", NEXT]);
    assert_eq!(forced.code, 0, "{forced:?}");
    let log = place.read("log");
    let first = log.lines().position(|line| line == "B").unwrap();
    assert!(
        log.lines().skip(first).all(|line| line == "B"),
        "the old command wrote beside the new"
    );
    run.send(Signal::CONT);
    assert_eq!(run.end().code, 76);
}

#[test]
fn force_now_enters_beside_the_old_command() {
    let place = Place::new();
    let run = old(&place, "sqlite:", &["--ttl", "60s"], STUBBORN);
    let pid = place.read("pid").trim().to_owned();
    let beside = format!("kill -0 {pid} && echo beside");
    let forced = place.end(&["run", "--force=now", "x", "--", "sh", "-c", &beside]);
    assert_eq!(forced.out, "beside\n", "{forced:?}");
    run.send(Signal::KILL);
}

#[test]
fn a_signal_ends_the_wait_of_who_forces() {
    let place = Place::new();
    let run = old(&place, "sqlite:", &["--ttl", "60s"], STUBBORN);
    let forced = place.start(&["run", "--holder", "bob", "--force", "x", "touch", "entered"]);
    crate::support::wait_for("the lock to be taken", || {
        place.look("x").holders.iter().any(|holder| holder.holder.worker_id == "bob")
    });
    forced.send(Signal::TERM);
    let ended = forced.end();
    assert_eq!(ended.code, 128 + 15, "{ended:?}");
    assert!(!place.path("entered").exists() && !place.look("x").is_locked());
    run.send(Signal::KILL);
}

#[test]
fn break_says_until_when_the_old_command_may_run() {
    let place = Place::new();
    let run = old(&place, "sqlite:", &["--ttl", "4500ms", "--kill-after", "1s"], STUBBORN);
    let token = place.look("x").fence.to_string();
    let words = ["break", "x", "--token", &token, "-m", "why", "--force", "--yes"];
    let broken = place.end(&words);
    assert!(broken.out.contains("\nthe command of ann may still run until "), "{broken:?}");
    assert_eq!(run.end().code, 76);
    place.end(&["acquire", "y"]);
    let token = place.look("y").fence.to_string();
    let words = ["break", "y", "--token", &token, "-m", "why", "--force", "--yes", "--json"];
    let detached = place.end(&words);
    assert!(detached.out.contains("\"may_run_until\":null"), "{detached:?}");
}
