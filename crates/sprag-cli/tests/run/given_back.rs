//! `kill -9` of `sprag run` on stores where a lease lives by its TTL alone: the guardian gives it back
//! once the command is dead.

use std::time::Duration;

use rustix::process::Signal;
use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::redis_server::{RedisServer, RedisSetup};

use crate::support::{Place, block_on, is_alive, now, wait_for};

/// Far less than the TTL, and more than a busy machine needs.
const SOON: Duration = Duration::from_secs(30);

/// Ignores TERM, so that the guardian has to wait before it may give anything back.
const STUBBORN: &str = "trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done";

/// Kills a run with these options; the next one enters soon, and not before the command is dead.
fn kill_and_follow(place: &Place, store: &str, options: &[&str]) {
    let base = [&["run", "-S", store, "--ttl", "10m", "--kill-after", "300ms"], options].concat();
    let first = place.start(&[&base[..], &["job", "--", "sh", "-c", STUBBORN]].concat());
    let pid: i32 = place.wait_lines("pid", 1).trim().parse().unwrap();
    let alive = format!("kill -0 {pid} 2> /dev/null && echo two; echo entered >> log");
    let next = place.start(&[&base[..], &["-w", "60s", "job", "--", "sh", "-c", &alive]].concat());
    wait_for("a waiter", || {
        let seen = place.end(&["show", "-S", store, "--json", "job"]);
        seen.out.contains("\"waiters\":[{")
    });
    let killed = now();
    first.send(Signal::KILL);
    let ended = next.end();
    assert_eq!((ended.code, ended.out.as_str()), (0, ""), "{ended:?}");
    assert!(now().since(killed) < SOON, "it waited for the end of the lease");
    assert!(!is_alive(pid));
    wait_for("the lock to be free", || {
        place.end(&["show", "-S", store, "--json", "job"]).out.contains("\"holders\":[]")
    });
}

#[test]
fn on_redis_the_guardian_gives_the_lock_of_a_killed_run_back() {
    if RedisServer::skipped() {
        return;
    }
    let (place, server) = (Place::new(), block_on(RedisServer::start(&[])));
    kill_and_follow(&place, &server.url(), &[]);
}

/// The slot and the mark go back as well, or the next one would wait for them.
#[test]
fn what_stands_beside_the_lock_is_given_back_too() {
    if RedisServer::skipped() {
        return;
    }
    let (place, server) = (Place::new(), block_on(RedisServer::start(&[])));
    kill_and_follow(&place, &server.url(), &["--slots", "1", "--once-per", "1000d"]);
}

/// There is no queue that would show a waiter: the next one comes afterwards.
#[test]
fn on_redlock_the_guardian_gives_the_lock_of_a_killed_run_back() {
    if RedisServer::skipped() {
        return;
    }
    let place = Place::new();
    let servers = block_on(RedisServer::several(3, &RedisSetup::new().tcp()));
    let nodes: Vec<_> = servers.iter().map(RedisServer::address).collect();
    let store = format!("redlock://{}?node_timeout_ms=500", nodes.join(","));
    let base = ["run", "-S", &store, "--ttl", "10m", "--kill-after", "300ms"];
    let first = place.start(&[&base[..], &["job", "--", "sh", "-c", STUBBORN]].concat());
    let pid: i32 = place.wait_lines("pid", 1).trim().parse().unwrap();
    let killed = now();
    first.send(Signal::KILL);
    let alive = format!("kill -0 {pid} 2> /dev/null && echo two; echo entered");
    let next = place.end(&[&base[..], &["-w", "60s", "job", "--", "sh", "-c", &alive]].concat());
    assert_eq!((next.code, next.out.as_str()), (0, "entered\n"), "{next:?}");
    assert!(now().since(killed) < SOON, "it waited for the end of the lease");
}

#[test]
fn in_postgres_the_guardian_gives_the_lease_of_a_killed_run_back() {
    if skipped() {
        return;
    }
    let (place, database) = (Place::new(), Database::fresh());
    kill_and_follow(&place, &database.url(), &[]);
}

#[test]
fn on_git_the_guardian_gives_the_lock_of_a_killed_run_back() {
    let place = Place::new();
    let bare = place.path("locks.git");
    let made = std::process::Command::new("git").args(["init", "-q", "--bare"]).arg(&bare).status();
    assert!(made.unwrap().success());
    kill_and_follow(&place, &format!("git+file://{}", bare.display()), &[]);
}

/// It was killed after its command had ended, while it gave the lock back.
#[test]
fn a_run_that_is_killed_while_it_ends_leaves_no_lock() {
    if RedisServer::skipped() {
        return;
    }
    let (place, server) = (Place::new(), block_on(RedisServer::start(&[])));
    let url = server.url();
    let script = "echo $$ > pid; while ! [ -e stop ]; do sleep 0.01; done";
    let run = place.start(&["run", "-S", &url, "--ttl", "10m", "job", "--", "sh", "-c", script]);
    let pid: i32 = place.wait_lines("pid", 1).trim().parse().unwrap();
    run.send(Signal::STOP);
    std::fs::write(place.path("stop"), "").unwrap();
    wait_for("the end of the command", || !is_alive(pid));
    run.send(Signal::KILL);
    wait_for("the lock to be free", || server.ask(&["GET", "sprag:job"]).is_empty());
}
