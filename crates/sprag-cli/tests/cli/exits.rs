use super::support::{Home, text};

const NOBODY: &str = "00000000000000000000000000000000";

#[test]
fn every_command_ends_with_the_code_of_the_table() {
    let home = Home::new();
    let held = home.acquire("held");
    let token = held["token"].to_string();
    let bad = home.write("bad.toml", "wait = \"soon\"");
    let table: &[(&[&str], i32)] = &[
        (&["--help"], 0),
        (&["help", "run"], 0),
        (&["--version"], 0),
        (&["ls"], 0),
        (&["show", "nothing"], 0),
        (&["why"], 0),
        (&["stores"], 0),
        (&["config"], 0),
        (&["run", "free", "--", "true"], 0),
        (&["check", "held", "--lease", NOBODY], 1),
        (&["run", "free", "--", "sh", "-c", "exit 42"], 42),
        (&[], 64),
        (&["bogus"], 64),
        (&["ls", "--bogus"], 64),
        (&["acquire", ""], 64),
        (&["acquire", "a,b"], 64),
        (&["acquire", "x", "--ttl", "soon"], 64),
        (&["acquire", "x", "--ttl", "1ms"], 64),
        (&["check"], 64),
        (&["release", "held"], 64),
        (&["release", "held", "--lease", "nonsense"], 64),
        (&["explain", "nonsense"], 64),
        (&["man", "nonsense"], 64),
        (&["break", "held", "--token", &token, "-m", "why", "--force"], 64),
        (&["acquire", "-n", "held"], 75),
        (&["acquire", "-w", "0", "held"], 75),
        (&["acquire", "-w", "50ms", "held"], 75),
        (&["acquire", "-n", "-E", "9", "held"], 9),
        (&["run", "-n", "held", "--", "true"], 75),
        (&["release", "held", "--lease", NOBODY], 77),
        (&["renew", "held", "--lease", NOBODY], 77),
        (&["renew", "held", "--lease", NOBODY, "--ttl", "1m"], 77),
        (&["break", "held", "--token", "1", "-m", "why", "--yes"], 77),
        (&["break", "free", "--token", "1", "-m", "why", "--yes"], 77),
        (&["break", "held", "--token", &token, "-m", "why", "--yes"], 77),
        (&["ls", "-S", "mysql://db/locks"], 78),
        (&["ls", "-S", "sqlite://host/x.db"], 78),
        (&["ls", "-S", "nameless"], 78),
        (&["ls", "--config", text(&bad)], 78),
        (&["ls", "--config", "missing.toml"], 78),
        (&["run", "free", "--", "no-such-command"], 127),
        (&["run", "free", "--", "/"], 126),
        (&["run", "free", "--", "sh", "-c", "kill -TERM $$"], 143),
    ];
    for (args, code) in table {
        let answer = home.sprag(args);
        assert_eq!(answer.code, *code, "{args:?}: {answer:?}");
    }
    // Nothing that failed has changed anything.
    home.sprag(&["check", "held", "--lease", held["lease"].as_str().unwrap()]).ok();
}

#[test]
fn a_place_that_may_not_be_used_is_denied() {
    let home = Home::new();
    let folder = home.path("work");
    home.sprag(&["ls", "-S", &format!("sqlite:{}", folder.display())]).exits(77);
    let other = home.write("work/other.db", "this is a letter, not a database\n");
    home.sprag(&["acquire", "x", "-S", "sqlite:other.db"]).exits(78);
    assert_eq!(std::fs::read_to_string(other).unwrap(), "this is a letter, not a database\n");
}

#[test]
fn a_store_that_does_not_answer_is_unavailable() {
    let home = Home::new();
    let url = "sqlite:locks.db?busy_timeout_ms=50";
    home.sprag(&["acquire", "x", "-S", url]).ok();
    let database = rusqlite::Connection::open(home.path("work/locks.db")).unwrap();
    database.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let said = home.sprag(&["acquire", "-n", "y", "-S", url, "--json"]).exits(69).error();
    assert_eq!(said["code"], "unavailable");
    database.execute_batch("ROLLBACK").unwrap();
    home.sprag(&["acquire", "-n", "y", "-S", url]).ok();
}

#[test]
fn the_table_is_in_the_help_and_knows_every_code() {
    let home = Home::new();
    let table = home.sprag(&["explain", "exit-codes"]).ok().out;
    let codes = home.sprag(&["explain", "--json"]).ok().json();
    for code in codes["codes"].as_array().unwrap() {
        let exit = code["exit"].as_u64().unwrap();
        assert!(table.lines().any(|line| line.starts_with(&format!("{exit} "))), "{exit}");
        let explained = home.sprag(&["explain", code["id"].as_str().unwrap()]).ok().out;
        assert!(explained.contains(code["code"].as_str().unwrap()), "{explained}");
    }
}
