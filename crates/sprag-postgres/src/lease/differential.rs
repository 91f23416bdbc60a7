//! The functions against [`record::apply`](sprag_core::record::apply): the same random commands, at
//! the same times, must give the same answers, events and rows.

use fastrand::Rng;
use sprag_core::record::{Record, Wait};
use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::sequence::Sequence;
use tokio_postgres::NoTls;

const SEQUENCES: usize = 50_000;
/// Sequences per statement.
const BATCH: usize = 500;

/// The clock stands where the test puts it, and a whole sequence is one call.
const PREPARE: &str = "
CREATE OR REPLACE FUNCTION sprag.now_us() RETURNS bigint LANGUAGE sql STABLE
RETURN current_setting('sprag.now_us')::bigint;

CREATE FUNCTION sprag.run_sequence(lock text, commands jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  answers jsonb := '[]';
  step jsonb;
BEGIN
  FOR step IN SELECT * FROM jsonb_array_elements(commands) LOOP
    PERFORM set_config('sprag.now_us', step ->> 1, true);
    IF step -> 0 ->> 'do' = 'renew' THEN
      answers := answers || (sprag.renew_v1('', ARRAY[lock], jsonb_build_array(step -> 0), NULL))[1];
    ELSE
      answers := answers || sprag.apply_v1('', lock, step -> 0, NULL);
    END IF;
  END LOOP;
  RETURN (SELECT jsonb_build_object('answers', answers, 'version', l.version, 'fence', l.fence,
    'tickets', l.tickets, 'limit', l.permits, 'holders', l.holders, 'gone', l.gone,
    'waiting', l.waiting,
    'waiters', (SELECT coalesce(jsonb_agg(w.request ORDER BY w.arrival, w.ticket), '[]')
      FROM sprag.waiter AS w WHERE w.name = lock),
    'events', (SELECT coalesce(jsonb_agg(t.event ORDER BY t.sequence), '[]')
      FROM sprag.trail AS t WHERE t.name = lock))
    FROM (VALUES (1)) AS one LEFT JOIN sprag.lock AS l ON l.name = lock);
END $$;
CREATE INDEX ON sprag.trail (name);
";

const RUN: &str = "SELECT sprag.run_sequence('n' || place, commands::jsonb)::text \
     FROM unnest($1::text[]) WITH ORDINALITY AS all_of(commands, place) ORDER BY place";

/// What a sequence left behind, as JSON.
#[derive(serde::Deserialize)]
struct Left {
    answers: Vec<serde_json::Value>,
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

fn compare(sequence: &Sequence, left: Left) {
    let text = |values: Vec<serde_json::Value>| -> Vec<_> {
        values.iter().map(ToString::to_string).collect()
    };
    assert_eq!(left.waiting.unwrap_or(0), left.waiters.len(), "{:#?}", sequence.commands);
    let found = Record {
        version: left.version.unwrap_or(0),
        fence: left.fence.unwrap_or_default(),
        tickets: left.tickets.unwrap_or(0),
        limit: left.limit,
        holders: left.holders.unwrap_or_default(),
        waiters: left.waiters,
        gone: left.gone.unwrap_or_default(),
    };
    sequence.compare(&text(left.answers), &found, &text(left.events));
}

fn written(sequence: &Sequence) -> String {
    let steps: Vec<_> = sequence.written().map(|(one, us)| format!("[{one},\"{us}\"]")).collect();
    format!("[{}]", steps.join(","))
}

async fn run(sequences: usize, seed: u64) {
    let database = Database::fresh();
    let (client, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("{}{PREPARE}", crate::SQL)).await.unwrap();
    let mut random = Rng::with_seed(seed);
    for _ in 0..sequences / BATCH {
        let batch: Vec<_> = (0..BATCH).map(|_| Sequence::random(&mut random)).collect();
        let commands: Vec<_> = batch.iter().map(written).collect();
        let rows = client.query(RUN, &[&commands]).await.unwrap();
        for (sequence, row) in batch.iter().zip(rows) {
            compare(sequence, serde_json::from_str(row.get(0)).unwrap());
        }
        client.batch_execute("TRUNCATE sprag.lock, sprag.waiter, sprag.trail").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_functions_do_what_the_machine_does() {
    if skipped() {
        return;
    }
    let seed = fastrand::u64(..);
    // Shown if it fails.
    println!("seed {seed}");
    let both = [0, 1].map(|place| tokio::spawn(run(SEQUENCES / 2, seed.wrapping_add(place))));
    for one in both {
        one.await.unwrap();
    }
}
