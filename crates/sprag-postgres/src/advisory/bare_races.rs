//! The races that bare locks survive, statement by statement: each test plays the sessions of one or
//! two processes.

use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::support::eventually;
use tokio_postgres::{Client, NoTls};

pub(super) const KEY: i64 = 42;

/// Connections with a session each, named by their places.
pub(super) async fn sessions(database: &Database, count: usize) -> Vec<Client> {
    let mut sessions = Vec::new();
    for number in 0..count {
        let (client, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        if number == 0 {
            client.batch_execute(crate::SQL).await.unwrap();
        }
        let begin = format!("SELECT sprag.begin_session_v1('s{number}'), sprag.enter_v1('', '')");
        client.batch_execute(&begin).await.unwrap();
        sessions.push(client);
    }
    sessions
}

pub(super) async fn ask(client: &Client, what: &str) -> String {
    client.query_one(&format!("SELECT ({what})::text"), &[]).await.unwrap().get(0)
}

pub(super) fn command(lease: &str) -> String {
    let command = format!(
        r#"{{"do": "acquire", "lease": "{lease}", "party": "{lease}", "mode": "exclusive",
        "ttl_ms": 30000, "queue": true, "priority": 0, "fixed": false, "resize": false,
        "holder": {{"worker_id": "w", "node_id": "n"}}, "session": "", "max_waiters": 9}}"#
    );
    // JSON as the client writes it has no line breaks.
    command.replace('\n', "")
}

pub(super) async fn take(client: &Client, lease: &str) -> String {
    let take = "sprag.take_bare_v1('', 'lock', $1, $2, 30000, 9007199254740, 42)";
    let row =
        client.query_one(&format!("SELECT {take}"), &[&command(lease), &lease]).await.unwrap();
    row.get(0)
}

/// The fence of who was let in.
pub(super) fn fence(answer: &str) -> u64 {
    assert!(!answer.starts_with('{'), "not let in: {answer}");
    let word = if is_line(answer) { answer.split('\t').nth(2) } else { answer.split(' ').nth(1) };
    word.unwrap().parse().unwrap()
}

/// Whether somebody was let in by the expression.
pub(super) fn is_line(answer: &str) -> bool {
    answer.contains('\t')
}

pub(super) async fn leave(client: &Client, lease: &str) -> String {
    ask(client, &format!("sprag.leave_bare_v1('', 'lock', '{lease}', {KEY}, true)")).await
}

/// Whether anybody else may have the key.
pub(super) async fn is_free(other: &Client) -> bool {
    ask(other, &format!("pg_try_advisory_xact_lock({KEY})")).await == "true"
}

pub(super) async fn note(client: &Client) -> String {
    ask(client, "current_setting('sprag.bare')").await
}

/// Whose lease is in the record.
pub(super) async fn written(client: &Client) -> String {
    ask(client, "coalesce((SELECT max(plain_lease) FROM sprag.lock), '')").await
}

/// A lock that nobody else wants leaves nothing but its two entries in the trail, and its fences grow.
#[tokio::test]
async fn a_bare_lock_leaves_no_row() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    let mut last = 0;
    for (number, client) in all.iter().cycle().take(9).enumerate() {
        let lease = format!("one{number}");
        let taken = fence(&take(client, &lease).await);
        assert!(taken > last);
        last = taken;
        assert_eq!(written(client).await, "");
        assert!(leave(client, &lease).await.contains(" 0 s"));
        assert!(leave(client, &lease).await.contains("\"released\""));
        assert!(take(client, &lease).await.contains("\"released\""), "a lease is granted once");
    }
    assert_eq!(ask(&all[0], "SELECT count(*) FROM sprag.lock").await, "0");
    assert_eq!(ask(&all[0], "SELECT count(*) FROM sprag.trail").await, "18");
    assert!(is_free(&all[0]).await && is_free(&all[1]).await);
}

/// A release that comes late, or of who never got it, frees nothing of another lease.
#[tokio::test]
async fn a_release_frees_only_its_own_lease() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    fence(&take(&all[0], "one").await);
    assert!(leave(&all[1], "one").await.contains("gone"), "of another session");
    assert!(leave(&all[0], "two").await.contains("gone"));
    assert!(!is_free(&all[1]).await);
    assert_eq!(leave(&all[0], "one").await.split(' ').nth(1), Some("0"));
    assert!(is_free(&all[1]).await);
}

