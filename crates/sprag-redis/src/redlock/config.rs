//! [`RedlockConfig`]: which nodes there are, and how long each may take.

use std::time::Duration;

use sprag_core::{Error, Operation, Result};

use super::STORE;
use crate::config::{Place, RedisConfig};

/// How many nodes there may be. Each is a connection.
const MOST: usize = 15;
/// How long a node may take, unless the lease is short.
const SLOW: Duration = Duration::from_millis(50);

/// How to open a [`RedlockStore`](crate::RedlockStore).
///
/// # Examples
///
/// ```
/// use sprag_redis::{Address, RedisConfig, RedlockConfig};
///
/// let node = |host: &str| RedisConfig::new(Address::Tcp(host.into(), 6379));
/// let config = RedlockConfig::new(vec![node("a"), node("b"), node("c")]);
/// ```
#[derive(Clone, Debug)]
pub struct RedlockConfig {
    pub(super) nodes: Vec<RedisConfig>,
    pub(super) fences: bool,
    node_timeout: Option<Duration>,
}

impl RedlockConfig {
    /// These nodes, with the defaults: independent masters, an odd number of them, with the same
    /// prefix.
    pub const fn new(nodes: Vec<RedisConfig>) -> Self {
        Self { nodes, fences: true, node_timeout: None }
    }

    /// Whether grants carry a fence; they do by default. Without, every fence is 0.
    #[must_use]
    pub const fn fences(mut self, fences: bool) -> Self {
        self.fences = fences;
        self
    }

    /// How long a node may take to answer; a twentieth of the TTL and at most 50 ms by default.
    /// Nobody waits for it once a majority has decided.
    #[must_use]
    pub const fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = Some(timeout);
        self
    }

    /// How long a node may take for a lease of this length.
    pub(super) fn patience(&self, ttl: Duration) -> Duration {
        self.node_timeout.unwrap_or_else(|| (ttl / 20).min(SLOW))
    }

    pub(super) fn check(&self) -> Result<()> {
        let bad = |message: String| Err(Error::bad_input(Operation::Open, message).at(STORE));
        let count = self.nodes.len();
        if !(3..=MOST).contains(&count) || count.is_multiple_of(2) {
            return bad(format!(
                "{count} nodes cannot be: an odd number from 3 to {MOST} is needed, as an even one \
                 survives no more failures than one less"
            ));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            node.check()?;
            if !matches!(node.place, Place::Server(_)) {
                return bad(format!(
                    "{} is no single server: name independent masters",
                    node.place
                ));
            }
            let twin = self.nodes[..index].iter().any(|other| {
                (&other.place, other.login.database) == (&node.place, node.login.database)
            });
            if twin {
                return bad(format!("{} is named twice, and would vote twice", node.place));
            }
            if node.prefix != self.nodes[0].prefix {
                return bad("the nodes have different prefixes: give all of them the same".into());
            }
            if node.min_replicas.is_some_and(|count| count > 0) {
                return bad("min_replicas means nothing to Redlock: its nodes stand alone".into());
            }
        }
        if self.node_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return bad("a node_timeout of 0 leaves no time for an answer: give 1 ms".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Address;

    fn node(host: &str) -> RedisConfig {
        RedisConfig::new(Address::Tcp(host.into(), 6379))
    }

    #[test]
    fn nodes_that_make_no_majority_are_refused() {
        let check = |hosts: &[&str]| {
            RedlockConfig::new(hosts.iter().map(|host| node(host)).collect()).check()
        };
        check(&["a", "b", "c"]).unwrap();
        for hosts in [&["a"][..], &["a", "b"], &["a", "b", "c", "d"], &["a", "b", "a"]] {
            assert!(check(hosts).unwrap_err().is_bad_input(), "{hosts:?}");
        }
        let mixed = vec![node("a"), node("b").prefix("x:"), node("c")];
        assert!(RedlockConfig::new(mixed).check().unwrap_err().is_bad_input());
        let cluster = vec![node("a"), RedisConfig::cluster(vec![]), node("c")];
        assert!(RedlockConfig::new(cluster).check().unwrap_err().is_bad_input());
    }

    #[test]
    fn a_node_may_take_a_twentieth_of_the_lease() {
        let config = RedlockConfig::new(Vec::new());
        assert_eq!(config.patience(Duration::from_millis(200)), Duration::from_millis(10));
        assert_eq!(config.patience(Duration::from_secs(60)), SLOW);
        let patient = config.node_timeout(Duration::from_secs(1));
        assert_eq!(patient.patience(Duration::from_millis(200)), Duration::from_secs(1));
    }
}
