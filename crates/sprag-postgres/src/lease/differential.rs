//! The functions against [`record::apply`](sprag_core::record::apply): the same random commands, at
//! the same times, must give the same answers, events and rows.

use std::sync::Arc;

use fastrand::Rng;
use sprag_core::SessionId;
use sprag_core::record::{Heir, Record, Wait};
use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::sequence::Sequence;
use sprag_testkit::support::{sized, torture};
use tokio_postgres::NoTls;

/// Sequences per statement.
const BATCH: usize = 500;
/// The same of advisory locks. Sequences use the same leases, and within one statement no row of
/// them is cleared away, so it takes longer the more there are.
const ADVISORY_BATCH: usize = 20;

/// The schema, whose fences come from where the test says.
pub(crate) fn schema() -> String {
    let ours = ["nextval('sprag.fences')", "currval('sprag.fences')"];
    let number = |sql: String, drawn| sql.replace(drawn, "sprag.next_number()");
    NUMBER.to_owned() + &ours.into_iter().fold(crate::SQL.to_owned(), number) + PREPARE
}

/// Where they come from has to be there first.
const NUMBER: &str = r#"
CREATE SCHEMA sprag;
-- The last fence of the lock, and how often anybody was let in by the expression.
CREATE TABLE sprag.number (last bigint, again bigint);
INSERT INTO sprag.number VALUES (0, 0);
CREATE FUNCTION sprag.next_number() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT greatest(n.last + 1, sprag.now_us()) FROM sprag.number AS n);
END $$;
"#;

/// The clock stands where the test puts it, and a whole sequence is one call. What a bare lock does not
/// write is made up for here: the machine remembers who gave a lock back, and counts.
const PREPARE: &str = r#"
CREATE OR REPLACE FUNCTION sprag.now_us() RETURNS bigint LANGUAGE sql STABLE
RETURN current_setting('sprag.now_us')::bigint;
CREATE OR REPLACE FUNCTION sprag.came_us() RETURNS bigint LANGUAGE sql STABLE
RETURN current_setting('sprag.now_us')::bigint;

CREATE OR REPLACE FUNCTION sprag.last_number() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT nullif(n.last, 0) FROM sprag.number AS n);
END $$;

