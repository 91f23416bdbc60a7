use std::io::{BufRead, BufReader};

use serde_json::Value;

use super::support::Home;

#[test]
fn what_happened_is_in_the_log() {
    let home = Home::new();
    let lease = home.acquire("x")["lease"].as_str().unwrap().to_owned();
    home.sprag(&["acquire", "-n", "x", "--holder", "late"]).exits(75);
    home.sprag(&["release", "x", "--lease", &lease]).ok();
    let token = home.acquire("y")["token"].to_string();
    home.sprag(&["break", "y", "--token", &token, "-m", "it hangs", "--force", "--yes"]).ok();

    let log = home.mask(&home.sprag(&["log"]).ok().out);
    let lines: Vec<_> = log.lines().map(|l| l.split_whitespace().collect::<Vec<_>>()).collect();
    let kinds: Vec<_> = lines.iter().map(|words| (words[1], words[2])).collect();
    assert_eq!(
        kinds,
        [
            ("acquired", "x"),
            ("refused", "x"),
            ("released", "x"),
            ("acquired", "y"),
            ("broken", "y")
        ]
    );
    assert_eq!(lines[2].join(" "), "TIME released x token TOKEN tester@HOST#PID");
    assert!(log.contains("broke it: it hangs"), "{log}");
    // The lease id is a secret, and stays one after its end.
    assert!(!home.sprag(&["log", "--json"]).ok().out.contains(&lease));

    let some = home.sprag(&["log", "y", "-n", "1", "--json"]).ok().json();
    let entries = some["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!((&entries[0]["kind"], &entries[0]["lock"]), (&"broken".into(), &"y".into()));
    assert_eq!(home.sprag(&["log", "-n", "0"]).ok().out, "");
}

#[test]
fn who_comes_with_an_old_lease_is_in_the_log() {
    let home = Home::new();
    let old = home.acquire("x");
    let (token, lease) = (old["token"].to_string(), old["lease"].as_str().unwrap());
    home.sprag(&["break", "x", "--token", &token, "-m", "why", "--force", "--yes"]).ok();
    home.acquire("x");
    home.sprag(&["release", "x", "--lease", lease, "--holder", "ann"]).exits(77);
    home.sprag(&["renew", "x", "--lease", lease, "--ttl", "1m", "--holder", "ann"]).exits(77);
    let log = home.sprag(&["log", "x", "-n", "2"]).ok().out;
    let said: Vec<_> = log.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(
        said,
        [
            format!("refused       x  token {token}  ann  release with old token"),
            format!("refused       x  token {token}  ann  renewal with old token"),
        ]
    );
}

#[test]
fn the_log_is_followed() {
    let home = Home::new();
    home.acquire("before");
    let mut follow = home.start(&["log", "-f", "-n", "1", "--json"]);
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let first = next();
    assert_eq!((&first["schema"], &first["lock"]), (&1.into(), &"before".into()));
    home.acquire("after");
    assert_eq!(next()["lock"], "after");
    follow.kill().unwrap();
    follow.wait().unwrap();
}
