//! What only the PostgreSQL store does: its server can refuse in many ways, end and come back, and
//! have a connection pool in front of it.

use std::sync::Arc;
use std::time::Duration;

use sprag::audit::AuditQuery;
use sprag::store::{Listing, Request};
use sprag::{Error, Fence, LockName, Locks};
use sprag_testkit::postgres_server::{Database, PgBouncer, PoolMode, PostgresServer, skipped};
use sprag_testkit::support::{LONG, eventually, request, within};

/// A database, unless its tests were declined.
fn database() -> Option<Database> {
    (!skipped()).then(Database::fresh)
}

fn refused(url: &str) -> Error {
    Locks::open(url).expect_err("opened")
}

/// Numbers are given out before they are written for good: behind one that is missing nothing is
/// told yet, so that who reads on from the last one misses nothing.
#[tokio::test]
async fn the_trail_is_told_in_the_order_of_its_numbers() {
    let Some(database) = database().map(Arc::new) else { return };
    let locks = Locks::open(&database.url()).unwrap();
    locks.lock("report").acquire().await.unwrap().release().await.unwrap();
    let read = async |after| {
        let query = AuditQuery { after, ..AuditQuery::default() };
        let entries = locks.store().audit(&query).await.unwrap();
        entries.iter().map(|entry| entry.sequence).collect::<Vec<_>>()
    };
    assert_eq!(read(1).await, [2]);
    // Somebody has the number 3 and is slow.
    let slow = "BEGIN; INSERT INTO sprag.trail (space, name, at_ms, plain, fence, after_ms) \
         SELECT space, name, sprag.now_us() / 1000, plain, fence, after_ms FROM sprag.trail \
         ORDER BY sequence DESC LIMIT 1; SELECT pg_sleep(1); COMMIT";
    let number = "SELECT last_value FROM sprag.trail_sequence_seq";
    let writer = Arc::clone(&database);
    let writing = tokio::task::spawn_blocking(move || writer.sql(slow));
    eventually("the number is taken", async || database.sql(number) == "3").await;
    locks.lock("report").acquire().await.unwrap().release().await.unwrap();
    let early = read(2).await;
    assert!(early.is_empty() || early == [3, 4, 5], "{early:?} was told without 3");
    writing.await.unwrap();
    assert_eq!(read(2).await, [3, 4, 5]);
}

/// What nobody has used for long is cleared away; its fence is not.
#[tokio::test]
async fn cleared_locks_leave_their_fences() {
    let Some(database) = database() else { return };
    let locks = Locks::open(&database.url()).unwrap();
    let held = locks.lock("held").acquire().await.unwrap();
    let guard = locks.lock("report").acquire().await.unwrap();
    let last = guard.fence();
    guard.release().await.unwrap();
    assert_eq!(
        database.sql("SELECT sprag.sweep(100, true, 3600000000)"),
        "0",
        "they are too young"
    );
    assert_eq!(database.sql("SELECT sprag.sweep(100, true, 0)"), "1");
    assert_eq!(database.sql("SELECT name FROM sprag.lock"), "held");
    let reader = locks.lock("report").shared().acquire().await.unwrap();
    assert!(reader.fence() >= last, "{:?} after {last:?}", reader.fence());
    held.release().await.unwrap();
}

#[tokio::test]
async fn many_may_come_first() {
    let Some(database) = database() else { return };
    let url = database.url();
    let open = |url: String| move || Locks::open(&url).map(drop);
    let first = (0..16).map(|_| std::thread::spawn(open(url.clone()))).collect::<Vec<_>>();
    for opened in first {
        opened.join().unwrap().unwrap();
    }
    assert_eq!(database.sql("SELECT version FROM sprag.meta"), "1");
}

