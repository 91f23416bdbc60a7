//! Advisory locks beside programs that do not know sprag, and beside sessions that hang.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use sprag::{DistributedLock as _, ErrorKind, Locks, advisory_key};
use sprag_testkit::postgres_server::{Database, Psql, skipped};
use sprag_testkit::support::{LONG, eventually, let_time_pass, now, spawn_acquire, within};

const NAME: &str = "report";

fn advisory(url: &str) -> Locks {
    Locks::open(&format!("{url}?mode=advisory")).unwrap()
}

fn key() -> i64 {
    advisory_key("default", NAME)
}

/// Who has the key of the lock, by the server's own view.
fn pids(database: &Database) -> String {
    database.holders_of(key())
}

/// Two programs that know nothing of each other but the key exclude each other.
#[tokio::test]
async fn other_programs_are_excluded_and_exclude_us() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = advisory(&database.url());
    let guard = locks.lock(NAME).acquire().await.unwrap();
    assert!(!pids(&database).is_empty(), "it is seen in pg_locks");
    let taken = database.sql(&format!("SELECT pg_try_advisory_lock({})", key()));
    assert_eq!(taken, "f");
    guard.release().await.unwrap();
    assert_eq!(database.sql(&format!("SELECT pg_try_advisory_lock({})", key())), "t");

    let psql = Psql::hold(&database, &format!("SELECT pg_advisory_lock({})", key()));
    eventually("the other program has it", async || !pids(&database).is_empty()).await;
    let error = locks.lock(NAME).try_acquire().await;
    assert!(matches!(error, Ok(None)), "{error:?}");
    assert!(locks.is_locked(NAME).await.unwrap());
    let waiting = spawn_acquire(locks.lock(NAME).ttl(LONG));
    let_time_pass(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    drop(psql);
    let guard = within("granted once it is gone", waiting).await.unwrap().unwrap();
    assert!(guard.is_valid());

    // Readers share with readers of any program.
    guard.release().await.unwrap();
    let _psql = Psql::hold(&database, &format!("SELECT pg_advisory_lock_shared({})", key()));
    eventually("the other program reads", async || !pids(&database).is_empty()).await;
    let reader = locks.lock(NAME).shared().acquire().await.unwrap();
    reader.release().await.unwrap();
    assert!(locks.lock(NAME).try_acquire().await.unwrap().is_none());
}

/// F40: two names with one key exclude each other, and the message says why.
#[tokio::test]
async fn names_with_equal_keys_exclude_each_other_and_it_is_told() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = advisory(&database.url());
    let psql = Psql::hold(&database, &format!("SELECT pg_advisory_lock({})", key()));
    eventually("somebody has the key", async || !pids(&database).is_empty()).await;
    // As if it were another process of ours, for a name whose hash begins alike.
    database.sql(
        r#"INSERT INTO sprag.lock (space, name, holders) VALUES ('default', 'twin',
           jsonb_build_array(jsonb_build_object('lease', 'x', 'ttl_ms', 600000,
             'renewed_ms', sprag.now_us() / 1000)))"#,
    );
    database.sql(&format!(
        "INSERT INTO sprag.grip VALUES ('x', 'default', 'twin', {}, false, {}, 'y')",
        key(),
        pids(&database)
    ));
    let error = locks.lock(NAME).wait(Duration::from_millis(50)).acquire().await.unwrap_err();
    assert!(error.to_string().contains("\"twin\""), "{error}");
    drop(psql);
}

/// A process that hangs is disconnected when its lock is broken or taken over.
#[tokio::test]
async fn a_holder_that_hangs_is_disconnected() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = advisory(&database.url());
    // A session with a grip for a lease that the record does not know, which listens to nobody.
    let take = format!(
        "SELECT pg_advisory_lock({0}), pg_advisory_lock_shared(1936749156, hashtext('hangs'))",
        key()
    );
    let _psql = Psql::hold(&database, &take);
    eventually("somebody has the key", async || !pids(&database).is_empty()).await;
    database.sql(&format!(
        "INSERT INTO sprag.grip VALUES ('x', 'default', '{NAME}', {}, false, {}, 'hangs')",
        key(),
        pids(&database)
    ));
    let guard = within("it is overtaken", locks.lock(NAME).ttl(LONG).acquire()).await.unwrap();
    assert!(guard.is_valid());
}

/// A session with a grip for a lease that the record does not know, which listens to nobody. It was
/// asked to let go long ago.
async fn hang(database: &Database, has_key: bool) -> (Psql, String) {
    let alive = "SELECT pg_advisory_lock_shared(1936749156, hashtext('hangs'))";
    let keys = if has_key { format!(", pg_advisory_lock({})", key()) } else { String::new() };
    let psql = Psql::hold(database, &format!("{alive}{keys}"));
    let pid = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1936749156 \
         AND objid = hashtext('hangs')::bigint & 4294967295 AND granted \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually("it hangs", async || !database.sql(pid).is_empty()).await;
    let pid = database.sql(pid);
    database.sql(&format!(
        "INSERT INTO sprag.grip VALUES ('x', 'default', '{NAME}', {}, false, {pid}, 'hangs', 0)",
        key()
    ));
    (psql, pid)
}

