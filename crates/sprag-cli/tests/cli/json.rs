use serde_json::Value;

use super::support::{Home, commands};

#[track_caller]
fn has(value: &Value, fields: &[&str]) {
    for field in fields {
        assert!(value.get(field).is_some(), "no {field} in {value}");
    }
}

/// What a command is asked, and the fields of its answer.
type Case<'a> = (&'a [&'a str], &'a [&'a str]);

#[test]
fn every_command_answers_in_json() {
    let home = Home::new();
    let taken = home.acquire("x");
    has(&taken, &["schema", "changed", "lock", "lease", "token", "ttl_ms", "expires", "store"]);
    let (lease, token) = (taken["lease"].as_str().unwrap(), taken["token"].to_string());
    let pages = home.path("pages").display().to_string();
    let cases: &[Case<'_>] = &[
        (&["check", "x", "--lease", lease], &["held", "locks"]),
        (&["renew", "x", "--lease", lease], &["changed", "lock", "token", "ttl_ms", "expires"]),
        (&["ls"], &["locks", "waiters", "stale"]),
        (&["show", "x"], &["name", "token", "holders", "waiters", "own", "free", "store"]),
        (&["why", "x"], &["locks"]),
        (&["log"], &["entries"]),
        (
            &["break", "x", "--token", &token, "-m", "test", "--force", "--yes"],
            &["changed", "lock", "token", "broken", "next"],
        ),
        (&["stores"], &["stores"]),
        (&["doctor", "--rounds", "3"], &["store", "healthy", "median_us", "can", "findings"]),
        (&["config"], &["settings"]),
        (&["completions", "bash"], &["script"]),
        (&["man"], &["page", "roff"]),
        (&["man", "--directory", &pages], &["changed", "pages"]),
        (&["explain"], &["codes", "topics"]),
        (&["explain", "held"], &["code", "id", "exit", "text"]),
        (&["explain", "tokens"], &["topic", "text"]),
    ];
    for (args, fields) in cases {
        let answer = home.sprag(&[args, &["--json"][..]].concat()).ok();
        let json = answer.json();
        assert_eq!(json["schema"], 1, "{args:?}");
        assert_eq!(answer.err, "", "{args:?}");
        has(&json, fields);
    }
    // The rest: `acquire` above, `release` below, `demo`, `run` and `work` have tests of their own.
    let gone = home.acquire("y");
    let lease = gone["lease"].as_str().unwrap();
    let released = home.sprag(&["release", "y", "--lease", lease, "--json"]).ok().json();
    has(&released, &["schema", "changed", "lock", "token", "held_ms"]);
    let tried =
        cases.iter().map(|(args, _)| args[0]).chain(["acquire", "release", "demo", "run", "work"]);
    let tried: Vec<_> = tried.collect();
    for command in commands(&home) {
        assert!(tried.contains(&command.as_str()), "{command} has no case here");
    }
}

#[test]
fn errors_are_json_on_stderr_with_the_same_exit_code() {
    let home = Home::new();
    home.acquire("x");
    let nobody = "00000000000000000000000000000000";
    let cases: &[(&[&str], &str)] = &[
        (&["acquire", "-n", "x"], "held"),
        (&["release", "x", "--lease", nobody], "not_holder"),
        (&["break", "x", "--token", "1", "-m", "why"], "not_broken"),
        (&["ls", "--bogus"], "usage"),
        (&["bogus"], "usage"),
        (&["ls", "-S", "mysql:x"], "unknown_store"),
        (&["ls", "-S", "sqlite:x?y=1"], "bad_url"),
        (&["ls", "--config", "missing"], "config"),
        (&["explain", "nonsense"], "unknown"),
        (&["run", "y", "--", "no-such-command"], "command_not_found"),
    ];
    for (args, code) in cases {
        let mut json = vec!["--json"];
        json.extend(*args);
        let answer = home.sprag(&json);
        let error = answer.error();
        assert_eq!(error["code"], *code, "{args:?}: {answer:?}");
        assert_eq!(error["exit"], answer.code, "{args:?}");
        assert_eq!(answer.code, home.sprag(args).code, "{args:?}");
        assert_eq!(answer.out, "", "{args:?}");
        has(&error, &["id", "message", "hints"]);
    }
    let held = home.sprag(&["acquire", "-n", "x", "--json"]).error();
    assert_eq!((held["lock"].as_str(), held["state"]["name"].as_str()), (Some("x"), Some("x")));
    has(&held["state"]["holders"][0], &["holder", "token", "since", "remaining_ms"]);
}

#[test]
fn lease_ids_of_others_are_never_shown() {
    let home = Home::new();
    let lease = home.acquire("x")["lease"].as_str().unwrap().to_owned();
    for args in [&["ls"][..], &["show", "x"], &["why", "x"], &["acquire", "-n", "x"]] {
        let answer = home.sprag(&[args, &["--json"][..]].concat());
        assert!(!answer.out.contains(&lease) && !answer.err.contains(&lease), "{args:?}");
    }
}
