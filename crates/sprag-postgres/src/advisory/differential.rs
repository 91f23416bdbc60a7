//! The functions of advisory locks against [`record::apply`](sprag_core::record::apply), with several
//! sessions: the same random commands, each in its session, must give the same answers and rows, and
//! who was let in must have the session lock.
//!
//! Nobody is pushed aside in these, and no time is over: who has the session lock has to let go of it
//! then, which takes more than one command. What is bare is written down before another session's
//! command, as if it had asked. Nor does it matter when a lease was renewed last: one that
//! was granted by another session counts from when it is taken.

use fastrand::Rng;
use sprag_core::record::wire::Answer;
use sprag_core::record::{Command, Outcome, Record};
use sprag_core::{Mode, SessionId};
use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::sequence::Sequence;
use sprag_testkit::support::{sized, torture};
use tokio_postgres::{Client, NoTls};

use crate::lease::differential::{self, Left, Promises, any_seed, schema};

const SESSIONS: usize = 3;

const BEGIN: &str = "SELECT pg_advisory_unlock_all(); DELETE FROM sprag.grip; \
     UPDATE sprag.number SET last = 0; SET sprag.bare = ''; SET sprag.wanted = ''; SET sprag.calm = ''; \
     SELECT pg_advisory_lock_shared(1936749156, hashtext(current_setting('sprag.session')))";
const STEP: &str =
    "SELECT sprag.run_step($1::text, $2::text::jsonb, NULL, hashtextextended($1, 0))::text";
const LEFT: &str = "SELECT sprag.left_by($1, '[]')::text";
/// Whether this session has the lock, shared or not.
const HAS: &str = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() \
     AND locktype = 'advisory' AND objsubid = 1 AND mode = $2 \
     AND (classid::bigint << 32 | objid::bigint) = hashtextextended($1, 0)";

/// Connections with a session each.
async fn sessions(database: &Database) -> Vec<(SessionId, Client)> {
    let mut sessions = Vec::new();
    for number in 1..=SESSIONS {
        let (client, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        if number == 1 {
            client.batch_execute(&schema()).await.unwrap();
        }
        let session = SessionId::from_u128(number as u128);
        let begin = format!(
            "SET sprag.session = '{session}'; SET sprag.quiet_until = 0; SET sprag.seen = ''; \
             SET sprag.calm = ''"
        );
        client.batch_execute(&begin).await.unwrap();
        sessions.push((session, client));
    }
    sessions
}

/// Without what may differ.
fn plain(record: &Record) -> Record {
    let mut record = record.clone();
    record.version = 0;
    record.gone.sort_by_key(|gone| gone.lease);
    for hold in &mut record.holders {
        hold.renewed_ms = 0;
    }
    record
}

async fn write_down(client: &Client, us: u64) {
    let beat = format!("SET sprag.now_us = {us}; SELECT sprag.beat_v1('{{}}')");
    client.batch_execute(&beat).await.unwrap();
}

async fn run(
    sequence: &mut Sequence,
    lock: &str,
    sessions: &[(SessionId, Client)],
    promises: &mut Promises,
) {
    for (_, client) in sessions {
        client.batch_execute(BEGIN).await.unwrap();
    }
    let (mut answers, mut promised) = (Vec::new(), Vec::new());
    for (command, (text, us)) in sequence.commands.iter().zip(sequence.written()) {
        let place = Sequence::session_of(command, SESSIONS);
        let others = sessions.iter().enumerate().filter(|(other, _)| *other != place);
        for (_, (_, other)) in others {
            // As if they were asked to.
            write_down(other, us).await;
        }
        let (_, client) = &sessions[place];
        let step = format!("[{text},\"{us}\"]");
        let said = client.query_one(STEP, &[&lock, &step]).await.unwrap().get::<_, String>(0);
        let answer = Answer::read(&said).unwrap();
        promised.push(differential::promised(&serde_json::from_str(&said).unwrap()));
        if let (Outcome::Granted(grant), false) =
            (&answer.outcome, matches!(command, Command::Reap))
        {
            let mode = if grant.mode == Mode::Exclusive { "ExclusiveLock" } else { "ShareLock" };
            let has = client.query_one(HAS, &[&lock, &mode]).await.unwrap().get::<_, i64>(0);
            assert_eq!(has, 1, "no session lock: {command:?} of {:#?}", sequence);
        }
        answers.push((said, answer));
    }
    promises.count(sequence, &promised);
    for ((said, answer), applied) in answers.iter().zip(&sequence.applied) {
        assert_eq!(answer.outcome, applied.outcome, "{said} of {sequence:#?}");
    }
    for (_, client) in sessions {
        write_down(client, sequence.times_us[sequence.times_us.len() - 1]).await;
    }
    let left = sessions[0].1.query_one(LEFT, &[&lock]).await.unwrap().get::<_, String>(0);
    let (found, ..) = serde_json::from_str::<Left>(&left).unwrap().read();
    assert_eq!(plain(&found), plain(sequence.left()), "{sequence:#?}");
}

#[tokio::test]
async fn several_sessions_do_what_the_machine_does() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let sessions = sessions(&database).await;
    let ids: Vec<_> = sessions.iter().map(|(session, _)| *session).collect();
    let mut random = Rng::with_seed(any_seed());
    let mut promises = Promises::default();
    let sequences = if torture() { 20_000 } else { sized(400, 1_000) };
    for number in 0..sequences {
        let mut sequence = Sequence::of_sessions(&mut random, &ids);
        run(&mut sequence, &number.to_string(), &sessions, &mut promises).await;
    }
    println!("{promises:?}");
    assert!(promises.made > 2 && promises.kept > 0);
}