/// Who has it bare may write that down after somebody who asks has seen an empty record, and before that one
/// looks for whom to ask: it is no stranger then, and the next question finds it in the record.
#[tokio::test]
async fn who_has_just_written_it_down_is_no_stranger() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 3).await;
    fence(&take(&all[0], "one").await);
    all[2]
        .batch_execute(
            "ALTER FUNCTION sprag.ask_to_write(bigint, text) RENAME TO ask_at_once;
             CREATE FUNCTION sprag.ask_to_write(lock_key bigint, ns text) RETURNS text LANGUAGE plpgsql
             AS $$ BEGIN
               PERFORM pg_advisory_xact_lock(7, 7);
               RETURN sprag.ask_at_once(lock_key, ns);
             END $$;
             SELECT pg_advisory_lock(7, 7)",
        )
        .await
        .unwrap();
    let writes = async {
        let waits = "EXISTS (SELECT FROM pg_locks WHERE classid = 7 AND objid = 7 AND NOT granted)";
        eventually("it is about to look", async || ask(&all[2], waits).await == "true").await;
        ask(&all[0], &format!("sprag.beat_v1('{{{KEY}}}')")).await;
        all[2].batch_execute("SELECT pg_advisory_unlock(7, 7)").await.unwrap();
    };
    let (told, ()) = tokio::join!(take(&all[1], "two"), writes);
    assert!(told.contains("\"held\"") && told.contains("\"bare\": true"), "{told}");
    assert_eq!(written(&all[1]).await, "one");
    assert!(take(&all[1], "two").await.contains("queued"));
}

/// A session may take its own key twice: so the first who has it is written down, and the second
/// waits behind it.
#[tokio::test]
async fn two_of_one_session_are_not_both_let_in() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    let first = fence(&take(&all[0], "one").await);
    assert!(take(&all[0], "two").await.contains("queued"));
    assert_eq!(written(&all[0]).await, "one");
    assert_eq!(note(&all[0]).await, "");
    // Who asks again is told the same.
    assert!(take(&all[0], "one").await.contains(&format!("\"fence\": {first}")));
    assert!(leave(&all[0], "one").await.contains("\"told\": [\"two:"));
    assert!(!is_free(&all[1]).await);
    leave(&all[0], "two").await;
    assert!(is_free(&all[1]).await, "it was taken once too often");
}

/// A statement that fails forgets what it noted, but not which keys it took or freed.
#[tokio::test]
async fn what_a_failed_statement_leaves_is_swept_up() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    let sweep = format!("SELECT sprag.sweep_v1('{{{KEY}}}')");
    all[0].batch_execute("BEGIN").await.unwrap();
    fence(&take(&all[0], "one").await);
    all[0].batch_execute("ROLLBACK").await.unwrap();
    assert!(!is_free(&all[1]).await, "a rollback frees no key: a weak test");
    all[0].batch_execute(&sweep).await.unwrap();
    assert!(is_free(&all[1]).await);

    fence(&take(&all[0], "two").await);
    all[0].batch_execute(&sweep).await.unwrap();
    assert!(!is_free(&all[1]).await, "what is noted is a right");

    all[0].batch_execute("BEGIN").await.unwrap();
    leave(&all[0], "two").await;
    all[0].batch_execute("ROLLBACK").await.unwrap();
    assert_ne!(note(&all[0]).await, "", "a rollback keeps the note: a weak test");
    all[0].batch_execute(&sweep).await.unwrap();
    assert_eq!(note(&all[0]).await, "");
    fence(&take(&all[1], "three").await);
}

/// Who wants a bare lock has it written down, and waits in the queue; and it is taken the written way
/// for a while.
#[tokio::test]
async fn a_lock_that_others_want_is_written_down() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    let first = fence(&take(&all[0], "one").await);
    let told = take(&all[1], "two").await;
    assert!(told.contains("\"bare\": true") && told.contains("held"), "{told}");
    let asked = "SELECT count(*) FROM sprag.session WHERE session = 's0' AND asked_ms > 0";
    assert_eq!(ask(&all[1], asked).await, "1");
    ask(&all[0], &format!("sprag.beat_v1('{{{KEY}}}')")).await;
    assert_eq!(ask(&all[1], asked).await, "0");
    assert_eq!(written(&all[1]).await, "one");
    let queued = take(&all[1], "two").await;
    assert!(queued.contains("queued") && queued.contains(&format!("\"fence\": {first}")));
    leave(&all[0], "one").await;
    assert!(take(&all[1], "two").await.contains("granted"));
    leave(&all[1], "two").await;
    fence(&take(&all[0], "three").await);
    assert_eq!(written(&all[1]).await, "three", "it is wanted");
    leave(&all[0], "three").await;
}

