//! The races of those who take a bare lock over and over: what a session has seen, and what its process was
//! told of it.

use sprag_testkit::postgres_server::{Database, skipped};
use tokio_postgres::Client;

use super::bare_races::{
    KEY, ask, command, fence, is_free, is_line, leave, note, sessions, take, written,
};

/// At which number the record was seen, if that was told.
fn number(answer: &str) -> Option<i64> {
    answer.split(' ').nth(3)?.parse().ok()
}

/// Later than any request.
const NEVER_LATE: i64 = 9_007_199_254_740_000;

/// Asks for the lock as one who was told a number in a session.
async fn take_again(client: &Client, (session, number): (&str, i64), lease: &str) -> String {
    take_until(client, (session, number), lease, NEVER_LATE).await
}

async fn take_until(
    client: &Client,
    (session, number): (&str, i64),
    lease: &str,
    not_after_us: i64,
) -> String {
    let take = "SELECT sprag.take_again_v1($1, $2, $3, $4, $5, 42)";
    let command = command(lease)
        .replace("\"session\"", &format!("\"not_after_ms\": {}, \"session\"", not_after_us / 1000));
    let rest = format!("\t30000\t\tlock\t{command}\n");
    let row = client.query_one(take, &[&session, &number, &lease, &rest, &not_after_us]).await;
    row.unwrap().get(0)
}

/// Gives a lock back as one who knows its line in the note.
async fn leave_again(client: &Client, lease: &str, line: &str, not_after_us: i64) -> String {
    let leave = "SELECT sprag.leave_again_v1('', 'lock', $1, 42, $2, $3)";
    client.query_one(leave, &[&lease, &line, &not_after_us]).await.unwrap().get(0)
}

/// Nobody wants anything any more.
async fn calm(client: &Client) {
    client.batch_execute("SET sprag.wanted = ''; SELECT sprag.want('{}')").await.unwrap();
}

/// Visits the lock until it is told at which number its record was seen.
async fn learn_number(client: &Client, lease: &str) -> i64 {
    for turn in 0..10_000 {
        let lease = format!("{lease}{turn}");
        let taken = take(client, &lease).await;
        leave(client, &lease).await;
        if let Some(number) = number(&taken) {
            return number;
        }
    }
    panic!("it is never remembered");
}

/// Whether a session remembers that the record is empty.
async fn remembers(client: &Client) -> bool {
    let seen = ask(client, "current_setting('sprag.seen')").await;
    let last = ask(client, "pg_sequence_last_value('sprag.changes')").await;
    seen.starts_with(&format!("{last} ")) && seen.contains(&format!("\n{KEY}\t\tlock\t"))
}

async fn visit(client: &Client, lease: &str) {
    fence(&take(client, lease).await);
    leave(client, lease).await;
}

/// Visits the lock as a client does: again, once a number was told, for as long as it is let in that way.
async fn visit_again(client: &Client, lease: &str, told: &mut Option<i64>) {
    let taken = match told.take() {
        Some(number) => {
            let taken = take_again(client, ("s0", number), lease).await;
            *told = is_line(&taken).then_some(number);
            taken
        }
        None => take(client, lease).await,
    };
    fence(&taken);
    *told = told.or_else(|| number(&taken));
    if is_line(&taken) {
        leave_again(client, lease, &taken, NEVER_LATE).await.parse::<u64>().unwrap();
    } else {
        leave(client, lease).await;
    }
}

/// Visits a lock until it is remembered; how often that was. Transactions of other databases may be in
/// the way.
async fn visit_until_remembered(client: &Client, lease: &str) -> usize {
    for number in 0..10_000 {
        if remembers(client).await {
            return number;
        }
        visit(client, &format!("{lease}{number}")).await;
    }
    panic!("it is never remembered");
}

