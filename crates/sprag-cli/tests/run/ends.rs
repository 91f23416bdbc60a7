//! How `sprag run` ends: the exit codes, and that the lock is free by then.

use crate::support::Place;

#[test]
fn the_exit_code_is_the_commands_own() {
    let place = Place::new();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 42", 42),
        ("exit 75", 75),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        let ended = place.end(&["run", "-n", "x", "--", "sh", "-c", script]);
        assert_eq!((ended.code, ended.err.as_str()), (code, ""), "{script}");
    }
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn a_command_that_cannot_be_started_is_said_after_the_lock_is_free() {
    let place = Place::new();
    std::fs::write(place.path("data"), "no program").unwrap();
    for (command, code, id) in [
        ("/no/such/command", 127, "SP060"),
        ("no-such-command", 127, "SP060"),
        ("./data", 126, "SP061"),
        ("/", 126, "SP061"),
    ] {
        let ended = place.end(&["run", "-n", "x", command]);
        assert_eq!(ended.code, code, "{command}: {}", ended.err);
        assert!(
            ended.err.starts_with(&format!("error[{id}]: cannot run {command:?}: ")),
            "{}",
            ended.err
        );
        assert!(!place.look("x").is_locked());
    }
}

#[test]
fn a_lock_that_is_held_is_75_or_what_is_asked_for() {
    let place = Place::new();
    let mut holder =
        place.sprag(&["run", "-m", "nightly build", "-c", "echo up > up; exec cat", "x"]);
    let mut holder = place.run({
        holder.stdin(std::process::Stdio::piped());
        holder
    });
    place.wait_lines("up", 1);
    for (words, code) in [
        (&["run", "-n", "x", "true"][..], 75),
        (&["run", "-w", "0", "x", "true"], 75),
        (&["run", "-w", "150ms", "x", "true"], 75),
        (&["run", "--if-held", "fail", "x", "true"], 75),
        (&["run", "-n", "-s", "x", "true"], 75),
        (&["run", "-n", "-E", "9", "x", "true"], 9),
        (&["run", "-n", "a,x,z", "true"], 75),
    ] {
        let ended = place.end(words);
        assert_eq!(ended.code, code, "{words:?}: {}", ended.err);
        assert!(ended.err.contains("error[SP001]: lock \"x\" is held\n"), "{}", ended.err);
        assert!(ended.err.contains("\n  reason   nightly build\n"), "{}", ended.err);
        assert!(ended.err.contains("\n  lease    alive: renewed "), "{}", ended.err);
    }
    assert!(!place.look("a").is_locked() && !place.look("z").is_locked(), "all or nothing");
    let skipped = place.end(&["run", "--if-held", "skip", "x", "true"]);
    assert_eq!(skipped.code, 0);
    let json = place.end(&["run", "--if-held", "skip", "--json", "x", "true"]);
    assert_eq!(json.err, "{\"schema\":1,\"skipped\":\"lock \\\"x\\\" is held\"}\n");
    assert!(skipped.err.starts_with("sprag: skipped: lock \"x\" is held"), "{}", skipped.err);
    let quiet = place.end(&["run", "-q", "--if-held", "skip", "x", "true"]);
    assert_eq!((quiet.code, quiet.err.as_str()), (0, ""));
    drop(holder.child.stdin.take());
    assert_eq!(holder.end().code, 0);
    assert_eq!(place.end(&["run", "-n", "x", "true"]).code, 0);
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_touched() {
    let place = Place::new();
    for (words, message) in [
        (
            &["run", "--ttl", "10s", "--kill-after", "5s", "x", "true"][..],
            "ttl 10s is too short for --kill-after 5s (need at least 3 x kill-after = 15s)",
        ),
        (
            &["run", "-F", "x", "true"],
            "--no-fork cannot work here: someone must renew the lease while the command runs",
        ),
        (
            &["run", "-o", "x", "true"],
            "--close cannot work here: someone must renew the lease while the command runs",
        ),
        (&["run", "x"], "what shall run under \"x\"? sprag run x -- COMMAND"),
        (
            &["run", "--slots", "2", "a,b", "true"],
            "--slots and --once-per go with one lock, not with several",
        ),
        (&["run", "--priority", "9", "x", "true"], "9 is not in -8..=8"),
    ] {
        let ended = place.end(words);
        assert_eq!(ended.code, 64, "{words:?}: {}", ended.err);
        assert!(ended.err.contains(message), "{}", ended.err);
    }
}

#[test]
fn a_store_that_cannot_be_used_is_no_held_lock() {
    let place = Place::new();
    let ended = place.end(&["-S", "sqlite:/proc/no/such.db", "run", "x", "true"]);
    assert!([69, 77].contains(&ended.code), "{ended:?}");
    let ended = place.end(&["-S", "mysql://db/locks", "run", "x", "true"]);
    assert_eq!(ended.code, 78, "{}", ended.err);
}

#[test]
fn programs_can_tell_our_75_from_the_commands() {
    let place = Place::new();
    let script = format!(
        "{} run --status-fd 3 x -- sh -c 'exit 75' 3>status; echo $? >> status",
        env!("CARGO_BIN_EXE_sprag")
    );
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]);
    place.set_up(&mut shell);
    assert!(shell.status().unwrap().success());
    assert_eq!(place.read("status"), "{\"code\":75,\"outcome\":\"child_exit\",\"schema\":1}\n75\n");
}

