//! Many at once. `SPRAG_TORTURE=full` is for the long form.

use std::process::Stdio;

use crate::support::{Place, wait_for};

/// Whether there is time.
pub(crate) fn full() -> bool {
    std::env::var("SPRAG_TORTURE").is_ok_and(|value| value == "full")
}

#[test]
fn of_64_that_claim_an_item_exactly_one_wins() {
    let place = Place::new();
    for round in 0..if full() { 1000 } else { 4 } {
        let item = format!("item/{round}");
        let mut claims: Vec<_> = (0..64)
            .map(|_| {
                let mut command = place.sprag(&["run", "-n", &item, "cat"]);
                command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
                command.spawn().unwrap()
            })
            .collect();
        let mut codes = Vec::new();
        // The winner holds its item until all others have lost.
        wait_for("63 losers", || {
            claims.retain_mut(|claim| match claim.try_wait().unwrap() {
                Some(status) => {
                    codes.push(status.code());
                    false
                }
                None => true,
            });
            claims.len() <= 1
        });
        assert_eq!(claims.len(), 1, "nobody won");
        assert!(codes.iter().all(|code| *code == Some(75)), "{codes:?}");
        let winner = claims.pop().unwrap();
        assert!(winner.wait_with_output().unwrap().status.success());
    }
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn many_runs_on_one_lock_all_finish_and_leave_nothing_behind() {
    let place = Place::new();
    let many = if full() { 1000 } else { 80 };
    let script = "mkdir inside && echo in >> log && rmdir inside";
    let runs: Vec<_> =
        (0..many).map(|_| place.start(&["run", "-q", "x", "--", "sh", "-c", script])).collect();
    for run in runs {
        let ended = run.end();
        assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    }
    assert_eq!(place.read("log").lines().count(), many);
    // Before we look, with a session of our own.
    assert_eq!(place.left_behind(), Vec::<String>::new());
    let lock = place.look("x");
    assert!(!lock.is_locked() && lock.waiters.is_empty());
}
