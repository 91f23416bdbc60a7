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

#[test]
fn the_list_shows_the_slots_in_use_and_one_lock_shows_who_has_which() {
    let place = Place::new();
    let hold = |who: &str| {
        let script = "echo up >> up; exec cat";
        let mut command =
            place.sprag(&["run", "--holder", who, "--slots", "3", "-c", script, "gpu"]);
        command.stdin(Stdio::piped());
        place.run(command)
    };
    let mut holders = vec![hold("ann")];
    place.wait_lines("up", 1);
    holders.push(hold("bob"));
    place.wait_lines("up", 2);
    // A lock that only looks like a slot is one like others.
    let mut other = place.sprag(&["run", "gpu#2", "sh", "-c", "echo up >> up; exec cat"]);
    other.stdin(Stdio::piped());
    holders.push(place.run(other));
    place.wait_lines("up", 3);
    let names = |words: &[&str]| -> Vec<String> {
        let listed = place.end(words).out;
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        listed.lines().skip(1).map(words).filter(|line| line.starts_with("gpu")).collect()
    };
    assert_eq!(
        names(&["ls", "-o", "name,mode,holder", "--holder", "me"])[0],
        "gpu 2/3 (2 holders)"
    );
    assert_eq!(names(&["ls", "-o", "name", "--holder", "me"]), ["gpu", "gpu#2"]);
    for all in ["-a", "--all"] {
        let listed = names(&["ls", all, "-o", "name", "--holder", "me"]);
        assert_eq!(listed, ["gpu", "gpu#0", "gpu#1", "gpu#2"]);
    }
    let shown = place.end(&["show", "gpu"]).out;
    assert!(shown.contains("  holder   ann   slot 0   token "), "{shown}");
    assert!(shown.contains("  holder   bob   slot 1   token "), "{shown}");
    let json: serde_json::Value =
        serde_json::from_str(&place.end(&["show", "gpu", "--json"]).out).unwrap();
    let slots: Vec<_> =
        json["holders"].as_array().unwrap().iter().map(|holder| holder["slot"].clone()).collect();
    assert_eq!(slots, [0, 1]);
    for holder in holders {
        assert_eq!(holder.end().code, 0);
    }
}

#[test]
fn a_mark_is_listed_as_the_state_of_its_lock_once_it_is_made() {
    let place = Place::new();
    let run = ["run", "--holder", "ann", "--once-per", "100d", "report", "--", "sh", "-c"];
    let listed = |script: &str| {
        let ended = place.end(&[&run[..], &[script]].concat());
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.out
    };
    let within = listed("\"$SPRAG\" ls -o name,mode; \"$SPRAG\" ls -a -o name");
    assert_eq!(
        within.split_whitespace().filter(|word| word.starts_with("report")).collect::<Vec<_>>(),
        ["report", "report", "report#done"],
        "{within}"
    );
    let after = place.end(&["ls", "-o", "name,mode", "--holder", "me"]).out;
    assert!(after.contains("report  done"), "{after}");
}
