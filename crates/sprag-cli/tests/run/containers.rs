//! A pid namespace of its own that has the `/proc` of another one.

use crate::support::{Place, wait_for};

/// Starts a run, kills it with -9, and lets the next one enter. Process 1 is the shell.
const SCRIPT: &str = r#"
    "$SPRAG" run --ttl 3m --kill-after 300ms x -- sh -c '
        setsid sh -c "trap \"\" TERM; while :; do echo A >> log; sleep 0.01; done" &
        sh -c "trap \"\" TERM; while :; do echo A >> log; sleep 0.01; done" &
        wait' & run=$!
    until [ -s log ]; do sleep 0.01; done
    kill -9 $run
    "$SPRAG" run -w 60s x sh -c "echo B >> log"
    echo next $? >> end
    while ! [ -e stop ]; do sleep 0.02; done
"#;

/// A child in a session of its own was not found there, and ran on.
#[test]
fn in_a_namespace_without_its_own_proc_all_is_stopped_all_the_same() {
    let place = Place::new();
    let mut inside = std::process::Command::new("setsid");
    inside.args(["unshare", "--pid", "--fork", "--kill-child=SIGKILL", "sh", "-c", SCRIPT]);
    place.set_up(&mut inside);
    let mut inside = place.run(inside);
    wait_for("the end of the next run", || {
        assert_eq!(inside.code(), None, "this machine refuses unshare: run as root");
        !place.read("end").is_empty()
    });
    assert_eq!(place.read("end"), "next 0\n");
    let lines = place.read("log").lines().count();
    // What still runs would write within this time.
    crate::support::let_time_pass(std::time::Duration::from_millis(300));
    let log = place.read("log");
    assert_eq!(log.lines().count(), lines, "something of the first run is still there");
    assert_eq!(log.lines().last(), Some("B"));
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(inside.end().code, 0);
}
