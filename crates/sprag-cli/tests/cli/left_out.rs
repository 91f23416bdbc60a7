//! What is not shown is said.

use super::support::Home;

#[test]
fn a_list_says_when_it_stops() {
    let home = Home::new();
    for name in ["a", "b", "c"] {
        home.acquire(name);
    }
    let said = home.sprag(&["ls", "--limit", "2"]).ok().out;
    assert!(said.contains("\n2 locks, 0 waiters"), "{said}");
    assert!(
        said.ends_with("the first 2, there are more: name a PREFIX, or say --limit N\n"),
        "{said}"
    );
    let json = home.sprag(&["ls", "--limit", "2", "--json"]).ok().json();
    assert_eq!((json["locks"].as_array().unwrap().len(), &json["truncated"]), (2, &true.into()));
    for limit in [&["--limit", "3"][..], &[]] {
        let all = home.sprag(&[&["ls", "--json"], limit].concat()).ok().json();
        assert_eq!(all["truncated"], false, "{limit:?}");
        assert!(!home.sprag(&[&["ls"], limit].concat()).ok().out.contains("there are more"));
    }
    home.sprag(&["ls", "--limit", "0"]).exits(64);
    assert_eq!(home.sprag(&["why", "--json"]).ok().json()["truncated"], false);
}

#[test]
fn a_log_says_that_there_is_more() {
    let home = Home::new();
    for name in ["a", "b", "c"] {
        home.acquire(name);
    }
    for (lines, truncated) in [("2", true), ("3", false), ("0", true)] {
        let said = home.sprag(&["log", "-n", lines]).ok();
        assert_eq!(said.out.lines().count().to_string(), lines, "{said:?}");
        assert_eq!(said.err.contains("older entries are left out"), truncated, "{said:?}");
        let json = home.sprag(&["log", "-n", lines, "--json"]).ok().json();
        assert_eq!(json["truncated"], truncated);
        assert_eq!(json["entries"].as_array().unwrap().len().to_string(), lines);
    }
}

#[test]
fn one_bad_record_is_named_and_hides_no_other() {
    let home = Home::new();
    for name in ["bad", "fine", "strange"] {
        home.sprag(&["acquire", name, "--ttl", "10m", "-S", "sqlite:locks.db"]).ok();
    }
    let database = rusqlite::Connection::open(home.path("work/locks.db")).unwrap();
    let spoil = |sql: &str| assert_eq!(database.execute(sql, []).unwrap(), 1, "{sql}");
    spoil("UPDATE lock SET record = 'hello' WHERE name = 'bad'");
    spoil("UPDATE lock SET name = 'strange' || char(7) WHERE name = 'strange'");
    let ls = home.sprag(&["ls", "-S", "sqlite:locks.db"]).ok();
    assert!(ls.out.contains("fine") && ls.out.contains("1 lock, 0 waiters"), "{ls:?}");
    assert!(ls.out.contains("left out, cannot be read: bad, strange\\u{7}\n"), "{ls:?}");
    let json = home.sprag(&["ls", "-S", "sqlite:locks.db", "--json"]).ok().json();
    assert_eq!(json["unreadable"], serde_json::json!(["bad", "strange\u{7}"]));
    let doctor = home.sprag(&["doctor", "-S", "sqlite:locks.db", "--rounds", "2"]).ok().out;
    assert!(doctor.contains("can be read, but for bad, strange\\u{7}"), "{doctor}");
}
