use rustix::process::{Pid, Signal, kill_process};

use super::support::Home;

#[test]
fn a_lease_goes_from_step_to_step_through_the_environment() {
    let home = Home::new();
    let script = "set -e
        eval \"$(sprag acquire deploy --ttl 30m --export)\"
        sprag check
        sprag renew --ttl 40m
        sprag release
        ! sprag check";
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_sprag")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut shell = std::process::Command::new("sh");
    home.dress(&mut shell);
    let output = shell.env("PATH", path).args(["-c", script]).output().unwrap();
    let said = home.mask(&String::from_utf8(output.stdout).unwrap());
    assert!(output.status.success(), "{said}");
    assert_eq!(
        said,
        "held deploy token TOKEN, safe for SPAN\n\
         renewed \"deploy\" (token TOKEN) until TIME\n\
         released \"deploy\" (token TOKEN) after SPAN\n\
         not held: deploy, the last token is TOKEN\n"
    );
}

#[test]
fn a_lease_outlives_the_process_that_took_it_and_ends_with_its_ttl() {
    let home = Home::new();
    let taken = home.sprag(&["acquire", "step", "--ttl", "300ms", "--json"]).ok().json();
    home.sprag(&["acquire", "-n", "step"]).exits(75);
    // It waits exactly until the lease is over.
    let next = home.sprag(&["acquire", "-w", "10s", "step", "--json"]).ok().json();
    assert!(next["token"].as_u64() > taken["token"].as_u64());
    let lease = taken["lease"].as_str().unwrap();
    let said = home.sprag(&["release", "step", "--lease", lease, "--json"]).exits(77).error();
    assert_eq!((said["code"].as_str(), &said["changed"]), (Some("not_holder"), &false.into()));
    assert_eq!(said["token"], next["token"]);
}

#[test]
fn renewing_without_a_ttl_keeps_the_length() {
    let home = Home::new();
    let taken = home.sprag(&["acquire", "x", "--ttl", "7m", "--json"]).ok().json();
    let lease = taken["lease"].as_str().unwrap();
    let renewed = home.sprag(&["renew", "x", "--lease", lease, "--json"]).ok().json();
    assert_eq!((&renewed["ttl_ms"], &renewed["token"]), (&420_000.into(), &taken["token"]));
}

#[test]
fn shared_locks_and_slots_are_counted() {
    let home = Home::new();
    for _ in 0..2 {
        home.sprag(&["acquire", "-n", "-s", "config"]).ok();
        home.sprag(&["acquire", "-n", "--slots", "2", "gpu"]).ok();
    }
    home.sprag(&["acquire", "-n", "config"]).exits(75);
    home.sprag(&["acquire", "-n", "--slots", "2", "gpu"]).exits(75);
    let list = home.sprag(&["ls", "-o", "name,mode,holder"]).ok().out;
    assert_eq!(
        home.mask(&list),
        "  NAME    MODE    HOLDER\n\
         * config  shared  (2 holders)\n\
         * gpu     2/2     (2 holders)\n\
         2 locks, 0 waiters      (* = yours)\n"
    );
}

#[test]
fn force_takes_the_lock_and_the_old_lease_is_over() {
    let home = Home::new();
    let old = home.acquire("x");
    let new = home.sprag(&["acquire", "--force", "x", "--json"]).ok().json();
    assert!(new["token"].as_u64() > old["token"].as_u64());
    let lease = old["lease"].as_str().unwrap();
    home.sprag(&["check", "x", "--lease", lease]).exits(1);
    home.sprag(&["renew", "x", "--lease", lease]).exits(77);
}

#[test]
fn check_asks_the_wrapper_for_one_lock_or_all() {
    let home = Home::new();
    let sprag = env!("CARGO_BIN_EXE_sprag");
    let script = format!("'{sprag}' check && '{sprag}' check b && '{sprag}' check c; echo $?");
    // The store's directory is out of reach: only the wrapper can answer.
    let script = format!("chmod 0 \"$HOME/.local\"; {script}; chmod 700 \"$HOME/.local\"");
    let answer = home.sprag(&["run", "a,b", "--", "sh", "-c", &script]).ok();
    assert_eq!(
        home.mask(&answer.out),
        "held a token TOKEN, safe for SPAN\n\
         held b token TOKEN, safe for SPAN\n\
         held b token TOKEN, safe for SPAN\n\
         77\n"
    );
    assert!(answer.err.contains("does not hold \"c\""), "{answer:?}");
}

/// What a command finds in its environment can be looked up.
#[test]
fn every_variable_of_a_command_is_explained() {
    let home = Home::new();
    let told = home.sprag(&["explain", "environment"]).ok().out;
    for words in [&["run", "--slots", "2", "x", "env"][..], &["run", "a,b", "env"]] {
        let out = home.sprag(words).ok().out;
        let names = out.lines().filter_map(|line| line.split('=').next());
        let names: Vec<_> = names.filter(|name| name.starts_with("SPRAG_")).collect();
        assert!(names.len() > 8, "{out}");
        for name in names {
            let name = match name.rsplit_once('_') {
                Some((front, "A" | "B")) => format!("{front}_NAME"),
                _ => name.to_owned(),
            };
            assert!(told.split(&[' ', ',', '\n']).any(|word| word == name), "{name}: {told}");
        }
    }
}

