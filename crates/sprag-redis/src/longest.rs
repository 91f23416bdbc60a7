//! [`Longest`]: the longest lease that anybody may believe in, which is how long a server that has
//! forgotten its locks grants none.
//!
//! A server that forgets its locks forgets this as well. So every client knows it before: each tells
//! the server what it uses, and asks from time to time what the others do. After a restart those who
//! are still there tell it again, and whoever waits until it may grant is told in time.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::select;
use sprag_core::{Operation, Result};
use tokio::sync::Notify;

use crate::script::Call;
use crate::way::Way;

/// How often the server is asked what others use.
const EVERY: Duration = Duration::from_secs(5);
/// The one member of the sorted set: its score is the longest TTL in milliseconds.
const MEMBER: &str = "ms";

/// The longest TTLs, in milliseconds.
#[derive(Debug)]
pub(crate) struct Longest {
    /// Where all clients note what they use.
    key: String,
    /// The longest that this process has used.
    used: AtomicU64,
    /// The longest that anybody is known to use.
    known: AtomicU64,
    /// There is something to tell the server.
    news: Notify,
}

impl Longest {
    pub(crate) fn new(key: String, configured: Duration) -> Self {
        let (used, known) = (AtomicU64::new(0), AtomicU64::new(millis(configured)));
        Self { key, used, known, news: Notify::new() }
    }

    /// This process uses such a TTL.
    pub(crate) fn uses(&self, ttl: Duration) {
        let ttl = millis(ttl);
        if self.used.load(Ordering::Relaxed) < ttl {
            self.used.fetch_max(ttl, Ordering::Relaxed);
            self.known.fetch_max(ttl, Ordering::Relaxed);
            self.news.notify_one();
        }
    }

    /// The server may have forgotten what it was told.
    pub(crate) fn forgotten(&self) {
        self.news.notify_one();
    }

    /// Asks what others use.
    pub(crate) fn question(&self) -> [&str; 3] {
        ["ZSCORE", &self.key, MEMBER]
    }

    /// The answer, if it is one.
    pub(crate) fn learn(&self, noted: Option<&str>) -> u64 {
        // A score is a number with a fraction, of which there is none here.
        let noted = noted.and_then(|text| text.parse().ok()).unwrap_or(0);
        self.known.fetch_max(noted, Ordering::Relaxed);
        noted
    }

    /// The longest that anybody is known to use.
    pub(crate) fn of_anybody(&self) -> Duration {
        Duration::from_millis(self.known.load(Ordering::Relaxed))
    }

    /// Keeps the server and this process informed, as long as there is a way.
    pub(crate) async fn keep_known(&self, way: Weak<Way>) {
        while let Some(way) = way.upgrade() {
            if let Err(error) = self.exchange(&way).await {
                // Asked again later; whoever wants a lock is told the same.
                tracing::debug!(target: "sprag::redis", %error, "longest TTL not exchanged");
            }
            drop(way);
            let (news, pause) = (std::pin::pin!(self.news.notified()), tokio::time::sleep(EVERY));
            select(news, std::pin::pin!(pause)).await;
        }
    }

    async fn exchange(&self, way: &Way) -> Result<()> {
        let ask = async |words: &[&str]| {
            way.ask::<Option<String>>(Operation::Open, &self.key, Call::plain(words)).await
        };
        let noted = self.learn(ask(&self.question()).await?.as_deref());
        let used = self.used.load(Ordering::Relaxed);
        if used > noted {
            // Whatever was noted meanwhile, the longer one stays.
            ask(&["ZADD", &self.key, "GT", &used.to_string(), MEMBER]).await?;
        }
        Ok(())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
