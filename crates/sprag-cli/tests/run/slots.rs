//! `--slots`: so many at once, each with a number of its own.

use std::process::Stdio;

use crate::support::Place;

#[test]
fn each_holder_has_a_number_that_no_other_has() {
    let place = Place::new();
    // Makes a folder named after its slot: a second one at the same time would fail.
    let script = "mkdir slot-$SPRAG_SLOT && sleep 0.0$(( $$ % 5 )) && rmdir slot-$SPRAG_SLOT && echo $SPRAG_SLOT >> log";
    let rounds = if crate::races::full() { 40 } else { 4 };
    let workers: Vec<_> = (0..6)
        .map(|_| {
            let mut shell = std::process::Command::new("sh");
            let words = "i=0; while [ $i -lt $1 ]; do i=$((i+1)); \"$SPRAG\" run -q --slots 3 gpu sh -c \"$0\" || exit 9; done";
            place.set_up(&mut shell);
            shell.args(["-c", words, script, &rounds.to_string()]);
            place.run(shell)
        })
        .collect();
    for worker in workers {
        let ended = worker.end();
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    let log = place.read("log");
    assert_eq!(log.lines().count(), 6 * rounds);
    assert!(log.lines().all(|slot| ["0", "1", "2"].contains(&slot)), "{log}");
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn there_are_no_more_than_asked_for_and_others_must_ask_for_as_many() {
    let place = Place::new();
    let holders: Vec<_> = (0..2)
        .map(|_| {
            let mut command =
                place.sprag(&["run", "--slots", "2", "-c", "echo up >> up; exec cat", "gpu"]);
            command.stdin(Stdio::piped());
            place.run(command)
        })
        .collect();
    place.wait_lines("up", 2);
    assert_eq!(place.end(&["run", "-n", "--slots", "2", "gpu", "true"]).code, 75);
    let other = place.end(&["run", "-n", "--slots", "3", "gpu", "true"]);
    assert!([64, 78].contains(&other.code), "{other:?}");
    for holder in holders {
        assert_eq!(holder.end().code, 0);
    }
}