-- A bare lock was given back: what would be in its row if it had been written.
CREATE FUNCTION sprag.make_up(lock text, asked text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM sprag.make_lock('', lock);
  UPDATE sprag.lock AS k SET version = k.version + 2, tickets = k.tickets + 1,
      ended = right(k.ended || asked || ' ', 264)
    WHERE k.space = '' AND k.name = lock;
END $$;

-- The number that a client may have been told, as the record is empty; else one that is over.
CREATE FUNCTION sprag.told_number(lock text, asked text, key bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM sprag.lock AS k WHERE k.space = '' AND k.name = lock
      AND (k.plain_lease IS NOT NULL OR k.waiting > 0 OR k.holders <> '[]'
        OR position(asked IN concat(k.ended, k.gone)) > 0))
    OR EXISTS (SELECT FROM sprag.grip AS g WHERE g.key = told_number.key) THEN
    RETURN 0;
  END IF;
  RETURN pg_sequence_last_value('sprag.changes');
END $$;

CREATE FUNCTION sprag.heir_in(lock text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT k.heir_lease FROM sprag.lock AS k WHERE k.space = '' AND k.name = lock);
END $$;

CREATE FUNCTION sprag.run_step(lock text, step jsonb, channel text, key bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  said text;
  asked text := step -> 0 ->> 'lease';
  had text := sprag.heir_in(lock);
  fence bigint;
  bare text[];
BEGIN
  PERFORM set_config('sprag.now_us', step ->> 1, true);
  PERFORM set_config('sprag.ended', '', false);
  IF key IS NOT NULL AND (step ->> 1)::bigint % 2 = 0 THEN
    PERFORM set_config('sprag.wanted', '', false),
      set_config('sprag.calm', current_setting('sprag.session'), false);
  END IF;
  IF step -> 0 ->> 'do' = 'renew' AND key IS NOT NULL THEN
    said := (SELECT answer FROM sprag.renew_advisory_v1('', ARRAY[lock],
      jsonb_build_array(step -> 0), ARRAY[key], 1000000))::text;
  ELSIF step -> 0 ->> 'do' = 'renew' THEN
    said := (sprag.renew_v1('', ARRAY[lock], jsonb_build_array(step -> 0), channel,
      1000000))[1]::text;
  ELSIF step -> 0 -> 'mode' = '"exclusive"' AND key IS NOT NULL AND (step -> 0 ->> 'ttl_ms')::bigint >= 7000
    AND (step ->> 1)::bigint % 3 > 0 THEN
    said := sprag.take_again_v1(current_setting('sprag.session'), sprag.told_number(lock, asked, key), asked,
      concat(E'\t', step -> 0 ->> 'ttl_ms', E'\t\t', lock, E'\t', step -> 0, E'\n'),
      coalesce((step -> 0 ->> 'not_after_ms')::bigint, 9007199254740) * 1000 + 999, key);
    IF position(E'\t' IN said) > 0 THEN
      said := concat(split_part(said, E'\t', 4), ' ', split_part(said, E'\t', 3));
      UPDATE sprag.number AS n SET again = n.again + 1;
    END IF;
  ELSIF step -> 0 -> 'mode' = '"exclusive"' AND key IS NOT NULL THEN
    said := sprag.take_bare_v1('', lock, (step -> 0)::text, asked, (step -> 0 ->> 'ttl_ms')::bigint,
      coalesce((step -> 0 ->> 'not_after_ms')::bigint, 9007199254740991), key);
  ELSIF step -> 0 ->> 'do' = 'release' AND key IS NOT NULL THEN
    bare := (SELECT string_to_array(line, E'\t') FROM sprag.notes() AS line
      WHERE starts_with(line, asked));
    said := CASE WHEN (step ->> 1)::bigint % 3 > 0 AND bare IS NOT NULL THEN
        sprag.leave_again_v1('', lock, asked, key, array_to_string(bare, E'\t') || E'\n',
          bare[4]::bigint + 5000000)
      ELSE sprag.leave_bare_v1('', lock, asked, key, true) END;
    IF said ~ '^[0-9]+$' THEN
      PERFORM sprag.tell_visits_v1(ARRAY[concat(said, E'\t', array_to_string(bare, E'\t'))]);
      said := said || ' 0';
    END IF;
    IF (step ->> 1)::bigint - bare[4]::bigint <= 5000000 THEN
      PERFORM sprag.make_up(lock, asked);
    END IF;
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
  IF key IS NOT NULL THEN
    fence := CASE WHEN left(said, 1) = '{' THEN said::jsonb -> 'outcome' -> 'granted' ->> 'fence'
      ELSE split_part(said, ' ', 2) END;
    UPDATE sprag.number AS n SET last = greatest(n.last, fence);
  END IF;
  -- The short way answers with the time and the fence, which is none for a release.
  RETURN CASE WHEN left(said, 1) = '{' THEN said::jsonb
    ELSE sprag.answer(split_part(said, ' ', 1)::bigint, CASE split_part(said, ' ', 2)
      WHEN '0' THEN '"done"' ELSE jsonb_build_object('granted', jsonb_build_object(
        'fence', split_part(said, ' ', 2)::bigint, 'mode', 'exclusive', 'took_over', false))
      END) END || jsonb_build_object('promised',
        coalesce(sprag.heir_in(lock) IS DISTINCT FROM had AND sprag.heir_in(lock) IS NOT NULL, false));
END $$;

-- What a sequence has left behind.
CREATE FUNCTION sprag.left_by(lock text, answers jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT jsonb_build_object('answers', answers, 'version', l.version,
    'fence', greatest(l.fence, sprag.last_number()),
    'tickets', l.tickets, 'limit', l.permits, 'holders', l.holders, 'gone', l.gone,
    'waiting', l.waiting, 'heir', CASE WHEN l.heir_lease IS NOT NULL
      THEN jsonb_build_object('lease', l.heir_lease, 'fence', l.heir_fence) END,
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
  UPDATE sprag.number SET last = 0;
  PERFORM pg_advisory_unlock_all(), set_config('sprag.bare', '', false),
    set_config('sprag.wanted', '', false), set_config('sprag.calm', '', false);
  FOR step IN SELECT * FROM jsonb_array_elements(commands) LOOP
    -- Some are of another process.
    answers := answers || sprag.run_step(lock, step,
      CASE WHEN right(step -> 0 ->> 'lease', 1) IN ('5', 'a') THEN channel || '!' ELSE channel END,
      CASE WHEN advisory THEN hashtextextended(lock, 0) END);
  END LOOP;
  IF advisory THEN
    PERFORM sprag.beat_v1('{}');
  END IF;
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
    heir: Option<Heir>,
    events: Vec<serde_json::Value>,
}

impl Left {
    /// After which steps the lock was promised to somebody.
    fn promised(&self) -> Vec<bool> {
        self.answers.iter().map(promised).collect()
    }

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
            heir: self.heir,
        };
        (record, text(self.answers), text(self.events))
    }
}

/// Whether the step that was answered so has promised the lock to somebody.
pub(crate) fn promised(answer: &serde_json::Value) -> bool {
    answer["promised"].as_bool().expect("it is told of each step")
}

/// What became of the promises.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Promises {
    pub(crate) made: usize,
    pub(crate) kept: usize,
    pub(crate) taken_back: usize,
}

