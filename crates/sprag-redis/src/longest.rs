//! [`Longest`]: the longest lease that anybody may believe in, which is how long a server that has
//! forgotten its locks grants none.
//!
//! A server that forgets its locks forgets this as well. So every client knows it before: each tells
//! the server what it uses, and asks from time to time what the others do. After a restart those who
//! are still there tell it again, and whoever waits until it may grant is told in time.
//!
//! Nobody can wait for months. So no TTL counts for more than [`MOST`], unless a longer one is
//! configured, and an operator who knows that nobody holds anything ends the wait by a key.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::select;
use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::{Operation, Result};
use tokio::sync::Notify;

use crate::script::Call;
use crate::way::Way;

/// How often the server is asked what others use.
const EVERY: Duration = Duration::from_secs(5);
/// The longest quarantine, unless a longer one is configured.
pub(crate) const MOST: Duration = Duration::from_secs(15 * 60);
/// The one member of the sorted set: its score is the longest TTL in milliseconds.
const MEMBER: &str = "ms";

/// The longest TTLs, in milliseconds.
#[derive(Debug)]
pub(crate) struct Longest {
    /// Where all clients note what they use.
    key: String,
    /// What an operator sets to end all quarantines.
    open_key: String,
    /// More than that does not count.
    most: u64,
    /// When the operator was last seen to have ended them, in milliseconds of our clock.
    ended_ms: AtomicU64,
    /// The longest that this process has used.
    used: AtomicU64,
    /// The longest that anybody is known to use.
    known: AtomicU64,
    /// There is something to tell the server.
    news: Notify,
}

impl Longest {
    pub(crate) fn new(key: String, open_key: String, configured: Duration) -> Self {
        let (used, known) = (AtomicU64::new(0), AtomicU64::new(millis(configured)));
        let (most, ended_ms) = (millis(configured.max(MOST)), AtomicU64::new(0));
        Self { key, open_key, most, ended_ms, used, known, news: Notify::new() }
    }

    /// What an operator types to end a quarantine.
    pub(crate) fn how_to_end(&self) -> String {
        format!("redis-cli SET '{}' yes EX 60", self.open_key)
    }

    /// Whether an operator has ended a quarantine that began then.
    pub(crate) fn is_ended(&self, began: Moment) -> bool {
        self.ended_ms.load(Ordering::Relaxed) > began.as_millis()
    }

    /// This process uses such a TTL.
    pub(crate) fn uses(&self, ttl: Duration) {
        let ttl = millis(ttl).min(self.most);
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
        let noted = noted.and_then(|text| text.parse().ok()).unwrap_or(0).min(self.most);
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
        if ask(&["GET", &self.open_key]).await?.is_some() {
            self.ended_ms.store(BootClock.now().as_millis(), Ordering::Relaxed);
        }
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
