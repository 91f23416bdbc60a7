//! `kill -9` of `sprag run`: its guardian gives the lock back.

use crate::shared::{wait_for, wait_until};
use crate::support::Hub;

#[test]
fn on_github_the_guardian_gives_the_lock_of_a_killed_run_back() {
    let hub = Hub::new();
    let store = hub.store();
    let up = hub.path("a").join("up");
    let script = "trap '' TERM; echo > up; while :; do sleep 0.02; done";
    let base = ["run", "-S", &store, "--ttl", "10m", "--kill-after", "300ms", "job", "--"];
    let mut run = hub.start(&[&base[..], &["sh", "-c", script]].concat());
    wait_for(&up);
    run.kill().unwrap();
    run.wait().unwrap();
    wait_until(
        || hub.sprag(&["show", "-S", &store, "--json", "job"]).out.contains("\"holders\":[]"),
        "the lock is free",
    );
    let next = hub.sprag(&["run", "-S", &store, "-n", "job", "--", "echo", "entered"]).exits(0);
    assert_eq!(next.out, "entered\n");
}
