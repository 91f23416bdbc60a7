//! Leases by hand: the least that a lock with a fence, and a hand-over of it, can cost if it is to be
//! on the disk.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use crate::server::locker::{Locker, Stopwatch, left};
use crate::visits::Visit;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS hand_lock (
  name text PRIMARY KEY, token text, fence bigint NOT NULL, expires timestamptz NOT NULL,
  meta text NOT NULL);
CREATE TABLE IF NOT EXISTS hand_queue (
  ticket bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL, token text NOT NULL);
CREATE OR REPLACE FUNCTION hand_take(lock text, mine text, about text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE taken bigint;
BEGIN
  INSERT INTO hand_lock AS l VALUES (lock, mine, (extract(epoch FROM clock_timestamp()) * 1e6)::bigint,
    clock_timestamp() + '30 s', about)
  ON CONFLICT (name) DO UPDATE SET token = mine, fence = greatest(l.fence + 1, excluded.fence),
    expires = excluded.expires, meta = about WHERE l.token IS NULL
  RETURNING fence INTO taken;
  IF taken IS NULL THEN
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO hand_queue (name, token) VALUES (lock, mine);
  END IF;
  RETURN taken;
END $$;
CREATE OR REPLACE FUNCTION hand_pass(lock text, mine text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE next record;
BEGIN
  PERFORM FROM hand_lock AS l WHERE l.name = lock AND l.token = mine FOR UPDATE;
  DELETE FROM hand_queue WHERE ticket = (SELECT q.ticket FROM hand_queue AS q
    WHERE q.name = lock ORDER BY q.ticket LIMIT 1) RETURNING token INTO next;
  UPDATE hand_lock AS l SET token = next.token, expires = clock_timestamp() + '30 s',
    fence = greatest(l.fence + 1, (extract(epoch FROM clock_timestamp()) * 1e6)::bigint)
    WHERE l.name = lock AND l.token = mine;
  IF next.token IS NULL THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  ELSE
    PERFORM pg_notify('hand', next.token);
  END IF;
END $$;
";

const UPSERT: &str = "INSERT INTO hand_lock AS l VALUES ($1, $2,
    (extract(epoch FROM clock_timestamp()) * 1e6)::bigint, clock_timestamp() + '30 s', $3)
  ON CONFLICT (name) DO UPDATE SET token = $2, fence = greatest(l.fence + 1, excluded.fence),
    expires = excluded.expires, meta = $3
    WHERE l.token IS NULL OR l.expires < clock_timestamp() OR l.token = $2
  RETURNING fence, clock_timestamp()::text";
const UPDATE: &str =
    "WITH later AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
  UPDATE hand_lock SET token = NULL FROM later WHERE name = $1 AND token = $2";
const ABOUT: &str = r#"{"worker_id":"by hand","node_id":"bench","since_unix_ms":1790000000000}"#;

pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// One upsert, one update.
pub(crate) struct ByHand {
    client: Client,
    take: Statement,
    free: Statement,
    token: u64,
}

impl ByHand {
    pub(crate) async fn new(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        client.batch_execute(TABLES).await?;
        let (take, free) = (client.prepare(UPSERT).await?, client.prepare(UPDATE).await?);
        Ok(Self { client, take, free, token: 0 })
    }
}

#[async_trait]
impl Locker for ByHand {
    async fn visit(&mut self, lock: &str, stay: Duration) -> Result<Visit> {
        let watch = Stopwatch::start();
        self.token += 1;
        let token = format!("{:032}", self.token);
        let row = self.client.query_opt(&self.take, &[&lock, &token, &ABOUT]).await?;
        row.with_context(|| format!("somebody else has {lock}"))?;
        let visit = watch.stay(stay).await;
        let freed = self.client.execute(&self.free, &[&lock, &token]).await?;
        ensure!(freed == 1, "{lock} was lost");
        Ok(left(visit))
    }
}

type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

/// A queue in a table, and who is next is woken; one connection for statements and one to listen.
#[derive(Clone)]
pub(crate) struct HandOver {
    client: Arc<Client>,
    statements: Arc<[Statement; 2]>,
    waiting: Waiting,
    who: usize,
    visits: u64,
}

impl HandOver {
    pub(crate) async fn new(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        client.batch_execute(TABLES).await?;
        let take = client.prepare("SELECT hand_take($1, $2, $3)").await?;
        let pass = client.prepare("SELECT hand_pass($1, $2)::text").await?;
        let waiting = Waiting::default();
        listen(url, Arc::clone(&waiting)).await?;
        let (client, statements) = (Arc::new(client), Arc::new([take, pass]));
        Ok(Self { client, statements, waiting, who: 0, visits: 0 })
    }

    pub(crate) fn numbered(&self, who: usize) -> Self {
        Self { who, ..self.clone() }
    }
}

async fn listen(url: &str, waiting: Waiting) -> Result<()> {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(note) = message {
                let woken = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let woken = { woken }.remove(note.payload());
                woken.map(|wake| wake.send(()));
            }
        }
    });
    client.batch_execute("LISTEN hand").await?;
    // It ends with the process.
    std::mem::forget(client);
    Ok(())
}

#[async_trait]
impl Locker for HandOver {
    async fn visit(&mut self, lock: &str, stay: Duration) -> Result<Visit> {
        let watch = Stopwatch::start();
        self.visits += 1;
        let token = format!("{:08}:{:08}", self.who, self.visits);
        let (wake, woken) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), wake);
        let [take, pass] = &*self.statements;
        let row = self.client.query_one(take, &[&lock, &token, &ABOUT]).await?;
        if row.get::<_, Option<i64>>(0).is_none() {
            woken.await?;
        }
        let visit = watch.stay(stay).await;
        self.client.execute(pass, &[&lock, &token]).await?;
        Ok(left(visit))
    }
}
