//! [`watch`]: the connection on which this process waits for the end of others that have what it
//! wants. The server frees the locks of a process at once when it dies, but tells nobody.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use sprag_core::entropy::OsEntropy;
use sprag_core::{Result, SessionId};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::connect::{Connector, PIN};
use crate::advisory::Holdings;
use crate::error::{from_postgres, misfit, no_answer};

const BEGIN: &str = "SELECT sprag.begin_session_v1($1)::text";
const WATCH: &str = "SELECT sprag.watch_v1($1, $2, $3, $4)";
/// What the DBA may have set is not meant for who waits on purpose.
const PATIENTLY: &str = "SET statement_timeout = 0; SET idle_session_timeout = 0";

/// How long the server waits for the end of the only session that matters, in milliseconds. Less than
/// its `deadlock_timeout`, after which it would look for deadlocks and might write that down.
const ONLY: i32 = 200;
/// How long for each of several.
const ONE_OF_MANY: i32 = 20;
/// At least as long as either.
const LONGEST: Duration = Duration::from_millis(500);
/// Pause where there is nothing to wait for, and yet nothing to be done: the first seconds after a
/// restart of the server.
const PAUSE: Duration = Duration::from_millis(100);
/// After so much silence it is checked whether the server is still there.
const SILENCE: Duration = Duration::from_secs(5);
/// How long to wait before the first new attempt to connect; doubled up to [`MOST`].
const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(5);

/// Watches for ever, from the first wish on. What is missed costs time, never the lock: waiters have
/// timers behind it.
pub(super) async fn watch(connector: Connector, holdings: Arc<Holdings>) {
    let mut pause = LEAST;
    loop {
        holdings.watched.wanted().await;
        let watched = watch_on(&connector, &holdings, || pause = LEAST).await;
        tracing::debug!(target: "sprag::postgres", error = ?watched.err(), "not watching");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MOST);
    }
}

/// Watches until the connection ends.
async fn watch_on(
    connector: &Connector,
    holdings: &Holdings,
    connected: impl FnOnce(),
) -> Result<()> {
    let (client, mut connection, _) = connector.connect().await?;
    let failed = |e| from_postgres(&connector.config, e);
    let asking = async {
        let session = SessionId::random(&OsEntropy).to_string();
        client.batch_execute(&format!("{PIN}; {PATIENTLY}")).await.map_err(failed)?;
        client.query_typed(BEGIN, &[(&session, Type::TEXT)]).await.map_err(failed)?;
        connected();
        for number in 0.. {
            let (sessions, locks) = holdings.watched.turn(number);
            if sessions.is_empty() {
                let silence = tokio::time::timeout(SILENCE, holdings.watched.wanted()).await;
                if silence.is_err() {
                    in_time(connector, client.batch_execute("")).await?;
                }
            } else {
                let over = look(connector, &client, sessions, locks).await?;
                holdings.watched.forget(&over);
            }
        }
        Ok(())
    };
    let driving = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            message.map_err(failed)?;
        }
        Ok(())
    };
    tokio::select! {
        ended = driving => ended,
        ended = asking => ended,
    }
}

/// Waits a moment for the end of one of these sessions. Tells which are over.
async fn look(
    connector: &Connector,
    client: &Client,
    sessions: Vec<String>,
    locks: Vec<String>,
) -> Result<Vec<String>> {
    let patience = if sessions.iter().all(|it| *it == sessions[0]) { ONLY } else { ONE_OF_MANY };
    let namespace = &connector.config.namespace;
    let asked = [
        (namespace as _, Type::TEXT),
        (&sessions as _, Type::TEXT_ARRAY),
        (&locks as _, Type::TEXT_ARRAY),
        (&patience as _, Type::INT4),
    ];
    let began = tokio::time::Instant::now();
    let answer = in_time(connector, client.query_typed_one(WATCH, &asked)).await?;
    let waited = began.elapsed() >= Duration::from_millis(u64::from(patience.unsigned_abs()) / 2);
    let over: Vec<String> = answer.try_get(0).map_err(|e| misfit(&connector.config, &e.into()))?;
    if over.is_empty() && !waited {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(over)
}

async fn in_time<T>(
    connector: &Connector,
    work: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T> {
    match tokio::time::timeout(connector.config.timeout + LONGEST, work).await {
        Ok(done) => done.map_err(|e| from_postgres(&connector.config, e)),
        Err(_) => Err(no_answer(&connector.config, "is silent")),
    }
}
