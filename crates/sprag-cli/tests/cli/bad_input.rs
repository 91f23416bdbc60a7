use super::support::Home;

/// In a container, a pod or a CI job.
#[test]
fn a_store_that_nobody_named_and_few_see_is_said_to() {
    let home = Home::new();
    for (variable, value, here) in [
        ("container", "docker", "container"),
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1", "Kubernetes pod"),
        ("CI", "true", "CI job"),
    ] {
        for words in [&["run", "x", "--", "true"][..], &["acquire", "x", "--ttl", "100ms"]] {
            let said = home.sprag_with(&[(variable, value)], words).ok().err;
            let start =
                format!("warning: no store is named, so this lock is in a file of this {here} ");
            assert!(said.starts_with(&start) && said.contains("SPRAG_STORE"), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        let here = (variable, value);
        let quiet = |env: &[(&str, &str)], words: &[&str]| {
            assert_eq!(home.sprag_with(env, words).ok().err, "", "{variable} {words:?}");
        };
        quiet(&[here], &["run", "-S", "sqlite:", "x", "--", "true"]);
        quiet(&[here, ("SPRAG_STORE", "sqlite:")], &["run", "x", "--", "true"]);
        quiet(&[here], &["ls"]);
    }
}

/// As in a service of systemd.
#[test]
fn without_a_home_both_ways_out_are_named() {
    let home = Home::new();
    let output = home.command(&["run", "x", "--", "true"]).env_remove("HOME").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(77), "{said}");
    for part in ["SPRAG_STORE=system:", "StateDirectory=NAME", "SPRAG_STORE=sqlite:/var/lib/NAME/"]
    {
        assert!(said.contains(part), "no {part} in {said}");
    }
}

#[test]
fn bad_input_is_named_with_its_place_and_what_was_meant() {
    let home = Home::new();
    home.write("work/bad.toml", "store = \"sqlite:\"\nwiat = 3\n");
    let long = "x".repeat(256);
    let table: &[(&[&str], i32, &[&str])] = &[
        (&["shwo", "x"], 64, &["'shwo'", "'show'"]),
        (&["rnu", "x", "true"], 64, &["'rnu'", "'run'"]),
        (&["lock", "x", "true"], 64, &["'lock'", "sprag run"]),
        (&["work", "nxt"], 64, &["'nxt'", "'next'", "sprag help work"]),
        (&["force-unlock", "x"], 64, &["'force-unlock'", "sprag break"]),
        (&["run", "--tll", "3", "x", "true"], 64, &["'--tll'", "'--ttl'", "sprag help run"]),
        (&["run", "-n", "-k", "x", "true"], 64, &["unexpected argument '-k'", "'-- -k'"]),
        (&["ls", "--jsno"], 64, &["'--jsno'", "'--json'"]),
        (&["acquire", "--tll", "3", "x"], 64, &["'--tll'", "'--ttl'", "sprag help acquire"]),
        (
            &["acquire", "x", "--ttl", "5 minutes"],
            64,
            &["\"5 minutes\" is no duration", "--ttl", "sprag help acquire"],
        ),
        (&["acquire", "x", "--ttl", "1ms"], 64, &["1ms", "between"]),
        (&["acquire", "x", "--wait", "-1"], 64, &["-1"]),
        (&["acquire", "x", "--priority", "9"], 64, &["9", "--priority"]),
        (&["acquire", "x", "--slots", "0"], 64, &["0", "--slots"]),
        (&["acquire", "-n", "-w", "3", "x"], 64, &["--nonblock", "--wait"]),
        (&["acquire", ""], 64, &["the lock name is empty"]),
        (&["acquire", "a\nb"], 64, &["control character"]),
        (&["acquire", &long], 64, &["256 bytes"]),
        (&["acquire", "a,b"], 64, &["no comma"]),
        (&["break", "x", "--token", "x", "-m", "y"], 64, &["whole number", "--token"]),
        (&["break", "x", "-m", "y"], 64, &["--token"]),
        (&["break", "x", "--token", "1"], 64, &["--reason"]),
        (&["ls", "-o", "nmae"], 64, &["'nmae'", "'name'"]),
        (&["doctor", "--rounds", "0"], 64, &["0", "--rounds"]),
        (&["explain", "SP01"], 64, &["\"SP01\"", "\"SP001\""]),
        (&["explain", "exit-code"], 64, &["\"exit-codes\""]),
        (&["man", "rum"], 64, &["\"run\""]),
        (
            &["ls", "-S", "mysql://db/x"],
            78,
            &["mysql://db/x", "supports: memory sqlite redis redlock postgres"],
        ),
        (&["ls", "-S", "sqlite://x.db"], 78, &["sqlite:locks.db", "sqlite:///"]),
        (&["ls", "-S", "sqlite:x.db?mode=ro"], 78, &["unknown parameter", "busy_timeout_ms"]),
        (&["ls", "-S", "locks.db"], 78, &["--store names no store", "sqlite:./locks.db"]),
        (&["ls", "--config", "bad.toml"], 78, &["bad.toml:2", "`wiat`", "`wait`"]),
        (&["ls", "--config", "none.toml"], 78, &["none.toml", "No such file"]),
        (&["ls", "--color", "blue"], 64, &["blue", "always"]),
    ];
    for (args, code, parts) in table {
        let answer = home.sprag(args);
        assert_eq!(answer.code, *code, "{args:?}: {answer:?}");
        assert!(answer.err.starts_with("error[SP0"), "{args:?}: {answer:?}");
        for part in *parts {
            assert!(answer.err.contains(part), "{args:?}: no {part} in {}", answer.err);
        }
        assert_eq!(answer.out, "", "{args:?}");
    }
}

#[test]
fn bad_variables_are_named() {
    let home = Home::new();
    for (name, value, part) in [
        ("SPRAG_WAIT", "soon", "SPRAG_WAIT: \"soon\" is no duration"),
        ("SPRAG_TTL", "1x", "SPRAG_TTL: \"1x\""),
        ("SPRAG_COLOR", "blue", "SPRAG_COLOR: \"blue\" is not auto, always or never"),
        ("SPRAG_STORE", "${NOBODY}", "SPRAG_STORE: the variable NOBODY is not set"),
        ("SPRAG_STORE", "prod", "SPRAG_STORE names no store"),
        ("SPRAG_CONFIG", "none.toml", "none.toml: cannot read it"),
    ] {
        let said = home.sprag_with(&[(name, value)], &["ls"]).exits(78).err;
        assert!(said.contains(part), "{said}");
    }
    // Set but empty is as if it were not set.
    home.sprag_with(&[("SPRAG_WAIT", ""), ("SPRAG_STORE", "")], &["ls"]).ok();
}

/// Otherwise the locks would be somewhere else, and nobody would know.
#[test]
fn a_misspelt_variable_is_said() {
    let home = Home::new();
    let env = [("SPRAG_STROE", "redis://db"), ("SPRAG_FLEET", "7")];
    let said = home.sprag_with(&env, &["ls"]).ok().err;
    let expected = "warning: SPRAG_STROE is no variable of sprag: did you mean SPRAG_STORE?\n";
    assert_eq!(said, expected);
    assert_eq!(home.sprag_with(&env, &["ls", "-q"]).ok().err, "");
    let said = home.sprag_with(&env, &["ls", "--json"]).ok().err;
    assert!(said.starts_with(r#"{"schema":1,"warning":"SPRAG_STROE"#), "{said}");
}

/// Who names a store believes that claims are there.
#[test]
fn a_store_for_work_is_said_to_be_none() {
    let home = Home::new();
    let said = home.sprag(&["work", "ls", "-S", "redis://db"]).exits(78).err;
    assert!(said.starts_with("warning: --store changes nothing here"), "{said}");
}

/// As it may be left over from somebody's tests.
#[test]
fn a_store_that_excludes_nobody_is_said_to() {
    let home = Home::new();
    let said = home.sprag_with(&[("SPRAG_STORE", "memory:")], &["run", "x", "true"]).ok().err;
    assert!(said.starts_with("warning: memory: is a store for this process alone"), "{said}");
    assert_eq!(home.sprag(&["ls", "-S", "memory:"]).ok().err, "");
}

/// Without the flag it would be another store that is looked at.
#[test]
fn what_to_type_names_the_store_of_the_flag_but_no_secret() {
    let home = Home::new();
    home.write("work/sprag.toml", "[stores.ours]\nurl = \"sqlite:ours.db\"\n");
    home.sprag(&["acquire", "x", "--ttl", "10m", "-S", "ours"]).ok();
    let said = home.sprag(&["run", "-n", "-S", "ours", "x", "true"]).exits(75).err;
    assert!(said.contains("sprag run -S ours --wait 10m x -- ..."), "{said}");
    assert!(said.contains("sprag show -S ours -w x"), "{said}");
    let said = home.sprag(&["run", "-n", "-S", "sqlite:ours.db", "x", "true"]).exits(75).err;
    assert!(said.contains("sprag why -S sqlite:ours.db x"), "{said}");
    let said = home.sprag(&["ls", "-S", "redis://me:secret@localhost:1"]).exits(69).err;
    assert!(said.contains("sprag doctor -S URL\n") && !said.contains("secret"), "{said}");
    let said = home.sprag_with(&[("SPRAG_STORE", "ours")], &["run", "-n", "x", "true"]).exits(75);
    assert!(said.err.contains("sprag show -w x"), "{said:?}");
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    let home = Home::new();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for args in [&["ls"][..], &["stores", "--json"], &["acquire", "x", "--ttl", "10m"]] {
        let output = home.command(args).stdout(full()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(69), "{args:?}: {said}");
        assert!(said.contains("No space left on device"), "{args:?}: {said}");
    }
    // Nobody knows its lease.
    assert_eq!(home.sprag(&["show", "x", "--json"]).ok().json()["holders"], serde_json::json!([]));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let home = Home::new();
    let mut child = home.start(&["man", "run"]);
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_state_directory_may_be_removed_between_commands() {
    let home = Home::new();
    let before = home.acquire("x");
    std::fs::remove_dir_all(home.path(".local")).unwrap();
    let after = home.sprag(&["acquire", "-n", "x", "--json"]).ok().json();
    // Whoever deletes the store frees its locks, but tokens still only grow.
    assert!(after["token"].as_u64() > before["token"].as_u64());
}

#[test]
fn a_store_of_a_newer_sprag_is_left_as_it_is() {
    let home = Home::new();
    home.sprag(&["acquire", "x", "-S", "sqlite:locks.db"]).ok();
    let newer = |version: i32| {
        let database = rusqlite::Connection::open(home.path("work/locks.db")).unwrap();
        let before = database.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        database.pragma_update(None, "user_version", version).unwrap();
        before
    };
    let known: i32 = newer(99);
    for args in [&["run", "x", "true"][..], &["acquire", "-n", "x"], &["ls"], &["doctor"]] {
        let said = home.sprag(&[&["-S", "sqlite:locks.db"], args].concat());
        assert_eq!(said.code, 78, "{args:?}: {said:?}");
        let part = format!("has schema 99 and this version of sprag knows {known}: upgrade sprag");
        assert!(said.err.starts_with("error[SP034]: ") && said.err.contains(&part), "{}", said.err);
        assert!(said.err.contains("\n  store    sqlite:locks.db (from --store)"), "{}", said.err);
    }
    assert_eq!(newer(known), 99);
    home.sprag(&["acquire", "-n", "x", "-S", "sqlite:locks.db"]).exits(75);
}

#[test]
fn a_state_directory_that_cannot_be_written_is_named() {
    let home = Home::new();
    let folder = home.path("state");
    std::fs::create_dir(&folder).unwrap();
    // In a world of its own, where that folder is read-only for everybody.
    let mount = "mount -t tmpfs -o ro none \"$0\" && exec \"$@\"";
    for args in [&["run", "x", "true"][..], &["acquire", "x"], &["ls"]] {
        let mut command = std::process::Command::new("unshare");
        home.dress(&mut command);
        command.args(["--map-root-user", "--mount", "sh", "-c", mount]).arg(&folder);
        command.arg(env!("CARGO_BIN_EXE_sprag")).args(args).env("XDG_STATE_HOME", &folder);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(77), "{args:?}: {said}");
        assert!(said.starts_with("error[SP031]: "), "{said}");
        assert!(said.contains("state") && said.contains("Read-only file system"), "{said}");
    }
}
