//! `--once-per`: once in each period, whoever comes first.

use crate::support::{Place, wait_for};

const WORK: [&str; 4] = ["--", "sh", "-c", "echo ran >> log"];

#[test]
fn after_a_success_the_others_skip_it() {
    let place = Place::new();
    let words = [&["run", "--once-per", "1000d", "report"], &WORK[..]].concat();
    assert_eq!(place.end(&words).code, 0);
    for _ in 0..3 {
        let ended = place.end(&words);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(
            ended.err.starts_with("sprag: skipped: \"report\" is done for this period by "),
            "{ended:?}"
        );
        assert!(ended.err.contains("; again in "), "{ended:?}");
    }
    assert_eq!(place.read("log"), "ran\n");
    assert!(!place.look("report").is_locked());
}

#[test]
fn who_waited_for_the_one_that_ran_it_skips_it_too() {
    let place = Place::new();
    let script = "echo ran >> log; while ! [ -e stop ]; do sleep 0.01; done";
    let words = ["run", "--once-per", "1000d", "report", "--", "sh", "-c", script];
    let first = place.start(&words);
    place.wait_lines("log", 1);
    let others: Vec<_> = (0..3).map(|_| place.start(&words)).collect();
    wait_for("waiters", || place.look("report").waiters.len() == 3);
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(first.end().code, 0);
    for other in others {
        let ended = other.end();
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(ended.err.contains("is done for this period"), "{ended:?}");
    }
    assert_eq!(place.read("log"), "ran\n");
}

#[test]
fn after_a_failure_it_is_tried_again() {
    let place = Place::new();
    let words =
        ["run", "--once-per", "1000d", "report", "--", "sh", "-c", "echo ran >> log; exit 3"];
    assert_eq!(place.end(&words).code, 3);
    assert_eq!(place.end(&words).code, 3);
    assert_eq!(place.read("log"), "ran\nran\n");
}

#[test]
fn the_next_period_runs_it_again() {
    let place = Place::new();
    let words = [&["run", "--once-per", "1s", "report"], &WORK[..]].concat();
    wait_for("two periods", || {
        assert_eq!(place.end(&words).code, 0);
        place.read("log").lines().count() >= 2
    });
}

/// On a store that cannot tell when a lease ends, the mark of an earlier period may still be there.
#[test]
fn the_mark_of_an_earlier_period_is_not_in_the_way() {
    let place = Place::new();
    let bare = place.path("locks.git");
    let made = std::process::Command::new("git").args(["init", "-q", "--bare"]).arg(&bare).status();
    assert!(made.unwrap().success());
    let store = format!("git+file://{}", bare.display());
    let words =
        |period| [&["run", "-S", &store, "--once-per", period, "report"], &WORK[..]].concat();
    assert_eq!(place.end(&words("1000d")).code, 0);
    let ended = place.end(&words("1000d"));
    assert!(ended.err.contains("; again in "), "{ended:?}");
    wait_for("the next period", || {
        assert_eq!(place.end(&words("2s")).code, 0);
        place.read("log").lines().count() == 2
    });
}
