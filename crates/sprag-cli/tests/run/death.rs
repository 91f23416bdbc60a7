//! Whoever is killed: nobody else gets the lock before the command and its children are gone.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Place, Run, guardian, is_alive, let_time_pass, send, wait_for};

/// A command with a grandchild that ignores TERM and writes `A` as long as it lives, and a
/// second one in a session of its own.
const STUBBORN: &str = r#"
    sh -c 'sh -c "trap \"\" TERM HUP; echo \$\$ >> pids; while :; do echo A >> log; sleep 0.004; done" & wait' &
    setsid sh -c 'trap "" TERM HUP; echo $$ >> pids; while :; do echo A >> log; sleep 0.004; done' &
    wait
"#;

fn stubborn(place: &Place, options: &[&str]) -> (Run, Vec<i32>) {
    let words = [&["run"], options, &["x", "--", "sh", "-c", STUBBORN]].concat();
    let run = place.start(&words);
    let pids = place.wait_lines("pids", 2);
    place.wait_lines("log", 4);
    (run, pids.lines().map(|pid| pid.parse().unwrap()).collect())
}

fn next_holder(place: &Place) -> Run {
    let next =
        place.start(&["run", "x", "--", "sh", "-c", "echo B >> log; sleep 0.2; echo B >> log"]);
    wait_for("a waiter", || !place.look("x").waiters.is_empty());
    next
}

/// The log is appended to, so its order is the order of what happened.
fn assert_never_together(place: &Place) {
    let log = place.read("log");
    let first = log.lines().position(|line| line == "B").unwrap();
    let late = log.lines().skip(first).filter(|line| *line == "A").count();
    assert_eq!(late, 0, "the old command wrote after the new one had begun");
}

#[test]
fn when_sprag_is_killed_its_command_is_gone_before_the_next_holder_enters() {
    let place = Place::new();
    let (run, pids) = stubborn(&place, &["--kill-after", "500ms"]);
    let next = next_holder(&place);
    run.send(Signal::KILL);
    let ended = next.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    assert_never_together(&place);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn when_its_whole_process_group_is_killed_too() {
    let place = Place::new();
    let (run, pids) = stubborn(&place, &["--kill-after", "300ms"]);
    let next = next_holder(&place);
    let group = rustix::process::Pid::from_raw(run.pid()).unwrap();
    rustix::process::kill_process_group(group, Signal::KILL).unwrap();
    assert_eq!(next.end().code, 0);
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    assert_never_together(&place);
}

#[test]
fn when_the_guardian_is_killed_sprag_does_its_work() {
    let place = Place::new();
    let (run, pids) = stubborn(&place, &[]);
    let next = next_holder(&place);
    send(guardian(&run), Signal::KILL);
    let ended = run.end();
    assert_eq!(ended.code, 70, "{ended:?}");
    assert!(ended.err.contains("the guardian was killed"), "{}", ended.err);
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    assert_eq!(next.end().code, 0);
    assert_never_together(&place);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

/// Nobody is left to stop the command but the kernel.
#[test]
fn when_both_are_killed_at_once_the_command_is_killed_too() {
    let place = Place::new();
    let run = place.start(&[
        "run",
        "x",
        "--",
        "sh",
        "-c",
        "trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done",
    ]);
    let pid: i32 = place.wait_lines("pid", 1).trim().parse().unwrap();
    let guardian = guardian(&run);
    // Neither sees the other's end.
    run.send(Signal::STOP);
    send(guardian, Signal::STOP);
    run.send(Signal::KILL);
    send(guardian, Signal::KILL);
    wait_for("the end of the command", || !is_alive(pid));
}

#[test]
fn a_sprag_that_was_stopped_for_two_leases_finds_its_command_gone() {
    let place = Place::new();
    let (run, pids) = stubborn(&place, &["--ttl", "1500ms", "--kill-after", "300ms"]);
    let next = next_holder(&place);
    run.send(Signal::STOP);
    let_time_pass(Duration::from_secs(3));
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    run.send(Signal::CONT);
    let ended = run.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    assert!(ended.err.starts_with("error[SP010]: lost lock \"x\" (token "), "{}", ended.err);
    assert!(ended.err.contains("\n  cause    no confirmed renewal for "), "{}", ended.err);
    assert_eq!(next.end().code, 0);
    assert_never_together(&place);
}

#[test]
fn a_guardian_that_was_stopped_does_not_let_two_in() {
    let place = Place::new();
    let (run, pids) = stubborn(&place, &["--ttl", "1500ms", "--kill-after", "300ms"]);
    let next = next_holder(&place);
    let guardian = guardian(&run);
    send(guardian, Signal::STOP);
    run.send(Signal::KILL);
    // It cannot do its work, but the lease ends all the same.
    let_time_pass(Duration::from_millis(300));
    send(guardian, Signal::CONT);
    assert_eq!(next.end().code, 0);
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    assert_never_together(&place);
}