/// Whoever is stopped while it waits is out of the queue; whoever is killed is not handed the lock,
/// which would be nobody's until the end of its TTL.
#[test]
fn who_does_not_wait_any_more_gets_nothing() {
    let home = Home::new();
    let lease = home.acquire("x");
    for (signal, code) in
        [(Signal::TERM, Some(143)), (Signal::INT, Some(130)), (Signal::KILL, None)]
    {
        let mut waiter = home.start(&["acquire", "x", "--ttl", "10m", "--holder", "gone"]);
        home.until_queued("x");
        kill_process(Pid::from_child(&waiter), signal).unwrap();
        assert_eq!(waiter.wait().unwrap().code(), code);
        let seen = home.sprag(&["show", "x", "--json"]).ok().json();
        assert_eq!(seen["waiters"], serde_json::json!([]), "{signal:?}");
    }
    let mut waiter = home.start(&["acquire", "x", "--ttl", "10m", "--json", "--holder", "next"]);
    home.until_queued("x");
    home.sprag(&["release", "x", "--lease", lease["lease"].as_str().unwrap()]).ok();
    assert!(waiter.wait().unwrap().success());
    let seen = home.sprag(&["show", "x", "--json"]).ok().json();
    let holder = &seen["holders"][0];
    assert_eq!((&holder["holder"], &holder["detached"]), (&"next".into(), &true.into()));
    assert_eq!(holder["ttl_ms"], 600_000);
}

/// A script with `sprag` in its path.
fn script(home: &Home, text: &str) -> (i32, String, String) {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_sprag")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut shell = std::process::Command::new("sh");
    home.dress(&mut shell);
    let output = shell.env("PATH", path).args(["-c", text]).output().unwrap();
    let text = |bytes| home.mask(&String::from_utf8(bytes).unwrap());
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The next commands ask the store that the lease is from, in every folder, and none of them raises a
/// false alarm.
#[test]
fn an_exported_lease_brings_its_store_along() {
    let home = Home::new();
    home.write("work/elsewhere/sprag.toml", "store = \"sqlite:./other.db\"\n");
    for flag in ["-S sqlite:./locks.db", ""] {
        let text = format!(
            "set -e
            eval \"$(sprag acquire {flag} deploy --ttl 30m --export)\"
            cd elsewhere
            sprag check
            sprag renew --ttl 40m
            sprag release"
        );
        let (code, said, error) = script(&home, &text);
        assert_eq!((code, said.lines().count(), error.as_str()), (0, 3, ""), "{flag}: {said}");
    }
}

#[test]
fn a_lease_is_not_taken_to_another_store() {
    let home = Home::new();
    let other = format!("sqlite:{}", home.path("work/other.db").display());
    let taken = home.sprag(&["acquire", "-S", &other, "x", "--ttl", "9m", "--json"]).ok().json();
    let lease = taken["lease"].as_str().unwrap();
    for (command, done) in [("release", "released"), ("renew", "renewed"), ("check", "checked")] {
        for ttl in [&["--ttl", "1m"][..], &[]].into_iter().take(1 + usize::from(command == "renew"))
        {
            let ttl = if command == "renew" { ttl } else { &[] };
            let words = [&[command, "x", "--lease", lease], ttl].concat();
            let said = home.sprag(&words).exits(78).err;
            let start = format!(
                "error[SP015]: not {done}: your lease of \"x\" is from another store\n  asked    \
                 sqlite: (from default)\n  is from  sqlite-"
            );
            assert!(said.starts_with(&start), "{said}");
            let hint = format!("sprag {command} -S URL x --lease {lease}");
            assert!(said.contains(&hint), "no {hint} in {said}");
        }
    }
    assert_eq!(home.sprag(&["log", "--json"]).ok().out.matches("refused").count(), 0);
    // A store with a name is named.
    home.write("work/sprag.toml", "[stores.other]\nurl = \"sqlite:./other.db\"\n");
    let said = home.sprag(&["release", "x", "--lease", lease]).exits(78).err;
    assert!(said.contains("  is from  other, sqlite:"), "{said}");
    let hint = said.lines().last().unwrap().split("sprag ").nth(1).unwrap();
    home.sprag(&hint.split(' ').collect::<Vec<_>>()).ok();
    home.sprag(&["release", "-S", "other", "x", "--lease", lease]).exits(77);
}

/// What the store knows counts more than how it is spelt; and older versions named no store.
#[test]
fn another_spelling_of_the_store_is_no_false_alarm() {
    let home = Home::new();
    for mark in ["@sqlite-00000000", "@sqlite", ""] {
        let taken = home.acquire("x");
        let lease = taken["lease"].as_str().unwrap();
        let lease = format!("{}{mark}", lease.split('@').next().unwrap());
        home.sprag(&["check", "x", "--lease", &lease]).ok();
        home.sprag(&["renew", "x", "--lease", &lease]).ok();
        home.sprag(&["release", "x", "--lease", &lease]).ok();
        home.sprag(&["release", "x", "--lease", &lease]).exits(77);
        home.sprag(&["renew", "x", "--lease", &lease]).exits(77);
        home.sprag(&["check", "x", "--lease", &lease]).exits(1);
    }
}