/// A record that was seen empty is not looked at again, until anything is written.
#[tokio::test]
async fn what_was_seen_is_remembered_until_somebody_writes() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    let write = "sprag.take_v1('', 'other', '{}', 'it', 30000, 9007199254740, NULL, 7)";
    fence(&ask(&all[1], write).await);
    assert!(visit_until_remembered(&all[0], "one").await >= 3, "it was not looked at well");
    assert_eq!(ask(&all[0], "SELECT count(*) FROM sprag.lock").await, "1", "it was not bare");
    assert!(take(&all[0], "one1").await.contains("released"), "a lease is granted once");
    visit(&all[0], "two").await;
    assert!(remembers(&all[0]).await, "a bare lock writes nothing");
    // Of another lock, in another session.
    ask(&all[1], "sprag.leave_v1('', 'other', 'it', NULL, 7)").await;
    assert!(!remembers(&all[0]).await);
    visit_until_remembered(&all[0], "three").await;
}

/// Leases that had ended when the record was seen are not let in again.
#[tokio::test]
async fn what_has_ended_is_remembered_too() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    fence(
        &ask(&all[1], "sprag.take_v1('', 'lock', '{}', 'old', 30000, 9007199254740, NULL, 42)")
            .await,
    );
    ask(&all[1], "sprag.leave_v1('', 'lock', 'old', NULL, 42)").await;
    visit_until_remembered(&all[0], "new").await;
    assert!(take(&all[0], "old").await.contains("released"));
}

/// Of two locks that have one key, each is seen for itself.
#[tokio::test]
async fn another_lock_with_the_same_key_was_not_seen() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    all[1]
        .batch_execute("INSERT INTO sprag.lock (space, name, waiting) VALUES ('', 'lock two', 1)")
        .await
        .unwrap();
    visit_until_remembered(&all[0], "one").await;
    let other = "sprag.take_bare_v1('', 'lock two', $1, 'two', 30000, 9007199254740, 42)";
    let row = all[0].query_one(&format!("SELECT {other}"), &[&command("two")]).await.unwrap();
    assert!(row.get::<_, String>(0).starts_with('{'));
    assert_eq!(note(&all[0]).await, "");
}

/// Somebody writes into the record while a session visits the lock again and again: from any time to any
/// other. Once that is committed, nobody is let in bare.
#[tokio::test]
async fn what_is_written_meanwhile_is_seen() {
    if skipped() {
        return;
    }
    const VISITS: usize = 6;
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    let begin = [
        "INSERT INTO sprag.lock (space, name, waiting) VALUES ('', 'lock', 1)",
        "UPDATE sprag.lock SET waiting = 1",
        "INSERT INTO sprag.grip VALUES ('it', '', 'lock', 42, true, 1, 's1')",
    ];
    let end =
        ["DELETE FROM sprag.lock", "UPDATE sprag.lock SET waiting = 0", "DELETE FROM sprag.grip"];
    for (way, (begin, end)) in begin.iter().zip(end).enumerate() {
        if way == 1 {
            all[1].batch_execute("INSERT INTO sprag.lock VALUES ('', 'lock')").await.unwrap();
        }
        for (from, to) in (0..VISITS).flat_map(|from| (from..=VISITS).map(move |to| (from, to))) {
            let lease = format!("{way}-{from}-{to}");
            // Who comes again with the number it was told, whenever that was, is not let in either.
            let mut told = None;
            if to % 2 == 0 {
                told = Some(learn_number(&all[0], &format!("{lease}-early")).await);
            }
            for number in 0..=VISITS {
                if number == from {
                    all[1].batch_execute(&format!("BEGIN; {begin}")).await.unwrap();
                }
                if number == to {
                    all[1].batch_execute("COMMIT").await.unwrap();
                    break;
                }
                visit_again(&all[0], &format!("{lease}-{number}"), &mut told).await;
            }
            let late = format!("{lease}-late");
            match told {
                Some(number) => take_again(&all[0], ("s0", number), &late).await,
                None => take(&all[0], &late).await,
            };
            assert_eq!(note(&all[0]).await, "", "{begin}, from {from} to {to}");
            leave(&all[0], &late).await;
            all[1].batch_execute(end).await.unwrap();
        }
    }
}