#[tokio::test]
async fn a_refusal_says_what_to_do() {
    if skipped() {
        return;
    }
    let server = PostgresServer::start(&["-c", "fsync=off"]).await;
    let sql = |text: &str| server.sql("postgres", text);
    sql("CREATE ROLE locked LOGIN PASSWORD 'right'");
    let place = format!("127.0.0.1:{}", server.port());
    let error = refused(&format!("postgres://locked:hunter2@{place}/postgres"));
    assert!(error.is_refused() && error.to_string().contains("password"), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");

    let error = refused(&format!("postgres://postgres@{place}/no_such"));
    assert!(error.is_refused() && error.to_string().contains("createdb no_such"), "{error}");

    let error = refused(&format!("postgres://locked:right@{place}/postgres"));
    assert!(error.is_refused() && error.to_string().contains("sprag stores --sql"), "{error}");
    // What the error says to do.
    sql(sprag::stores().iter().find_map(|kind| kind.sql).expect("there is SQL"));
    let error = refused(&format!("postgres://locked:right@{place}/postgres"));
    assert!(error.is_refused() && error.to_string().contains("sprag.let_in("), "{error}");
    sql("SELECT sprag.let_in('locked')");
    let locks = Locks::open(&format!("postgres://locked:right@{place}/postgres")).unwrap();
    locks.lock("job").acquire().await.unwrap().release().await.unwrap();

    let error = refused("postgres:///app?host=/no/such/folder");
    assert!(error.is_unavailable() && error.to_string().contains("/no/such/folder"), "{error}");
}

#[tokio::test]
async fn what_is_in_the_way_is_told() {
    let Some(database) = database() else { return };
    database.sql("CREATE SCHEMA sprag; CREATE TABLE sprag.lock (id int)");
    let error = refused(&database.url());
    assert!(error.is_refused() && error.to_string().contains("another program"), "{error}");
    assert_eq!(database.sql("SELECT count(*) FROM sprag.lock"), "0", "it was touched");

    for meta in ["AS SELECT 'one'::text AS version", "(version int)"] {
        database.sql(&format!(
            "DROP SCHEMA sprag CASCADE; CREATE SCHEMA sprag; CREATE TABLE sprag.meta {meta}"
        ));
        let error = refused(&database.url());
        assert!(error.is_refused() && error.to_string().contains("another program"), "{error}");
    }

    // An empty schema that somebody made for us is fine.
    database.sql("DROP SCHEMA sprag CASCADE; CREATE SCHEMA sprag");
    drop(Locks::open(&database.url()).unwrap());

    database.sql("UPDATE sprag.meta SET version = 2");
    let error = refused(&database.url());
    assert!(error.is_corrupt() && error.to_string().contains("upgrade sprag"), "{error}");
    database.sql("UPDATE sprag.meta SET version = 1");

    database.sql("UPDATE sprag.namespace SET mode = 'advisory'");
    let error = refused(&database.url());
    assert!(error.is_refused() && error.to_string().contains("mode=advisory"), "{error}");
    drop(Locks::open(&format!("{}?namespace=other", database.url())).unwrap());
}

/// Namespaces of one database have nothing to do with each other.
#[tokio::test]
async fn a_name_in_another_namespace_is_another_lock() {
    let Some(database) = database() else { return };
    let here = Locks::open(&database.url()).unwrap();
    let there = Locks::open(&format!("{}?namespace=there", database.url())).unwrap();
    let guard = here.lock("job").acquire().await.unwrap();
    let other = there.lock("job").try_acquire().await.unwrap().expect("another lock");
    assert_eq!(here.list(&Listing::default()).await.unwrap().locks.len(), 1);
    other.release().await.unwrap();
    assert!(guard.is_valid());
}

/// Limits that were set for everybody are not for our session.
#[tokio::test]
async fn the_limits_of_the_dba_do_not_matter() {
    let Some(database) = database() else { return };
    drop(Locks::open(&database.url()).unwrap());
    for limit in [
        "statement_timeout = '100ms'",
        "lock_timeout = '100ms'",
        "idle_session_timeout = '100ms'",
        "idle_in_transaction_session_timeout = '100ms'",
        "default_transaction_isolation = 'serializable'",
    ] {
        database.sql(&format!("ALTER DATABASE {} SET {limit}", database.name()));
    }
    let locks = Locks::open(&database.url()).unwrap();
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    let connection = || {
        database.sql(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
             AND pid <> pg_backend_pid()",
        )
    };
    let before = connection();
    let row = keep_rows(&database, Duration::from_millis(400)).await;
    // It waits for the row for longer than the limits allow.
    guard.release().await.unwrap();
    row.join().unwrap();
    assert_eq!(connection(), before, "the connection was cut");
}

#[tokio::test]
async fn a_read_only_server_is_refused() {
    let Some(database) = database() else { return };
    let locks = Locks::open(&database.url()).unwrap();
    let guard = locks.lock("held").acquire().await.unwrap();
    database
        .sql(&format!("ALTER DATABASE {} SET default_transaction_read_only = on", database.name()));
    let error = refused(&database.url());
    assert!(error.is_refused() && error.to_string().contains("primary"), "{error}");
    // A session from before goes on.
    guard.release().await.unwrap();
}

#[tokio::test]
async fn connections_that_are_cut_are_made_again() {
    let Some(database) = database() else { return };
    let locks = Locks::open(&database.url()).unwrap();
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    let other = Locks::open(&database.url()).unwrap();
    let waiting = tokio::spawn(other.lock("job").ttl(LONG).acquire());
    let waits = || async { locks.inspect("job").await.is_ok_and(|view| view.waiters.len() == 1) };
    eventually("it waits", waits).await;
    database.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    guard.release().await.unwrap();
    within("it is granted", waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// One connection, however many locks and waiters there are.
#[tokio::test]
async fn a_process_has_one_connection() {
    let Some(database) = database() else { return };
    let (locks, other) =
        (Locks::open(&database.url()).unwrap(), Locks::open(&database.url()).unwrap());
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    let waiting: Vec<_> =
        (0..20).map(|_| tokio::spawn(other.lock("job").ttl(LONG).own_party().acquire())).collect();
    let waits = || async { locks.inspect("job").await.is_ok_and(|view| view.waiters.len() == 20) };
    eventually("they wait", waits).await;
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND pid <> pg_backend_pid()";
    // One of the holder, one of those who wait.
    assert_eq!(database.sql(count), "2");
    guard.release().await.unwrap();
    for waiter in waiting {
        within("it is granted", waiter).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// Who holds a lock goes on holding it when the server crashes and comes back.
#[tokio::test]
async fn locks_survive_a_crash_of_the_server() {
    if skipped() {
        return;
    }
    let mut server = PostgresServer::start(&[]).await;
    let locks = Locks::open(&server.url("postgres")).unwrap();
    let guard = locks.lock("job").ttl(LONG).acquire().await.unwrap();
    server.kill().await;
    let error = Locks::open(&server.url("postgres")).expect_err("opened");
    assert!(error.is_unavailable(), "{error}");
    server.start_again().await;
    let other = Locks::open(&server.url("postgres")).unwrap();
    assert!(other.lock("job").try_acquire().await.unwrap().is_none(), "two holders");
    let waits = || async { other.inspect("job").await.is_ok_and(|view| view.is_locked()) };
    eventually("it is held", waits).await;
    assert!(guard.is_valid());
    let fence = guard.fence();
    guard.release().await.unwrap();
    let next = other.lock("job").acquire().await.unwrap();
    assert!(next.fence() > fence, "a fence went back");
}

#[tokio::test]
async fn a_server_without_free_connections_is_told() {
    if skipped() {
        return;
    }
    let options = ["-c", "max_connections=4", "-c", "superuser_reserved_connections=0"];
    let server = PostgresServer::start(&options).await;
    let url = server.url("postgres");
    let mut stores = Vec::new();
    let error = loop {
        match sprag::open(&url) {
            Ok(store) => stores.push(store),
            Err(error) => break error,
        }
    };
    assert!(error.is_busy() && error.to_string().contains("max_connections"), "{error}");
    // Nobody else is harmed.
    assert!(stores[0].try_acquire(&request("job")).await.is_ok());
}

/// Nothing depends on the session of a connection.
#[tokio::test]
async fn it_works_through_a_pool() {
    let Some(database) = database() else { return };
    for mode in [PoolMode::Transaction, PoolMode::Session] {
        let pool = PgBouncer::start(mode, &database.folder(), database.port()).await;
        let url = pool.url(database.name());
        let store = sprag::open(&url).unwrap();
        assert!(!store.capability().notify, "{mode:?}: nobody can be woken through a pool");
        drop(store);
        let locks = Locks::open(&url).unwrap();
        let guards = 1..=8;
        let mut held = Vec::new();
        for number in guards {
            held.push(locks.lock(format!("job-{number}")).ttl(LONG).acquire().await.unwrap());
        }
        let waiting = tokio::spawn(locks.lock("job-1").ttl(LONG).own_party().acquire());
        let waits =
            || async { locks.inspect("job-1").await.is_ok_and(|view| view.waiters.len() == 1) };
        eventually("it waits", waits).await;
        for guard in held {
            guard.release().await.unwrap();
        }
        within("it is granted", waiting).await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn connections_are_encrypted_as_asked() {
    let Some(database) = database() else { return };
    let url = |host: &str, how: &str| {
        format!("postgres://postgres@{host}:{}/{}?{how}", database.port(), database.name())
    };
    let encrypted = "SELECT count(*) FILTER (WHERE s.ssl), count(*) FROM pg_stat_ssl AS s \
         JOIN pg_stat_activity AS a USING (pid) \
         WHERE a.datname = current_database() AND pid <> pg_backend_pid()";
    let root = database.folder().join("data/server.crt").display().to_string();
    let trusted = format!("sslmode=verify-full&sslrootcert={root}");
    for (host, how, seen) in [
        ("127.0.0.1", "sslmode=disable", "0|1"),
        ("127.0.0.1", "sslmode=prefer", "1|1"),
        ("localhost", "sslmode=require", "1|1"),
        ("localhost", &trusted, "1|1"),
    ] {
        let none = || async { database.sql(encrypted) == "0|0" };
        eventually("the last connection is gone", none).await;
        let store = sprag::open(&url(host, how)).unwrap();
        assert_eq!(database.sql(encrypted), seen, "{how}");
        drop(store);
    }
    for (host, how) in [("localhost", "sslmode=verify-full"), ("127.0.0.1", &trusted)] {
        let error = refused(&url(host, how));
        assert!(error.to_string().contains("certificate"), "{how}: {error}");
    }
}

/// What a request would do after its caller gave up is not done.
#[tokio::test]
async fn a_request_that_comes_too_late_is_not_done() {
    let Some(database) = database() else { return };
    let store = sprag::open(&format!("{}?timeout_ms=300", database.url())).unwrap();
    let name = LockName::new("job").unwrap();
    let (first, second) = (request("job"), request("job"));
    store.try_acquire(&first).await.unwrap();
    store.release(&name, first.lease).await.unwrap();
    let row = keep_rows(&database, Duration::from_secs(1)).await;
    let error = store.try_acquire(&second).await.unwrap_err();
    assert!(error.is_unavailable() && error.is_indeterminate(), "{error:?}");
    row.join().unwrap();
    // It comes after whatever still waits for the row.
    store.release(&name, first.lease).await.unwrap();
    assert!(!store.inspect(&name).await.unwrap().is_locked(), "done although it was too late");
}

/// A statement that nobody waits for any more may fail after it took a session lock.
#[tokio::test]
async fn a_session_lock_that_was_taken_half_way_is_given_back() {
    let Some(database) = database() else { return };
    let store = sprag::open(&format!("{}?timeout_ms=300&mode=advisory", database.url())).unwrap();
    // A lease so short is written down at once, and so waits for whoever has the row.
    let request = || Request { ttl: Duration::from_secs(5), ..request("job") };
    let first = request();
    store.try_acquire(&first).await.unwrap();
    store.release(&first.name, first.lease).await.unwrap();
    let row = keep_rows(&database, Duration::from_secs(2)).await;
    // The second stands behind the first, and is done when its caller is gone.
    let (one, other) = (request(), request());
    let (one, other) = tokio::join!(store.try_acquire(&one), store.try_acquire(&other));
    assert!(one.is_err() && other.is_err(), "{one:?} {other:?}");
    let kept = "SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database \
         WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objsubid = 1";
    eventually("nobody has the key", || async { database.sql(kept) == "0" }).await;
    row.join().unwrap();
    assert_eq!(database.sql(kept), "0", "somebody took it later");
}

/// A schema that somebody has locked is told like a server that does not answer.
#[tokio::test]
async fn a_locked_schema_does_not_hang_whoever_opens_it() {
    let Some(database) = database() else { return };
    drop(Locks::open(&database.url()).unwrap());
    let table = keep(&database, "LOCK TABLE sprag.meta", Duration::from_secs(2)).await;
    let error = refused(&format!("{}?timeout_ms=300", database.url()));
    assert!(error.is_unavailable(), "{error}");
    table.join().unwrap();
    drop(Locks::open(&database.url()).unwrap());
}

/// Somebody else keeps the rows of all locks for so long, and has them when this returns.
async fn keep_rows(database: &Database, time: Duration) -> std::thread::JoinHandle<()> {
    keep(database, "SELECT 1 FROM sprag.lock FOR UPDATE", time).await
}

/// Somebody else keeps what a statement takes.
async fn keep(database: &Database, statement: &str, time: Duration) -> std::thread::JoinHandle<()> {
    let text = format!(
        "BEGIN; SET LOCAL statement_timeout = 0; {statement}; SELECT pg_sleep({}); COMMIT",
        time.as_secs_f64()
    );
    let url = database.url();
    let keep = move || {
        let psql =
            std::process::Command::new("psql").args(["-X", "-q", "-c", &text, &url]).output();
        let done = psql.expect("there is psql");
        assert!(done.status.success(), "{done:?}");
    };
    let keeper = std::thread::spawn(keep);
    let kept = "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND wait_event = 'PgSleep'";
    eventually("it is kept", || async { database.sql(kept) == "1" }).await;
    keeper
}

/// Both ways to compare the fence that the docs show.
#[tokio::test]
async fn a_paused_writer_is_refused() {
    let Some(database) = database() else { return };
    let locks = Locks::open(&database.url()).unwrap();
    database.sql(
        "CREATE TABLE report (id int PRIMARY KEY, content text, fence bigint NOT NULL DEFAULT 0); \
         INSERT INTO report VALUES (1, 'empty'); \
         CREATE TRIGGER fenced BEFORE UPDATE ON report \
         FOR EACH ROW EXECUTE FUNCTION sprag.check_fence()",
    );
    let write = |content: &str, fence: Fence, check: &str| {
        let text = format!("UPDATE report SET content = '{content}', fence = {fence} WHERE id = 1");
        let text = format!("{text} {check} RETURNING content");
        database.try_sql(&text.replace("FENCE", &fence.to_string()))
    };
    let check = "AND fence <= FENCE";

    // This one is paused until its lease is over.
    let paused = locks.lock("report").ttl(Duration::from_millis(200)).no_renewal();
    let paused = paused.acquire().await.unwrap();
    assert_eq!(write("one", paused.fence(), check), Ok("one".into()));
    paused.lost().await;
    let guard = locks.lock("report").own_party().acquire().await.unwrap();
    assert_eq!(write("two", guard.fence(), check), Ok("two".into()));

    // It wakes up in the middle of a statement: no row, or an error by the trigger.
    assert_eq!(write("three", paused.fence(), check), Ok(String::new()));
    let error = write("three", paused.fence(), "").unwrap_err();
    assert!(error.contains("has lost its lock"), "{error}");
    assert_eq!(database.sql("SELECT content FROM report"), "two");
}