#[test]
fn an_outcome_that_nobody_could_read_is_refused_before_anything_is_done() {
    let place = Place::new();
    let words = ["run", "x", "--", "sh", "-c", "echo ran >> log"];
    let mut file = place.sprag(&words);
    file.env("SPRAG_RESULT_FILE", place.path("nowhere/result"));
    let descriptor = place.sprag(&[&["run", "--status-fd", "77"], &words[1..]].concat());
    for command in [file, descriptor] {
        let ended = place.run(command).end();
        assert_eq!(ended.code, 64, "{ended:?}");
        assert!(ended.err.contains("the outcome cannot be written to /"), "{ended:?}");
    }
    assert!(!place.path("log").exists());
}

#[test]
fn several_locks_are_taken_and_given_back_together() {
    let place = Place::new();
    let script = "echo $SPRAG_LOCK $SPRAG_TOKEN $SPRAG_TOKEN_A $SPRAG_TOKEN_B_1";
    let ended = place.end(&["run", "b/1,a", "--", "sh", "-c", script]);
    let words: Vec<_> = ended.out.split_whitespace().collect();
    assert_eq!(words.len(), 3, "{ended:?}");
    assert_eq!(words[0], "a,b/1");
    assert_eq!(words[1], place.look("a").fence.to_string());
    assert_eq!(words[2], place.look("b/1").fence.to_string());
    assert!(!place.look("a").is_locked() && !place.look("b/1").is_locked());
}

/// Leaves a job behind that ends only when it is killed, and a daemon.
const LEAVES_TWO: &str = "sh -c 'trap \"\" TERM; echo $$ > job; while :; do sleep 1; done' & \
    setsid sh -c 'echo $$ > daemon; exec sleep 100' >/dev/null 2>&1 & \
    while ! [ -s job ] || ! [ -s daemon ]; do sleep 0.01; done";

#[test]
fn background_jobs_of_the_command_end_before_the_lock_is_free_and_daemons_stay() {
    let place = Place::new();
    let ended = place.end(&["run", "--kill-after", "200ms", "x", "--", "sh", "-c", LEAVES_TWO]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let pid = |name: &str| place.read(name).trim().parse::<i32>().unwrap();
    assert!(!crate::support::is_alive(pid("job")));
    assert!(crate::support::is_alive(pid("daemon")));
    crate::support::send(pid("daemon"), rustix::process::Signal::KILL);
}

/// As in a container that somebody entered: neither its session nor its group has a number there.
#[test]
fn jobs_are_told_from_daemons_where_the_session_is_somebody_elses() {
    let place = Place::new();
    let script = "cut -d' ' -f6 /proc/self/stat; \"$SPRAG\" run --kill-after 200ms x -- sh -c \"$0\"; echo $?; \
        for name in job daemon; do kill -0 $(cat $name) && echo $name; done";
    let mut inside = std::process::Command::new("unshare");
    inside.args(["--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    inside.args(["sh", "-c", script, LEAVES_TWO]);
    place.set_up(&mut inside);
    let ended = place.run(inside).end();
    assert_eq!(ended.out.split_whitespace().collect::<Vec<_>>(), ["0", "0", "daemon"], "{ended:?}");
}