/// Who has been here before is let in and out by expressions: nothing else is called, and nobody sees a
/// difference.
#[tokio::test]
async fn who_comes_again_is_let_in_the_shortest_way() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    let seen = ("s0", learn_number(&all[0], "one").await);
    let mut last = 0;
    for turn in 0..20 {
        let lease = format!("two{turn}");
        let line = take_again(&all[0], seen, &lease).await;
        assert!(is_line(&line) && fence(&line) > last, "{line}");
        last = fence(&line);
        assert_eq!(note(&all[0]).await, line);
        assert!(!is_free(&all[1]).await);
        let left = leave_again(&all[0], &lease, &line, NEVER_LATE).await;
        assert!(left.parse::<u64>().is_ok(), "{left}");
        assert!(is_free(&all[1]).await && note(&all[0]).await.is_empty());
    }
    assert!(take_again(&all[0], seen, "two5").await.contains("\"released\""), "granted twice");
    assert!(leave(&all[0], "two5").await.contains("\"released\""));
    assert!(take(&all[0], "two5").await.contains("\"released\""), "granted twice");
    let seen = ("s0", learn_number(&all[0], "more").await);
    // Who wants it has it written down.
    let line = take_again(&all[0], seen, "three").await;
    let told = take(&all[1], "other").await;
    assert!(told.contains("\"bare\": true"), "{told}");
    ask(&all[0], &format!("sprag.beat_v1('{{{KEY}}}')")).await;
    assert_eq!(written(&all[1]).await, "three");
    assert!(take(&all[1], "other").await.contains("queued"));
    leave_again(&all[0], "three", &line, NEVER_LATE).await;
    assert!(take(&all[1], "other").await.contains("granted"));

    let plan = "EXPLAIN VERBOSE SELECT sprag.take_again_v1('s', 1, 'l', 'r', 1, 42)";
    let plan = all[0].query(plan, &[]).await.unwrap();
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    let plan = plan.concat();
    assert!(plan.contains("nextval") && !plan.contains("take_again"), "no part of it: {plan}");
}

/// Whatever is not as it was when the number was told: it goes the other way, with the same outcome and
/// without a key too much.
#[tokio::test]
async fn what_is_not_as_it_was_goes_the_other_way() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    let mut turn = 0;
    for (what, made_so, undone) in [
        ("another session", "SELECT 1", "SELECT 1"),
        ("another number", "SELECT 1", "SELECT 1"),
        ("somebody wants another", "SELECT sprag.want('{7}')", "SELECT 1"),
        (
            "another is bare",
            "SELECT sprag.take_bare_v1('', 'b', '{}', 'its own', 30000, 9007199254740, 7)",
            "SELECT sprag.leave_bare_v1('', 'b', 'its own', 7, false)",
        ),
        (
            "something was written",
            "SELECT sprag.take_v1('', 'w', '{}', 'w', 30000, 9007199254740, NULL, 8)",
            "SELECT sprag.leave_v1('', 'w', 'w', NULL, 8)",
        ),
    ] {
        let number = learn_number(&all[0], what).await;
        let mut seen = ("s0", number);
        if what == "another session" {
            seen.0 = "s1";
        } else if what == "another number" {
            seen.1 = number - 1;
        }
        all[0].batch_execute(made_so).await.unwrap();
        turn += 1;
        let lease = format!("l{turn}");
        let taken = take_again(&all[0], seen, &lease).await;
        assert!(!is_line(&taken), "{what}: {taken}");
        fence(&taken);
        assert!(!is_free(&all[1]).await, "{what}");
        leave(&all[0], &lease).await;
        assert!(is_free(&all[1]).await, "{what}: a key too much");
        all[0].batch_execute(undone).await.unwrap();
        calm(&all[0]).await;
    }
    // A request that comes too late is refused, and one that somebody is in the way of waits.
    let seen = ("s0", learn_number(&all[0], "late").await);
    assert!(take_until(&all[0], seen, "too late", 1_000_000).await.contains("late"));
    assert!(is_free(&all[1]).await);
    all[1].batch_execute(&format!("SELECT pg_advisory_lock({KEY})")).await.unwrap();
    assert!(take_again(&all[0], seen, "held").await.contains("held"));
}

