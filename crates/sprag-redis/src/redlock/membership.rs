//! [`Membership`]: which nodes vote.
//!
//! A node that does not know itself any more, because it was restarted without its data or was
//! emptied, is let in again by whoever finds it: at once where no lock was ever asked for on any
//! node, else after the longest lease that anybody knows of. Until then it rests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::answer::Said;
use super::nodes::{Failures, Nodes};
use crate::config::{Quarantine, RedisConfig};
use crate::script::Script;

/// Which nodes vote, as far as this process has a say in it.
#[derive(Debug)]
pub(super) struct Membership {
    quarantine: Quarantine,
    configured: Duration,
    /// The longest lease that this process has asked for, in milliseconds.
    longest_ms: AtomicU64,
}

/// What the nodes say about themselves.
#[derive(Debug, Default)]
pub(super) struct Census {
    pub(super) votes: Vec<usize>,
    pub(super) fresh: Vec<usize>,
    /// Nodes that rest, and for how many milliseconds.
    pub(super) rests: Vec<(usize, u64)>,
    pub(super) longest_ms: u64,
}

impl Membership {
    pub(super) fn new(config: &RedisConfig) -> Self {
        Self {
            quarantine: config.quarantine,
            configured: config.longest_ttl,
            longest_ms: AtomicU64::new(0),
        }
    }

    /// Somebody asks for a lease of this length.
    pub(super) fn uses(&self, ttl: Duration) {
        self.longest_ms.fetch_max(millis(ttl), Ordering::Relaxed);
    }

    /// Asks all nodes, and lets in those that are fresh. Waits for the slow ones only until a
    /// majority has answered, and a little longer.
    pub(super) async fn admit(&self, nodes: &Nodes) -> (Census, Failures) {
        let (mut census, failures) = look(nodes, -1).await;
        if !census.fresh.is_empty() {
            let rest = self.rest(&census);
            let fresh = census.fresh.len();
            tracing::warn!(target: "sprag::redlock", fresh, ?rest, "nodes that know of no lock are let in");
            let rest = i64::try_from(millis(rest)).unwrap_or(i64::MAX);
            (census, _) = look(nodes, rest).await;
        }
        (census, failures)
    }

    /// How long a fresh node rests.
    fn rest(&self, census: &Census) -> Duration {
        let longest = census.longest_ms.max(self.longest_ms.load(Ordering::Relaxed));
        let rest = Duration::from_millis(longest).max(self.configured);
        match self.quarantine {
            Quarantine::Never => Duration::ZERO,
            Quarantine::Witnessed if longest == 0 => Duration::ZERO,
            Quarantine::Witnessed | Quarantine::Always => rest,
        }
    }
}

/// How long to wait for the rest once a majority has answered.
const GRACE: Duration = Duration::from_millis(50);

/// What the nodes say; fresh ones are let in if `rest_ms` is not negative.
pub(super) async fn look(nodes: &Nodes, rest_ms: i64) -> (Census, Failures) {
    let keys = vec![String::new(), String::new(), nodes.mark()];
    let call = Nodes::call(Script::RedlockLook, &keys, &["node", &rest_ms.to_string()]);
    let mut census = Census::default();
    let mut missing: Vec<usize> = (0..nodes.count()).collect();
    let mut failures = Failures::default();
    // First for a majority, then for a moment for the others.
    for (patience, enough) in [(nodes.timeout, nodes.majority()), (GRACE, nodes.count())] {
        let asks = missing.iter().map(|node| (*node, call.clone())).collect();
        failures = nodes
            .ask(asks, patience, |node, answer| {
                let Some(answer) = answer else { return false };
                missing.retain(|other| *other != node);
                census.put(node, &answer.said);
                nodes.count() - missing.len() >= enough
            })
            .await;
        if missing.is_empty() {
            break;
        }
    }
    (census, failures)
}

impl Census {
    fn put(&mut self, node: usize, said: &Said) {
        match said {
            Said::Marked { longest_ms, rests_ms } => {
                self.longest_ms = self.longest_ms.max(*longest_ms);
                if *rests_ms > 0 {
                    self.rests.push((node, *rests_ms));
                } else {
                    self.votes.push(node);
                }
            }
            Said::Fresh => self.fresh.push(node),
            _ => {}
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
