use std::io::{BufRead, BufReader};

use serde_json::Value;

use super::support::Home;

#[test]
fn watching_prints_a_line_for_each_change() {
    let home = Home::new();
    let lease = home.acquire("x")["lease"].as_str().unwrap().to_owned();
    let mut watch = home.start(&["show", "-w", "x", "--json"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["free"], false);
    home.sprag(&["release", "x", "--lease", &lease]).ok();
    assert_eq!(next()["free"], true);
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn a_watched_list_shows_what_is_new() {
    let home = Home::new();
    home.acquire("first");
    let mut watch = home.start(&["ls", "-w", "-o", "name"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("1 lock")));
    home.acquire("second");
    assert!(lines.any(|line| line.ends_with("second")));
    assert!(lines.any(|line| line.starts_with("2 locks")));
    watch.kill().unwrap();
    watch.wait().unwrap();
}