/// A holder of another database user hangs. It may not be disconnected, so who comes next waits
/// on, and is told what right it lacks.
#[tokio::test]
async fn a_holder_of_another_user_that_hangs_is_waited_for() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    drop(advisory(&database.url()));
    let user = format!("user_of_{}", database.name());
    database.sql(&format!("CREATE ROLE {user} LOGIN; SELECT sprag.let_in('{user}')"));
    let (psql, _) = hang(&database, true).await;
    let locks = advisory(&database.url().replace("postgres@", &format!("{user}@")));
    let now = locks.lock(NAME).try_acquire().await;
    let soon = locks.lock(NAME).wait(Duration::from_millis(50)).acquire().await;
    let waiting = spawn_acquire(locks.lock(NAME).ttl(LONG));
    drop(psql);
    let granted = within("granted once it is gone", waiting).await.unwrap();
    database.sql(&format!("DROP OWNED BY {user}; DROP ROLE {user}"));
    assert!(matches!(now, Ok(None)), "{now:?}");
    let error = soon.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Timeout, "{error:?}");
    assert!(error.to_string().contains("GRANT pg_signal_backend"), "{error}");
    assert!(granted.unwrap().is_valid());
}

/// The number of a process is given to another one when it has ended, which is left alone then.
#[tokio::test]
async fn only_who_has_the_key_is_disconnected() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = advisory(&database.url());
    let (_innocent, pid) = hang(&database, false).await;
    let _holder = Psql::hold(&database, &format!("SELECT pg_advisory_lock({})", key()));
    eventually("somebody has the key", async || !pids(&database).is_empty()).await;
    assert!(locks.lock(NAME).try_acquire().await.unwrap().is_none());
    let left = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    assert_eq!(database.sql(&left), "1", "it was disconnected");
}

/// Who may wait for other readers waits for those of other programs as well.
#[tokio::test]
async fn an_upgrade_waits_for_readers_of_other_programs() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = advisory(&database.url());
    let read = format!("SELECT pg_advisory_lock_shared({})", key());
    let psql = Psql::hold(&database, &read);
    eventually("the other program reads", async || !pids(&database).is_empty()).await;
    let mut guard = locks.lock(NAME).upgradable().ttl(LONG).acquire().await.unwrap();
    assert!(!guard.try_upgrade().await.unwrap(), "somebody reads");
    let early = tokio::time::timeout(Duration::from_millis(600), guard.upgrade()).await;
    assert!(early.is_err(), "it did not wait: {early:?}");
    drop(psql);
    within("upgraded once it is gone", guard.upgrade()).await.unwrap();
    guard.release().await.unwrap();

    // Who only reads must not wait: the other one may do the same.
    let _psql = Psql::hold(&database, &read);
    eventually("the other program reads", async || !pids(&database).is_empty()).await;
    let mut reader = locks.lock(NAME).shared().ttl(LONG).acquire().await.unwrap();
    let error = within("told at once", reader.upgrade()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Deadlock, "{error:?}");
}

/// The last reader of ours leaves while another program reads: the upgrade is granted by the record,
/// and waits for the other program. Its lock is renewed meanwhile, as what it is.
#[tokio::test]
async fn an_upgrade_that_is_due_waits_for_readers_of_other_programs() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let (locks, others) = (advisory(&database.url()), advisory(&database.url()));
    let read = format!("SELECT pg_advisory_lock_shared({})", key());
    let psql = Psql::hold(&database, &read);
    eventually("the other program reads", async || !pids(&database).is_empty()).await;
    let ttl = Duration::from_secs(2);
    let mut guard = locks.lock(NAME).upgradable().ttl(ttl).acquire().await.unwrap();
    let reader = others.lock(NAME).shared().ttl(LONG).acquire().await.unwrap();
    let renewed = now().plus(2 * ttl);
    let upgraded = {
        let upgrade = guard.upgrade();
        tokio::pin!(upgrade);
        let early = tokio::time::timeout(Duration::from_millis(300), &mut upgrade).await;
        assert!(early.is_err(), "somebody reads: {early:?}");
        reader.release().await.unwrap();
        // Longer than its TTL, so that it is renewed.
        let early = tokio::time::timeout(renewed.since(now()), &mut upgrade).await;
        assert!(early.is_err(), "it is lost, or two have it: {early:?}");
        drop(psql);
        within("upgraded once it is gone", upgrade).await
    };
    upgraded.unwrap();
    assert_eq!(database.sql(&format!("SELECT pg_try_advisory_lock_shared({})", key())), "f");
    guard.release().await.unwrap();
}

/// The end of leases waits for nobody's row: neither for one that somebody keeps, nor together with a
/// batch of renewals for each other.
#[tokio::test]
async fn leases_end_although_somebody_keeps_a_row() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = advisory(&database.url());
    let ttl = Duration::from_millis(300);
    let mut ended = Vec::new();
    for name in ["a", "b"] {
        ended.push(locks.lock(name).no_renewal().ttl(ttl).acquire().await.unwrap());
    }
    let take = |name: &str| format!("SELECT FROM sprag.lock WHERE name = '{name}' FOR UPDATE");
    let _first = Psql::hold(&database, &format!("BEGIN; {}", take("a")));
    let is_taken = || database.try_sql(&format!("{} NOWAIT", take("a"))).is_err();
    eventually("the first row is taken", async || is_taken()).await;
    let key = advisory_key("default", "b");
    eventually("the other one ends", async || database.holders_of(key).is_empty()).await;
    assert!(is_taken() && !database.holders_of(advisory_key("default", "a")).is_empty());
}

/// A lease that is not renewed gives back its session lock in time, although its guard is kept.
#[tokio::test]
async fn a_lease_that_ends_lets_other_programs_in() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = advisory(&database.url());
    let ttl = Duration::from_millis(500);
    let guard = locks.lock(NAME).no_renewal().ttl(ttl).acquire().await.unwrap();
    let take = format!("SELECT pg_try_advisory_lock({})", key());
    assert_eq!(database.sql(&take), "f", "it is held");
    eventually("the key is free", async || database.sql(&take) == "t").await;
    assert!(!guard.is_valid());
}
