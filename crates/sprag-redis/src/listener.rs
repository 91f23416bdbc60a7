//! [`listen`]: the connection on which this process is woken.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::{Client, RedisError};
use sprag_core::LeaseId;
use sprag_core::mailbox::Mailboxes;
use tokio::sync::Notify;

/// After so much silence it is checked whether the server is still there.
const SILENCE: Duration = Duration::from_secs(5);
/// How long to wait before the first new attempt to connect; doubled up to [`MOST`].
const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(5);

/// Listens for ever, from the first wish on. A message that is lost costs time, never the lock:
/// waiters have timers behind it.
pub(crate) async fn listen(
    client: Client,
    channel: String,
    patience: Duration,
    mailboxes: Arc<Mailboxes>,
    wish: Arc<Notify>,
) {
    wish.notified().await;
    let mut pause = LEAST;
    loop {
        let heard = hear(&client, &channel, patience, &mailboxes, || pause = LEAST).await;
        tracing::debug!(target: "sprag::redis", error = ?heard.err(), "not listening");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MOST);
    }
}

/// Listens until the connection ends.
async fn hear(
    client: &Client,
    channel: &str,
    patience: Duration,
    mailboxes: &Mailboxes,
    connected: impl FnOnce(),
) -> Result<(), RedisError> {
    let late = |_| RedisError::from((redis::ErrorKind::Io, "no answer in time"));
    let opening = async {
        let mut line = client.get_async_pubsub().await?;
        line.subscribe(channel).await?;
        Ok::<_, RedisError>(line)
    };
    let line = tokio::time::timeout(patience, opening).await.map_err(late)??;
    connected();
    let (mut sink, mut messages) = line.split();
    // What was said before is lost: let everybody look.
    mailboxes.notify_all();
    loop {
        match tokio::time::timeout(SILENCE, messages.next()).await {
            Ok(Some(message)) => {
                // The lease, a colon, the fence; the latter is for people who watch.
                let text = message.get_payload::<String>()?;
                let lease = text.split(':').next().and_then(|lease| lease.parse::<LeaseId>().ok());
                match lease {
                    Some(lease) => mailboxes.notify(lease),
                    None => mailboxes.notify_all(),
                }
            }
            Ok(None) => return Ok(()),
            Err(_) => {
                let ping = sink.ping::<redis::Value>();
                tokio::time::timeout(patience, ping).await.map_err(late)??;
            }
        }
    }
}
