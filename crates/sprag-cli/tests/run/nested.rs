//! A `sprag run` inside a `sprag run`.

use crate::support::Place;

#[test]
fn the_same_lock_is_refused_instead_of_waited_for() {
    let place = Place::new();
    let ended = place.end(&["run", "x", "--", "sh", "-c", "\"$SPRAG\" run x true; echo $?"]);
    assert_eq!(ended.out, "64\n", "{ended:?}");
    assert!(
        ended.err.contains("\"x\" is already held by this process tree (token "),
        "{}",
        ended.err
    );
    assert!(ended.err.contains("taking it again would wait for ourselves"), "{}", ended.err);
}

#[test]
fn reentrant_uses_the_lock_that_is_held_and_takes_the_others() {
    let place = Place::new();
    let inner = "\"$SPRAG\" run --reentrant x sh -c 'echo $SPRAG_LOCK'; \
                 \"$SPRAG\" run --reentrant x,y sh -c 'echo $SPRAG_LOCK $SPRAG_HELD'";
    let ended = place.end(&["run", "x", "--", "sh", "-c", inner]);
    let (x, y) = (place.look("x").fence, place.look("y").fence);
    assert_eq!(ended.out, format!("x\ny x:{x},y:{y}\n"), "{ended:?}");
}

#[test]
fn another_lock_or_another_store_is_another_matter() {
    let place = Place::new();
    let inner = "\"$SPRAG\" run y true && \"$SPRAG\" -S sqlite:./other.db run x true && echo fine";
    let ended = place.end(&["run", "x", "--", "sh", "-c", inner]);
    assert_eq!(ended.out, "fine\n", "{ended:?}");
}

#[test]
fn a_daemon_that_outlived_its_run_may_take_the_lock() {
    let place = Place::new();
    let inner = "setsid sh -c 'echo > up; while [ -S \"$SPRAG_SOCKET\" ]; do sleep 0.01; done; \
                 \"$SPRAG\" run x sh -c \"echo again >> log\"' > /dev/null 2>&1 & while ! [ -e up ]; do sleep 0.01; done";
    let ended = place.end(&["run", "x", "--", "sh", "-c", inner]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(place.wait_lines("log", 1), "again\n");
}
