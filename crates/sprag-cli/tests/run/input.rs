//! What goes in and out of the command is left alone.

use std::io::{Read, Write};
use std::process::Stdio;

use crate::support::Place;

#[test]
fn a_megabyte_goes_through_stdin_untouched() {
    let place = Place::new();
    let bytes: Vec<u8> = (0..1_048_576_u32).map(|n| (n % 251) as u8).collect();
    let mut command = place.sprag(&["run", "x", "cat"]);
    let mut run = place.run({
        command.stdin(Stdio::piped());
        command
    });
    let mut stdin = run.child.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let mut received = Vec::new();
    run.child.stdout.take().unwrap().read_to_end(&mut received).unwrap();
    writer.join().unwrap();
    assert!(received == bytes, "{} bytes came back", received.len());
    assert_eq!(run.end().code, 0);
}

#[test]
fn the_commands_flags_are_its_own() {
    let place = Place::new();
    let ended = place.end(&["run", "x", "echo", "-n", "--json", "-S", "y", "--", "--help"]);
    assert_eq!((ended.code, ended.out.as_str()), (0, "--json -S y -- --help"));
    let ended = place.end(&["run", "-c", "echo $((1+1)) >&2", "x"]);
    assert_eq!((ended.code, ended.err.as_str()), (0, "2\n"));
    let ended = place.end(&["run", "x", "echo", "$HOME *"]);
    assert_eq!(ended.out, "$HOME *\n", "no shell touches it");
}

#[test]
fn no_descriptor_and_no_blocked_signal_of_ours_gets_into_the_command() {
    let place = Place::new();
    let script = "ls /proc/$$/fd; grep ^Sig... /proc/$$/status | grep -v SigQ";
    let ended = place.end(&["run", "x", "--", "sh", "-c", script]);
    // Whoever started the test may have left more than three open, or ignores signals.
    let mut plain = std::process::Command::new("sh");
    plain.args(["-c", script]);
    place.set_up(&mut plain);
    assert_eq!(ended.out, place.run(plain).end().out, "{ended:?}");
    assert!(ended.out.contains("SigBlk:\t0000000000000000\n"), "{ended:?}");
}

#[test]
fn the_command_learns_about_its_lock() {
    let place = Place::new();
    let script = "test -S \"$SPRAG_SOCKET\" && env | grep ^SPRAG_ | sort";
    let ended = place.end(&["run", "--ttl", "12s", "x", "--", "sh", "-c", script]);
    let value = |name: &str| {
        let line = ended.out.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("no {name} in {ended:?}")).to_owned()
    };
    let token = place.look("x").fence.to_string();
    assert_eq!(value("SPRAG_LOCK"), "x");
    assert_eq!(value("SPRAG_TOKEN"), token);
    assert_eq!(value("SPRAG_HELD"), format!("x:{token}"));
    let lease = value("SPRAG_LEASE");
    assert!(lease.len() > 32 && lease[32..].starts_with("@sqlite-"), "{lease}");
    assert_eq!(value("SPRAG_MODE"), "exclusive");
    assert_eq!(value("SPRAG_TTL"), "12");
    assert_eq!(value("SPRAG_STORE"), format!("sqlite:{}", place.database().display()));
    assert!(value("SPRAG_HOLDER").contains('#'));
    assert!(value("SPRAG_DEADLINE").ends_with('Z'));
    assert!(!std::path::Path::new(&value("SPRAG_SOCKET")).exists(), "it is removed at the end");
}

#[test]
fn a_name_that_looks_like_a_flag_needs_two_dashes_before_it() {
    let place = Place::new();
    let ended = place.end(&["run", "--", "--tll", "sh", "-c", "echo $SPRAG_LOCK"]);
    assert_eq!(ended.out, "--tll\n", "{ended:?}");
    let ended = place.end(&["run", "--tll", "3", "sh", "-c", "echo $SPRAG_LOCK"]);
    assert_eq!((ended.code, ended.out.as_str()), (64, ""), "{ended:?}");
}
