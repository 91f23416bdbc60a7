//! Advisory locks of PostgreSQL end with the connection, and a guardian cannot keep them.

use rustix::process::Signal;
use sprag_testkit::postgres_server::{Database, skipped};

use crate::support::{Place, is_alive};

/// After kill -9 the next command entered at once, while this one ignored TERM for five seconds.
#[test]
fn a_store_that_frees_the_lock_before_the_command_is_dead_is_refused() {
    if skipped() {
        return;
    }
    let (place, database) = (Place::new(), Database::fresh());
    let store = format!("{}?mode=advisory", database.url());
    for words in [&["run", "-S", &store, "x", "--", "touch", "log"][..], &["demo", "-S", &store]] {
        let refused = place.end(words);
        assert_eq!(refused.code, 78, "{refused:?}");
        assert!(refused.err.contains("while this one is still being stopped"), "{refused:?}");
        assert!(refused.err.contains("the same URL without mode=advisory"), "{refused:?}");
    }
    assert!(!place.path("log").exists(), "it was started all the same");
    let leases = format!("{}?namespace=leases", database.url());
    let lease = place.end(&["run", "-S", &leases, "x", "true"]);
    assert_eq!(lease.code, 0, "{lease:?}");
}

/// Who accepts it by name has a command that is stopped, and may not be alone until it is.
#[test]
fn who_accepts_the_overlap_has_a_command_that_is_stopped() {
    if skipped() {
        return;
    }
    let (place, database) = (Place::new(), Database::fresh());
    let store = format!("{}?mode=advisory", database.url());
    let base = ["run", "--accept-overlap", "-S", &store, "--kill-after", "500ms", "x", "--"];
    let script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let run = place.start(&[&base[..], &["sh", "-c", script]].concat());
    let pid: i32 = place.wait_lines("pid", 1).trim().parse().unwrap();
    run.send(Signal::KILL);
    let next = place.end(&[&base[..], &["echo", "entered"]].concat());
    assert_eq!(next.out, "entered\n", "{next:?}");
    crate::support::wait_for("the end of the old command", || !is_alive(pid));
}
