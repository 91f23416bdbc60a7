//! The command with locks in a PostgreSQL database.

use std::process::{Command, Stdio};

use sprag_testkit::postgres_server::{Database, skipped};

use super::support::Home;

/// Both kinds of locks, in a namespace of their own each.
fn stores(url: &str) -> [String; 2] {
    ["lease", "advisory"].map(|kind| format!("{url}?mode={kind}&namespace={kind}"))
}

#[test]
fn a_command_runs_under_a_lock_in_a_database() {
    if skipped() {
        return;
    }
    let (home, database) = (Home::new(), Database::fresh());
    for store in stores(&database.url()) {
        let script = "sprag=$0; store=$1; echo $SPRAG_TOKEN; \
             $sprag run -S \"$store\" -n report -- true; echo inner $?; \
             $sprag show -S \"$store\" report --json";
        let program = env!("CARGO_BIN_EXE_sprag");
        let base = ["run", "--accept-overlap", "-S", &store, "report", "--"];
        let run = [&base[..], &["sh", "-c", script, program, &store]].concat();
        let said = home.sprag(&run).ok();
        let lines: Vec<_> = said.out.lines().collect();
        assert!(lines[0].parse::<u64>().is_ok_and(|fence| fence > 0), "{said:?}");
        assert_eq!(lines[1], "inner 64", "it was not known as our own: {said:?}");
        assert!(said.out.contains(lines[0]) && said.out.contains("holders"), "{said:?}");
        let after = home.sprag(&["show", "-S", &store, "report", "--json"]).ok().json();
        assert!(after["holders"].as_array().unwrap().is_empty(), "{after}");
        home.sprag(&[&base[..], &["sh", "-c", "exit 42"]].concat()).exits(42);
    }
}

/// The SQL that the command prints, as somebody who may create schemas would use it, and then a user
/// who may not.
#[test]
fn the_printed_schema_is_all_that_a_user_without_rights_needs() {
    if skipped() {
        return;
    }
    let (home, database) = (Home::new(), Database::fresh());
    let user = format!("user_of_{}", database.name());
    database.sql(&format!("CREATE ROLE {user} LOGIN"));
    let url = database.url().replace("postgres@", &format!("{user}@"));
    let refused = home.sprag(&["run", "-S", &url, "report", "--", "true"]);
    assert!(refused.err.contains("sprag stores --sql postgres | psql"), "{refused:?}");
    assert_ne!(refused.code, 0);

    let printed = home.sprag(&["stores", "--sql", "postgres"]).ok().out;
    let mut psql = Command::new("psql");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1"]).arg(database.url()).stdin(Stdio::piped());
    let mut psql = psql.spawn().unwrap();
    std::io::Write::write_all(&mut psql.stdin.take().unwrap(), printed.as_bytes()).unwrap();
    assert!(psql.wait().unwrap().success());
    // What the printed text says to do.
    let let_in = printed.lines().find_map(|line| line.strip_prefix("--   SELECT ")).unwrap();
    database.sql(&format!("SELECT {}", let_in.replace("the user", &user)));
    let create = format!("SELECT has_database_privilege('{user}', current_database(), 'CREATE')");
    assert_eq!(database.sql(&create), "f");
    let done = stores(&url).map(|store| {
        let run = home.sprag(&["run", "--accept-overlap", "-S", &store, "report", "--", "true"]);
        (run, home.sprag(&["log", "-S", &store, "report"]))
    });
    database.sql(&format!("DROP OWNED BY {user}; DROP ROLE {user}"));
    for (run, log) in done {
        run.ok();
        assert!(log.ok().out.contains("report"));
    }
}

#[test]
fn the_doctor_says_what_a_database_can_promise() {
    if skipped() {
        return;
    }
    let (home, database) = (Home::new(), Database::fresh());
    for (store, level) in stores(&database.url()).iter().zip(["L3", "L2"]) {
        let said = home.sprag(&["doctor", "-S", store]);
        for part in ["postgres", level, "persistence:", "wake-ups:", "deaths:"] {
            assert!(said.out.contains(part), "{part} is missing: {said:?}");
        }
        // The server of the tests does not wait for its disk, and that is said of leases.
        let forgets = said.out.contains("forgets who holds what (fsync = off)");
        assert_eq!(forgets, level == "L3", "{said:?}");
    }
}

/// A server has room for a hundred connections, and commands that wait must not use them up.
#[test]
fn a_command_that_waits_has_one_connection() {
    const WAITERS: usize = 6;
    if skipped() {
        return;
    }
    let (home, database) = (Home::new(), Database::fresh());
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let count = || database.sql(connections).parse::<usize>().unwrap();
    for store in stores(&database.url()) {
        let base = ["run", "--accept-overlap", "-S", &store, "-w", "60s", "report", "--"];
        let go = home.path(if store.ends_with("lease") { "lease" } else { "advisory" });
        let wait = format!("echo entered; until [ -e {} ]; do sleep 0.02; done", go.display());
        let mut holder = home.start(&[&base[..], &["sh", "-c", &wait]].concat());
        let mut entered = [0; 8];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut entered).unwrap();
        let mut commands: Vec<_> =
            (0..WAITERS).map(|_| home.start(&[&base[..], &["true"]].concat())).collect();
        let mut most = 0;
        while database.sql("SELECT count(*) FROM sprag.waiter") != WAITERS.to_string() {
            most = most.max(count());
        }
        let said = home.sprag(&["doctor", "-S", &store]);
        assert!(said.out.contains("more processes fit, as each has one"), "{said:?}");
        most = most.max(count());
        std::fs::write(&go, "").unwrap();
        commands.push(holder);
        for mut command in commands {
            while command.try_wait().unwrap().is_none() {
                most = most.max(count());
            }
            assert!(command.wait().unwrap().success());
        }
        assert!(most <= WAITERS + 1, "{store}: {most} connections of {} commands", WAITERS + 1);
    }
}
