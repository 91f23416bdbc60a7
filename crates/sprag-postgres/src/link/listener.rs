//! [`listen`]: the connection on which this process is woken.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use sprag_core::Result;
use sprag_core::wakeups::Wakeups;
use tokio::sync::Notify;
use tokio_postgres::AsyncMessage;

use super::connect::{Connector, PIN};
use crate::error::{from_postgres, no_answer};

/// After so much silence it is checked whether the server is still there.
const SILENCE: Duration = Duration::from_secs(5);
/// How long to wait before the first new attempt to connect; doubled up to [`MOST`].
const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(5);

/// Listens for ever, from the first wish on. A message that is lost costs time, never the lock:
/// waiters have timers behind it.
pub(super) async fn listen(
    connector: Connector,
    channel: String,
    wakeups: Arc<Wakeups>,
    wish: Arc<Notify>,
) {
    wish.notified().await;
    let mut pause = LEAST;
    loop {
        let heard = hear(&connector, &channel, &wakeups, || pause = LEAST).await;
        tracing::debug!(target: "sprag::postgres", error = ?heard.err(), "not listening");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MOST);
    }
}

/// Listens until the connection ends.
async fn hear(
    connector: &Connector,
    channel: &str,
    wakeups: &Wakeups,
    connected: impl FnOnce(),
) -> Result<()> {
    let (client, mut connection, _) = connector.connect().await?;
    let failed = |e| from_postgres(&connector.config, e);
    // The name is made of letters and digits only. Who listens is idle on purpose.
    let subscribe =
        format!("{PIN}; SET idle_session_timeout = 0; LISTEN {channel}; LISTEN sprag_evicted");
    let asking = async {
        client.batch_execute(&subscribe).await.map_err(failed)?;
        connected();
        // What was said before is lost: let everybody look.
        wakeups.hear_gap();
        loop {
            tokio::time::sleep(SILENCE).await;
            let asked = tokio::time::timeout(connector.config.timeout, client.batch_execute(""));
            match asked.await {
                Ok(answered) => answered.map_err(failed)?,
                Err(_) => return Err(no_answer(&connector.config, "is silent")),
            }
        }
    };
    let listening = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(note) = message.map_err(failed)? {
                wakeups.hear(note.payload());
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = listening => ended,
        ended = asking => ended,
    }
}