impl Promises {
    pub(crate) fn count(&mut self, sequence: &mut Sequence, promised: &[bool]) {
        self.made += promised.iter().filter(|promised| **promised).count();
        let (kept, taken_back) = sequence.promised(promised);
        self.kept += kept;
        self.taken_back += taken_back;
    }
}

fn written(sequence: &Sequence) -> String {
    let steps: Vec<_> = sequence.written().map(|(one, us)| format!("[{one},\"{us}\"]")).collect();
    format!("[{}]", steps.join(","))
}

/// A session with advisory locks, whose server has not crashed.
const SESSION: u128 = 9;

async fn run(database: &Database, sequences: usize, seed: u64, advisory: bool) -> Promises {
    let mut promises = Promises::default();
    let (client, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&schema()).await.unwrap();
    let session = SessionId::from_u128(SESSION);
    if advisory {
        let begin = format!(
            "SET sprag.session = '{session}'; SET sprag.quiet_until = 0; SET sprag.seen = ''; \
             SET sprag.calm = ''"
        );
        client.batch_execute(&begin).await.unwrap();
    }
    let mut random = Rng::with_seed(seed);
    let batch = if advisory { ADVISORY_BATCH } else { BATCH };
    for number in 0..sequences / batch {
        let any = |_| match advisory {
            true => Sequence::of_session(&mut random, session),
            false => Sequence::random(&mut random),
        };
        let mut batch: Vec<_> = (0..batch).map(any).collect();
        let commands: Vec<_> = batch.iter().map(written).collect();
        let prefix = number.to_string();
        let rows = client.query(RUN, &[&commands, &advisory, &prefix]).await.unwrap();
        for (sequence, row) in batch.iter_mut().zip(rows) {
            let left: Left = serde_json::from_str(row.get(0)).unwrap();
            promises.count(sequence, &left.promised());
            let (found, answers, events) = left.read();
            sequence.compare(&answers, &found, &events);
        }
    }
    promises
}

/// That there were so many is part of the comparison.
fn check(promises: Promises, sequences: usize) {
    println!("{promises:?}");
    let Promises { made, kept, taken_back } = promises;
    assert!(made * 30 > sequences && kept * 60 > sequences);
    // Too rare to be counted on in a small run.
    assert!(sequences < 20_000 || taken_back * 2_000 > sequences);
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
    let (seed, sequences) = (any_seed(), sized(5_000, 50_000));
    let half = |place| {
        let database = Arc::new(Database::fresh());
        let (kept, seed) = (Arc::clone(&database), seed.wrapping_add(place));
        (database, tokio::spawn(async move { run(&kept, sequences / 2, seed, false).await }))
    };
    let (databases, halves): (Vec<_>, Vec<_>) = [0, 1].map(half).into_iter().unzip();
    for one in halves {
        check(one.await.unwrap(), sequences / 2);
    }
    // Not before: the server drops none while another session waits for its client to read, and
    // whoever drops it may be on the thread that would.
    drop(databases);
}

/// In one session, in which nobody is in the way of the session locks.
#[tokio::test]
async fn the_functions_of_advisory_locks_do_what_the_machine_does() {
    if !skipped() {
        let database = Database::fresh();
        // Each is ten times as slow as one of leases.
        let sequences = if torture() { 50_000 } else { sized(1_000, 2_500) };
        let promises = run(&database, sequences, any_seed(), true).await;
        check(promises, sequences);
        let again: usize = database.sql("SELECT again FROM sprag.number").parse().unwrap();
        println!("{again} by the expression");
        assert!(again * 4 > sequences);
    }
}
