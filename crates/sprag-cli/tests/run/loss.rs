//! The lock is lost while the command runs.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Place, Run, block_on, is_alive, wait_for};

const WORK: &str =
    "trap 'echo term >> log; exit 0' TERM; echo $$ > pid; while :; do sleep 0.02; done";
const STUBBORN: &str = "trap 'echo term >> log' TERM; echo $$ > pid; while :; do sleep 0.02; done";

fn start(place: &Place, options: &[&str], script: &str) -> (Run, i32) {
    let short = ["--ttl", "1500ms", "--kill-after", "400ms"];
    let run =
        place.start(&[&["run"], &short[..], options, &["x", "--", "sh", "-c", script]].concat());
    let pid = place.wait_lines("pid", 1).trim().parse().unwrap();
    (run, pid)
}

fn break_it(place: &Place) {
    let locks = place.locks();
    let fence = place.look("x").fence;
    block_on(locks.evict("x", fence, "the laptop is closed")).unwrap();
}

#[test]
fn a_broken_lock_stops_the_command_and_the_exit_code_is_76_whatever_it_returned() {
    let place = Place::new();
    let (run, pid) = start(&place, &[], WORK);
    break_it(&place);
    let ended = run.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    // The shell may say first that its child was terminated.
    assert!(ended.err.contains("error[SP010]: lost lock \"x\" (token "), "{}", ended.err);
    assert!(ended.err.contains("broke it: the laptop is closed\n"), "{}", ended.err);
    assert!(
        ended.err.contains(&format!("SIGTERM sent to process group {pid}; SIGKILL in ")),
        "{}",
        ended.err
    );
    assert_eq!(place.read("log"), "term\n");
    assert!(!is_alive(pid));
}

#[test]
fn a_command_that_ignores_term_is_killed() {
    let place = Place::new();
    let (run, pid) = start(&place, &[], STUBBORN);
    break_it(&place);
    assert_eq!(run.end().code, 76);
    assert_eq!(place.read("log"), "term\n");
    assert!(!is_alive(pid));
}

#[test]
fn on_lost_kill_does_not_ask_first() {
    let place = Place::new();
    let (run, pid) = start(&place, &["--on-lost", "kill"], WORK);
    break_it(&place);
    let ended = run.end();
    assert_eq!(ended.code, 76);
    assert!(ended.err.contains("SIGKILL sent to"), "{}", ended.err);
    assert_eq!(place.read("log"), "");
    assert!(!is_alive(pid));
}

#[test]
fn on_lost_continue_lets_it_run_and_still_says_76() {
    let place = Place::new();
    let script =
        "echo $$ > pid; while ! [ -e stop ]; do sleep 0.02; done; echo done >> log; exit 0";
    let (mut run, _) = start(&place, &["--on-lost", "continue"], script);
    break_it(&place);
    let err = run.child.stderr.take().unwrap();
    let said: Vec<_> = BufReader::new(err).lines().take(3).map(Result::unwrap).collect();
    assert!(said[2].contains("runs on without the lock"), "{said:?}");
    let next = place.end(&["run", "-w", "10s", "x", "true"]);
    assert_eq!(next.code, 0, "{next:?}");
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(run.end().code, 76);
    assert_eq!(place.read("log"), "done\n");
}

#[test]
fn on_lost_hook_runs_instead_of_term() {
    let place = Place::new();
    let hook = "hook:echo $SPRAG_LOCK $SPRAG_PID >> log; kill -USR1 $SPRAG_PID";
    let script =
        "trap 'echo usr1 >> log; exit 3' USR1; echo $$ > pid; while :; do sleep 0.02; done";
    let (run, pid) = start(&place, &["--on-lost", hook], script);
    break_it(&place);
    assert_eq!(run.end().code, 76);
    assert_eq!(place.read("log"), format!("x {pid}\nusr1\n"));
}

#[test]
fn a_lock_that_was_broken_just_before_the_command_ended_is_lost_all_the_same() {
    let place = Place::new();
    let script = "echo $$ > pid; while ! [ -e stop ]; do sleep 0.01; done";
    let run = place.start(&["run", "x", "--", "sh", "-c", script]);
    place.wait_lines("pid", 1);
    break_it(&place);
    std::fs::write(place.path("stop"), "").unwrap();
    let ended = run.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    assert!(ended.err.contains("broke it: the laptop is closed"), "{}", ended.err);
}

#[test]
fn a_store_that_is_stuck_stops_the_command_before_the_lease_ends() {
    let place = Place::new();
    let (run, pid) = start(&place, &[], STUBBORN);
    // Somebody is in the middle of a write and does not go on.
    let gate = format!("{}.gate", place.database().display());
    let mut stuck = Command::new("setsid");
    stuck.args(["flock", &gate, "sh", "-c", "echo $$ > stuck; kill -STOP $$"]);
    place.set_up(&mut stuck);
    let stuck = place.run({
        stuck.stdout(Stdio::null());
        stuck
    });
    place.wait_lines("stuck", 1);
    let ended = run.end();
    assert_eq!(ended.code, 76, "{ended:?}");
    assert!(ended.err.contains("no confirmed renewal for "), "{}", ended.err);
    assert!(ended.err.contains(" before anyone else can acquire\n"), "{}", ended.err);
    assert!(ended.err.contains("\n  now      unknown"), "{}", ended.err);
    assert!(!is_alive(pid));
    drop(stuck);
    let sh: i32 = place.read("stuck").trim().parse().unwrap();
    crate::support::send(sh, Signal::KILL);
    let next = place.end(&["run", "-w", "10s", "x", "true"]);
    assert_eq!(next.code, 0, "{next:?}");
}

#[test]
fn a_loss_that_nobody_can_be_told_of_is_a_loss_all_the_same() {
    let place = Place::new();
    let (mut run, pid) = start(&place, &[], STUBBORN);
    drop(run.child.stderr.take());
    break_it(&place);
    assert_eq!(run.end().code, 76);
    assert!(!is_alive(pid));
}

#[test]
fn a_command_that_ended_in_time_was_not_lost_although_sprag_was_stopped_meanwhile() {
    let place = Place::new();
    let script = "echo $$ > pid; while ! [ -e stop ]; do sleep 0.01; done; exit 5";
    let (run, pid) = start(&place, &[], script);
    run.send(Signal::STOP);
    std::fs::write(place.path("stop"), "").unwrap();
    wait_for("the end of the command", || !is_alive(pid));
    crate::support::let_time_pass(Duration::from_millis(2500));
    run.send(Signal::CONT);
    let ended = run.end();
    assert_eq!(ended.code, 5, "{ended:?}");
}