/// A release by the expression frees only what is noted just so; all else goes the other way.
#[tokio::test]
async fn what_is_noted_otherwise_is_left_the_other_way() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    let seen = ("s0", learn_number(&all[0], "one").await);
    let line = take_again(&all[0], seen, "two").await;
    let told = leave_again(&all[1], "two", &line, NEVER_LATE).await;
    assert!(told.contains("gone"), "another session: {told}");
    let other = line.replace("two", "three");
    let told = leave_again(&all[0], "three", &other, NEVER_LATE).await;
    assert!(told.contains("gone"), "{told}");
    assert!(!is_free(&all[1]).await);
    // Written down meanwhile.
    ask(&all[0], "sprag.beat_v1('{}')").await;
    assert_eq!(written(&all[0]).await, "two");
    let left = leave_again(&all[0], "two", &line, NEVER_LATE).await;
    assert_eq!(left.split(' ').nth(1), Some("0"), "{left}");
    assert!(is_free(&all[1]).await);
    // The pulse does not get along, so that its time may be over.
    calm(&all[0]).await;
    let seen = ("s0", learn_number(&all[0], "four").await);
    let line = take_again(&all[0], seen, "five").await;
    assert!(is_line(&line));
    let left = leave_again(&all[0], "five", &line, 1_000_000).await;
    assert!(left.contains(&line.trim_end().to_owned()), "{left}");
    assert!(is_free(&all[1]).await && note(&all[0]).await.is_empty());
}

/// A statement that fails after it has let somebody in, or out, is swept up.
#[tokio::test]
async fn what_a_failed_expression_leaves_is_swept_up() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    let sweep = format!("SELECT sprag.sweep_v1('{{{KEY}}}')");
    let seen = ("s0", learn_number(&all[0], "one").await);
    all[0].batch_execute("BEGIN").await.unwrap();
    let line = take_again(&all[0], seen, "two").await;
    assert!(is_line(&line));
    all[0].batch_execute("ROLLBACK").await.unwrap();
    assert!(!is_free(&all[1]).await, "a rollback frees no key: a weak test");
    all[0].batch_execute(&sweep).await.unwrap();
    assert!(is_free(&all[1]).await);

    let line = take_again(&all[0], seen, "three").await;
    all[0].batch_execute("BEGIN").await.unwrap();
    leave_again(&all[0], "three", &line, NEVER_LATE).await;
    all[0].batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(note(&all[0]).await, line, "a rollback keeps the note: a weak test");
    all[0].batch_execute(&sweep).await.unwrap();
    assert_eq!(note(&all[0]).await, "");
    fence(&take(&all[1], "four").await);
}

/// An answer is lost, and the same is asked again: the same fence, and one key.
#[tokio::test]
async fn who_asks_twice_is_told_the_same() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    let seen = ("s0", learn_number(&all[0], "one").await);
    let line = take_again(&all[0], seen, "two").await;
    assert!(is_line(&line));
    let told = take_again(&all[0], seen, "two").await;
    assert!(told.contains(&format!("\"fence\": {}", fence(&line))), "{told}");
    let left = leave_again(&all[0], "two", &line, NEVER_LATE).await;
    assert_eq!(left.split(' ').nth(1), Some("0"), "{left}");
    assert!(is_free(&all[1]).await, "a key too much");
    let again = leave_again(&all[0], "two", &line, NEVER_LATE).await;
    assert!(again.contains("\"released\""), "{again}");
}

/// The last fence is given out: nobody is let in with a larger one, and that is said.
#[tokio::test]
async fn there_is_a_last_fence() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let all = sessions(&database, 2).await;
    let seen = ("s0", learn_number(&all[0], "one").await);
    ask(&all[0], "setval('sprag.fences', 9007199254740990)").await;
    let line = take_again(&all[0], seen, "two").await;
    assert!(is_line(&line) && fence(&line) == 9_007_199_254_740_991, "{line}");
    leave_again(&all[0], "two", &line, NEVER_LATE).await;
    let told = take_again(&all[0], seen, "three").await;
    assert!(told.contains("fence_exhausted"), "{told}");
    assert!(is_free(&all[1]).await && note(&all[0]).await.is_empty());
}