/// The record shows nobody while somebody asks the long way; who takes the lock bare meanwhile, and
/// gives it back, must not have a later fence than the one who is let in then.
#[tokio::test]
async fn nobody_comes_between_a_fence_and_its_key() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    all[0].batch_execute("BEGIN").await.unwrap();
    let shared = r#"{"do": "acquire", "lease": "one", "party": "one", "mode": "shared", "ttl_ms": 30000,
        "queue": false, "priority": 0, "fixed": false, "resize": false, "max_waiters": 9,
        "holder": {"worker_id": "w", "node_id": "n"}, "session": "", "not_after_ms": 0}"#;
    // It is too late, so nothing is taken; but its statement goes on.
    ask(&all[0], &format!("sprag.advisory_v1('', 'lock', '{shared}', {KEY})")).await;
    let told = take(&all[1], "two").await;
    assert!(!told.contains("granted") && told.starts_with('{'), "{told}");
    all[0].batch_execute("COMMIT").await.unwrap();
    fence(&take(&all[1], "two").await);
}

/// A session that has not beaten since it was asked is ended, and not before its guards are lost.
#[tokio::test]
async fn a_session_that_hangs_is_ended() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    fence(&take(&all[0], "one").await);
    take(&all[1], "two").await;
    let age = |ms: u32| format!("UPDATE sprag.session SET asked_ms = asked_ms - {ms}");
    all[1].batch_execute(&age(6000)).await.unwrap();
    assert!(take(&all[1], "two").await.contains("\"bare\": true"));
    assert!(!all[0].is_closed());
    all[1].batch_execute(&age(600)).await.unwrap();
    take(&all[1], "two").await;
    let mut taken = String::from("{");
    for _ in 0..1000 {
        taken = take(&all[1], "two").await;
        if !taken.starts_with('{') {
            break;
        }
    }
    fence(&taken);
    assert!(all[0].query("SELECT 1", &[]).await.is_err());
}

/// After a restart nobody knows who had a lock bare: so nobody is let in until all must have noticed.
#[tokio::test]
async fn nobody_is_let_in_right_after_a_restart() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 1).await;
    all[0]
        .batch_execute(
            "UPDATE sprag.session SET life_us = 0; \
             CREATE OR REPLACE FUNCTION sprag.life_us() RETURNS bigint LANGUAGE sql \
             RETURN sprag.now_us() - 3000000; \
             SELECT sprag.begin_session_v1('new'), sprag.enter_v1('', '')",
        )
        .await
        .unwrap();
    assert!(take(&all[0], "one").await.contains("held"));
    assert_eq!(ask(&all[0], "sprag.is_quiet()").await, "true");
}

/// The server's clock is set back: fences still grow, whoever draws them and however.
#[tokio::test]
async fn fences_grow_although_the_clock_goes_back() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    let mut last = fence(&take(&all[0], "one").await);
    leave(&all[0], "one").await;
    all[0]
        .batch_execute(
            "CREATE OR REPLACE FUNCTION sprag.now_us() RETURNS bigint LANGUAGE sql VOLATILE \
             RETURN (date_part('epoch', clock_timestamp()) * 1000000)::bigint - 3600000000; \
             SELECT sprag.begin_session_v1('new'), sprag.enter_v1('', '')",
        )
        .await
        .unwrap();
    for round in 0..4 {
        for (place, client) in all.iter().enumerate() {
            let lease = format!("two-{round}-{place}");
            if round == 2 {
                ask(client, &format!("sprag.want(ARRAY[{KEY}]::bigint[])")).await;
            }
            let taken = fence(&take(client, &lease).await);
            assert!(taken > last, "round {round}");
            last = taken;
            assert_eq!(written(client).await == lease, round >= 2);
            leave(client, &lease).await;
        }
    }
}
