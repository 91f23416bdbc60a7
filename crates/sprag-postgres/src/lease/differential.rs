//! The functions against [`record::apply`](sprag_core::record::apply): the same random commands, at
//! the same times, must give the same answers, events and rows.

use std::sync::Arc;

use fastrand::Rng;
use sprag_core::SessionId;
use sprag_core::record::{Record, Wait};
use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::sequence::Sequence;
use tokio_postgres::NoTls;

const SEQUENCES: usize = 50_000;
/// Sequences per statement.
const BATCH: usize = 500;
/// The same of advisory locks. Sequences use the same leases, and within one statement no row of
/// them is cleared away, so it takes longer the more there are.
const ADVISORY_BATCH: usize = 20;

/// The clock stands where the test puts it, and a whole sequence is one call.
pub(crate) const PREPARE: &str = r#"
CREATE OR REPLACE FUNCTION sprag.now_us() RETURNS bigint LANGUAGE sql STABLE
RETURN current_setting('sprag.now_us')::bigint;

CREATE FUNCTION sprag.run_step(lock text, step jsonb, channel text, key bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  said text;
BEGIN
  PERFORM set_config('sprag.now_us', step ->> 1, true);
  IF step -> 0 ->> 'do' = 'renew' AND key IS NOT NULL THEN
    said := (SELECT answer FROM sprag.renew_advisory_v1('', ARRAY[lock],
      jsonb_build_array(step -> 0), ARRAY[key], 1000000))::text;
  ELSIF step -> 0 ->> 'do' = 'renew' THEN
    said := (sprag.renew_v1('', ARRAY[lock], jsonb_build_array(step -> 0), channel,
      1000000))[1]::text;
  ELSIF step -> 0 -> 'mode' = '"exclusive"' THEN
    said := sprag.take_v1('', lock, (step -> 0)::text, step -> 0 ->> 'lease',
      (step -> 0 ->> 'ttl_ms')::bigint,
      coalesce((step -> 0 ->> 'not_after_ms')::bigint, 9007199254740991), channel, key);
  ELSIF step -> 0 ->> 'do' = 'release' THEN
    said := sprag.leave_v1('', lock, step -> 0 ->> 'lease', channel, key);
  ELSIF key IS NOT NULL THEN
    said := sprag.advisory_v1('', lock, step -> 0, key)::text;
  ELSE
    said := sprag.apply_v1('', lock, step -> 0, channel)::text;
  END IF;
  -- The short way answers with the time and the fence, which is none for a release.
  RETURN CASE WHEN left(said, 1) = '{' THEN said::jsonb
    ELSE sprag.answer(split_part(said, ' ', 1)::bigint, CASE split_part(said, ' ', 2)
      WHEN '0' THEN '"done"' ELSE jsonb_build_object('granted', jsonb_build_object(
        'fence', split_part(said, ' ', 2)::bigint, 'mode', 'exclusive', 'took_over', false))
      END) END;
END $$;

-- What a sequence has left behind.
CREATE FUNCTION sprag.left_by(lock text, answers jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT jsonb_build_object('answers', answers, 'version', l.version, 'fence', l.fence,
    'tickets', l.tickets, 'limit', l.permits, 'holders', l.holders, 'gone', l.gone,
    'waiting', l.waiting,
    'waiters', (SELECT coalesce(jsonb_agg(w.request ORDER BY w.arrival, w.ticket), '[]')
      FROM sprag.waiter AS w WHERE w.space = '' AND w.name = lock),
    'events', (SELECT coalesce(jsonb_agg(sprag.event_of(t) ORDER BY t.sequence), '[]')
      FROM sprag.trail AS t WHERE t.name = lock))
    FROM (VALUES (1)) AS one LEFT JOIN LATERAL (SELECT (sprag.whole(k)).* FROM sprag.lock AS k
      WHERE k.space = '' AND k.name = lock) AS l ON true);
END $$;

CREATE FUNCTION sprag.run_sequence(lock text, commands jsonb, channel text, advisory boolean)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  answers jsonb := '[]';
  step jsonb;
BEGIN
  -- No lease is of two locks, but those of sequences are.
  DELETE FROM sprag.grip;
  PERFORM pg_advisory_unlock_all();
  FOR step IN SELECT * FROM jsonb_array_elements(commands) LOOP
    answers := answers || sprag.run_step(lock, step, channel,
      CASE WHEN advisory THEN hashtextextended(lock, 0) END);
  END LOOP;
  RETURN sprag.left_by(lock, answers);
END $$;
CREATE INDEX ON sprag.trail (name);
"#;

const RUN: &str = "SELECT sprag.run_sequence($3::text || '/' || place, commands::jsonb, \
     CASE place % 2 WHEN 0 THEN 'here' END, $2)::text \
     FROM unnest($1::text[]) WITH ORDINALITY AS all_of(commands, place) ORDER BY place";

/// What a sequence left behind, as JSON.
#[derive(serde::Deserialize)]
pub(crate) struct Left {
    pub(crate) answers: Vec<serde_json::Value>,
    version: Option<u64>,
    fence: Option<sprag_core::Fence>,
    tickets: Option<u64>,
    limit: Option<u32>,
    holders: Option<Vec<sprag_core::record::Hold>>,
    gone: Option<Vec<sprag_core::record::Gone>>,
    waiting: Option<usize>,
    waiters: Vec<Wait>,
    events: Vec<serde_json::Value>,
}

impl Left {
    /// The record, the answers and the events.
    pub(crate) fn read(self) -> (Record, Vec<String>, Vec<String>) {
        let text = |values: Vec<serde_json::Value>| -> Vec<_> {
            values.iter().map(ToString::to_string).collect()
        };
        assert_eq!(self.waiting.unwrap_or(0), self.waiters.len());
        let record = Record {
            version: self.version.unwrap_or(0),
            fence: self.fence.unwrap_or_default(),
            tickets: self.tickets.unwrap_or(0),
            limit: self.limit,
            holders: self.holders.unwrap_or_default(),
            waiters: self.waiters,
            gone: self.gone.unwrap_or_default(),
            // Nothing is promised here.
            heir: None,
        };
        (record, text(self.answers), text(self.events))
    }
}

fn written(sequence: &Sequence) -> String {
    let steps: Vec<_> = sequence.written().map(|(one, us)| format!("[{one},\"{us}\"]")).collect();
    format!("[{}]", steps.join(","))
}

/// A session with advisory locks, whose server has not crashed.
const SESSION: u128 = 9;

async fn run(database: &Database, sequences: usize, seed: u64, advisory: bool) {
    let (client, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("{}{PREPARE}", crate::SQL)).await.unwrap();
    let session = SessionId::from_u128(SESSION);
    if advisory {
        let begin = format!("SET sprag.session = '{session}'; SET sprag.quiet_until = 0");
        client.batch_execute(&begin).await.unwrap();
    }
    let mut random = Rng::with_seed(seed);
    let batch = if advisory { ADVISORY_BATCH } else { BATCH };
    for number in 0..sequences / batch {
        let any = |_| match advisory {
            true => Sequence::of_session(&mut random, session),
            false => Sequence::random(&mut random),
        };
        let batch: Vec<_> = (0..batch).map(any).collect();
        let commands: Vec<_> = batch.iter().map(written).collect();
        let prefix = number.to_string();
        let rows = client.query(RUN, &[&commands, &advisory, &prefix]).await.unwrap();
        for (sequence, row) in batch.iter().zip(rows) {
            let left: Left = serde_json::from_str(row.get(0)).unwrap();
            let (found, answers, events) = left.read();
            sequence.compare(&answers, &found, &events);
        }
    }
}

pub(crate) fn any_seed() -> u64 {
    let seed = fastrand::u64(..);
    // Shown if it fails.
    println!("seed {seed}");
    seed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_functions_do_what_the_machine_does() {
    if skipped() {
        return;
    }
    let seed = any_seed();
    let half = |place| {
        let database = Arc::new(Database::fresh());
        let (kept, seed) = (Arc::clone(&database), seed.wrapping_add(place));
        (database, tokio::spawn(async move { run(&kept, SEQUENCES / 2, seed, false).await }))
    };
    let (databases, halves): (Vec<_>, Vec<_>) = [0, 1].map(half).into_iter().unzip();
    for one in halves {
        one.await.unwrap();
    }
    // Not before: the server drops none while another session waits for its client to read, and
    // whoever drops it may be on the thread that would.
    drop(databases);
}

/// In one session, in which nobody is in the way of the session locks.
#[tokio::test]
async fn the_functions_of_advisory_locks_do_what_the_machine_does() {
    if !skipped() {
        run(&Database::fresh(), SEQUENCES / 20, any_seed(), true).await;
    }
}
