//! `--reentrant`: under the lock of a living run around this one, as far as that one has it.

use crate::support::Place;

/// Starts a run with `outer` options whose command is the script; what the inner runs said.
fn inside(place: &Place, outer: &[&str], script: &str) -> crate::support::Ended {
    place.end(&[&["run"], outer, &["x", "--", "sh", "-c", script]].concat())
}

/// Two readers, or two of the slots, would each have believed to be alone.
#[test]
fn a_shared_outer_lock_does_not_cover_an_exclusive_inner_one() {
    for outer in [&["-s"][..], &["--slots", "2"]] {
        let place = Place::new();
        let script = "\"$SPRAG\" run --reentrant x sh -c 'echo inside'; echo $?";
        let ended = inside(&place, outer, script);
        assert_eq!(ended.out, "64\n", "{outer:?}: {ended:?}");
        assert!(ended.err.contains("and asked for as exclusive"), "{}", ended.err);
    }
}

#[test]
fn what_is_a_part_of_the_outer_lock_is_covered() {
    for (outer, inner) in
        [(&[][..], ""), (&[][..], "-s"), (&["-s"][..], "-s"), (&["--slots", "2"][..], "--slots 2")]
    {
        let place = Place::new();
        let script = format!("\"$SPRAG\" run --reentrant {inner} x sh -c 'echo inside'; echo $?");
        let ended = inside(&place, outer, &script);
        assert_eq!(ended.out, "inside\n0\n", "{outer:?} {inner}: {ended:?}");
    }
}

#[test]
fn a_run_in_between_does_not_hide_the_slot() {
    let place = Place::new();
    let inner = "\"$SPRAG\" run --reentrant --slots 2 x sh -c 'echo slot $SPRAG_SLOT'";
    let script = format!(
        "echo $SPRAG_SLOT; \"$SPRAG\" run y sh -c \"{}\"",
        inner.replace('"', "\\\"").replace('$', "\\$")
    );
    let ended = inside(&place, &["--slots", "2"], &script);
    assert_eq!(ended.out, "0\nslot 0\n", "{ended:?}");
}

#[test]
fn an_inner_once_per_is_kept() {
    let place = Place::new();
    let script = "for i in 1 2; do \"$SPRAG\" run --reentrant --once-per 1000d x sh -c \
                  'echo ran $SPRAG_LOCK; \"$SPRAG\" check > /dev/null && echo held'; echo $?; done";
    let ended = inside(&place, &[], script);
    assert_eq!(ended.out, "ran x\nheld\n0\n0\n", "{ended:?}");
    assert!(ended.err.contains("\"x\" is done for this period by "), "{}", ended.err);
    let later = place.end(&["run", "--once-per", "1000d", "x", "echo", "again"]);
    assert_eq!(later.out, "", "{later:?}");
}

/// The outermost run is over, a daemon of it lives on and runs something under another lock: the
/// environment still names the first lock, and nobody holds it.
#[test]
fn what_the_environment_says_of_a_run_that_is_over_is_not_believed() {
    let place = Place::new();
    let daemon = "echo > up; while ! [ -e over ]; do sleep 0.01; done; \
                  \"$SPRAG\" run --reentrant x sh -c 'echo $SPRAG_LOCK >> log'";
    std::fs::write(place.path("daemon"), daemon).unwrap();
    let script = "setsid \"$SPRAG\" run y sh ./daemon > /dev/null 2>&1 & \
                  while ! [ -e up ]; do sleep 0.01; done";
    let ended = inside(&place, &[], script);
    assert_eq!(ended.code, 0, "{ended:?}");
    std::fs::write(place.path("over"), "").unwrap();
    assert_eq!(place.wait_lines("log", 1), "x\n", "it ran without a lock of its own");
}

/// The outer run would end, and free the lock, while the inner command goes on.
#[test]
fn a_daemon_does_not_enter_the_lock_of_a_run_that_does_not_wait_for_it() {
    let place = Place::new();
    let script = "setsid -w sh -c '\"$SPRAG\" run --reentrant x echo inside; echo $?'";
    let ended = inside(&place, &[], script);
    assert_eq!(ended.out, "64\n", "{ended:?}");
    assert!(ended.err.contains("a session of its own"), "{}", ended.err);
}

/// The environment names the run in between only: the outer one is found through it.
#[test]
fn a_run_in_between_on_another_store_does_not_hide_the_outer_one() {
    let place = Place::new();
    let script =
        "\"$SPRAG\" -S sqlite:./other.db run y \"$SPRAG\" -S sqlite: run --reentrant x echo inside";
    let ended = inside(&place, &[], script);
    assert_eq!(ended.out, "inside\n", "{ended:?}");
}
