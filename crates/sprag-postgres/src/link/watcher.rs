//! [`watch`]: how a process with advisory locks notices the end of others that have what it wants. The
//! server frees the locks of a process at once when it dies, but tells nobody: so it is asked.
//!
//! By whoever is next in a queue alone, so that of a crowd one process asks.

use std::sync::Arc;
use std::time::Duration;

use sprag_core::Result;
use tokio_postgres::types::Type;

use super::connect::Line;
use super::{Call, Desk};
use crate::advisory::Holdings;
use crate::error::misfit;

const WATCH: &str = "SELECT sprag.watch_v1($1, $2, $3)";

/// From one question to the next: who is next has the lock half of this after the holder has died.
const PAUSE: Duration = Duration::from_millis(40);
/// The longest pause while nothing is answered.
const MOST: Duration = Duration::from_secs(1);

/// Watches for ever, from the first wish on. What is missed costs time, never the lock: waiters have
/// timers behind it.
pub(super) async fn watch(desk: Arc<Desk>, holdings: Arc<Holdings>) {
    let mut pause = PAUSE;
    loop {
        let (sessions, locks) = holdings.watched.all();
        if sessions.is_empty() {
            holdings.watched.wanted().await;
            continue;
        }
        match desk.line() {
            Some(line) => match look(&desk, &line, sessions, locks).await {
                Ok(over) => {
                    holdings.watched.forget(&over);
                    pause = PAUSE;
                }
                Err(error) => {
                    tracing::debug!(target: "sprag::postgres", %error, "not watching");
                    pause = (pause * 2).min(MOST);
                }
            },
            // Whoever waits connects, and then wants it again.
            None => pause = MOST,
        }
        tokio::time::sleep(pause).await;
    }
}

/// Tells which of these sessions are over; the locks that they had are free then.
async fn look(
    desk: &Desk,
    line: &Line,
    sessions: Vec<String>,
    locks: Vec<String>,
) -> Result<Vec<String>> {
    let config = &desk.connector.config;
    let call = Call::new(WATCH)
        .text(&config.namespace)
        .with(sessions, Type::TEXT_ARRAY)
        .with(locks, Type::TEXT_ARRAY);
    let _errand = line.lane.errand();
    let rows = line.ask(config, &call).await?;
    let over = rows.first().map(|row| row.try_get(0)).transpose();
    over.map(Option::unwrap_or_default).map_err(|e| misfit(config, &e.into()))
}
