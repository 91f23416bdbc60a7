//! Signals reach the command and its children; while waiting they end the wait.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Place, guardian, now, wait_for, wait_within};

/// A shell with a child, both of which write down the signal they get and end with 7.
const FAMILY: &str = r#"
    for s in TERM INT HUP QUIT USR1 USR2; do trap "echo $s >> $1; exit 7" $s; done
    if [ "$1" = parent ]; then sh -c "$0" "$0" child & fi
    echo ready >> ready
    while :; do sleep 0.02; done
"#;

#[test]
fn each_signal_reaches_the_command_and_its_children_once() {
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        // A shell starts background jobs with INT and QUIT ignored; they cannot be caught again.
        let child_hears = !matches!(name, "INT" | "QUIT");
        let place = Place::new();
        let run = place.start(&[
            "run",
            "--kill-after",
            "1s",
            "x",
            "--",
            "sh",
            "-c",
            FAMILY,
            FAMILY,
            "parent",
        ]);
        place.wait_lines("ready", 2);
        run.send(signal);
        let ended = run.end();
        assert_eq!(ended.code, 7, "{name}: {ended:?}");
        assert_eq!(place.read("parent"), format!("{name}\n"));
        if child_hears {
            assert_eq!(place.read("child").lines().next(), Some(name));
        }
        assert_eq!(place.left_behind(), Vec::<String>::new());
    }
}

#[test]
fn a_stop_and_a_continue_are_handed_on() {
    let place = Place::new();
    // One that starts nothing: a shell whose child is stopped before its exec cannot stop itself.
    let script = "echo $$ > pid; exec sleep 600";
    let run = place.start(&["run", "x", "--", "sh", "-c", script]);
    place.wait_lines("pid", 1);
    let pid: i32 = place.read("pid").trim().parse().unwrap();
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    };
    run.send(Signal::TSTP);
    wait_for("the command to stop", || state() == 'T');
    run.send(Signal::CONT);
    wait_for("the command to go on", || state() != 'T');
    run.send(Signal::TERM);
    assert_eq!(run.end().code, 143);
}

#[test]
fn while_waiting_a_signal_ends_it_within_a_second_and_leaves_the_queue() {
    let place = Place::new();
    let holder = place.hold(&["x"]);
    for (signal, code) in [
        (Signal::TERM, 143),
        (Signal::INT, 130),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::USR1, 138),
    ] {
        let mut waiter = place.start(&["run", "x", "--", "sh", "-c", "echo ran >> ran"]);
        wait_for("a waiter", || !place.look("x").waiters.is_empty());
        let asked = now();
        waiter.send(signal);
        assert_eq!(waiter.wait(Duration::from_secs(5)), code);
        let took = now().since(asked);
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert_eq!(place.look("x").waiters, []);
    }
    holder.send(Signal::TERM);
    assert_eq!(holder.end().code, 143);
    assert_eq!(place.read("ran"), "");
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn while_waiting_at_a_store_that_is_stuck_too() {
    let place = Place::new();
    let holder = place.hold(&["x"]);
    let mut waiter = place.start(&["run", "x", "--", "sh", "-c", "echo ran >> ran"]);
    wait_for("a waiter", || !place.look("x").waiters.is_empty());
    let gate = std::fs::File::open(format!("{}.gate", place.database().display())).unwrap();
    gate.lock().unwrap();
    let asked = now();
    waiter.send(Signal::TERM);
    assert_eq!(waiter.wait(Duration::from_secs(5)), 143);
    let took = now().since(asked);
    assert!(took < Duration::from_secs(1), "{took:?}");
    drop(gate);
    wait_for("the queue to be empty", || place.look("x").waiters.is_empty());
    drop(holder);
}

#[test]
fn a_second_control_c_does_not_wait_for_the_store() {
    let place = Place::new();
    let holder = place.hold(&["x"]);
    let mut waiter = place.start(&["run", "x", "true"]);
    wait_for("a waiter", || !place.look("x").waiters.is_empty());
    let gate = std::fs::File::open(format!("{}.gate", place.database().display())).unwrap();
    gate.lock().unwrap();
    let asked = now();
    waiter.send(Signal::INT);
    wait_for("the first to be read", || !is_pending(waiter.pid(), Signal::INT));
    waiter.send(Signal::INT);
    assert_eq!(waiter.wait(Duration::from_secs(5)), 130);
    let took = now().since(asked);
    assert!(took < Duration::from_millis(500), "{took:?}");
    drop(holder);
}

fn is_pending(pid: i32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:\t")).unwrap();
    u64::from_str_radix(mask, 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn nothing_is_started_once_a_stop_was_asked_for() {
    let place = Place::new();
    let holder = place.hold(&["x"]);
    let mut waiter = place.start(&["run", "x", "--", "sh", "-c", "echo ran >> ran"]);
    wait_for("a waiter", || !place.look("x").waiters.is_empty());
    // The lock is handed over and the signal is there when it looks again.
    waiter.send(Signal::STOP);
    holder.send(Signal::TERM);
    assert_eq!(holder.end().code, 143);
    wait_for("the hand-over", || place.look("x").waiters.is_empty());
    waiter.send(Signal::TERM);
    waiter.send(Signal::CONT);
    assert_eq!(waiter.wait(Duration::from_secs(10)), 143);
    assert_eq!(place.read("ran"), "");
    wait_within(Duration::from_secs(2), "the lock is free", || !place.look("x").is_locked());
}

#[test]
fn nohup_is_respected() {
    let place = Place::new();
    let mut command = std::process::Command::new("setsid");
    command.args([
        "sh",
        "-c",
        "trap '' HUP; exec \"$SPRAG\" run x -- sh -c 'echo up > up; sleep 0.3; echo on > on'",
    ]);
    place.set_up(&mut command);
    let run = place.run(command);
    place.wait_lines("up", 1);
    run.send(Signal::HUP);
    assert_eq!(run.end().code, 0);
    assert_eq!(place.read("on"), "on\n");
}

#[test]
fn the_guardian_does_not_hear_what_is_meant_for_the_command() {
    let place = Place::new();
    let run = place.start(&["run", "x", "--", "sh", "-c", "echo up > up; sleep 0.3; exit 5"]);
    place.wait_lines("up", 1);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::TSTP] {
        crate::support::send(guardian(&run), signal);
    }
    assert_eq!(run.end().code, 5);
}
