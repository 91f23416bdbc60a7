//! [`Info`]: what a server says about itself, and whether it may be used.

use std::collections::HashMap;

use sprag_core::ErrorKind;

use crate::config::{Place, RedisConfig};
use crate::error::Trouble;
use crate::resp::{FromValue as _, Value};

/// The oldest version that has all we need: `SET` with `PXAT`, ranges without their ends.
const OLDEST: (u32, u32) = (6, 2);

/// When a server writes its log to the disk, and `no-appendfsync-on-rewrite`; not in the answer to `INFO`.
pub(crate) const FSYNC: [&str; 3] = ["CONFIG", "GET", "*appendfsync*"];

/// The answer to `INFO`, and to [`FSYNC`] where it matters.
#[derive(Clone, Debug)]
pub(crate) struct Info(HashMap<String, String>);

impl Info {
    pub(crate) fn read(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(crate) fn version(&self) -> &str {
        self.get("redis_version")
    }

    /// Whether there is a log of all changes.
    pub(crate) fn writes_log(&self) -> bool {
        self.get("aof_enabled") == "1"
    }

    /// Learns how often it is written, if the server tells.
    pub(crate) fn learn_fsync(&mut self, answer: Value) {
        let words = Vec::<String>::from_value(answer).unwrap_or_default();
        for pair in words.chunks_exact(2) {
            self.0.insert(pair[0].clone(), pair[1].clone());
        }
    }

    /// Whether each acknowledged write is in a log that survives a crash of the server.
    ///
    /// Only if it is written before the answer. With `everysec`, what is answered while the disk is
    /// busy with the last second is in no file yet: a server that is killed then forgets it. So does one
    /// that does not write at once while it rewrites its log.
    pub(crate) fn has_log(&self) -> bool {
        self.writes_log() && self.get("appendfsync") == "always" && !self.stops_at_rewrite()
    }

    /// Whether nothing is written at once while the log is rewritten.
    pub(crate) fn stops_at_rewrite(&self) -> bool {
        self.get("no-appendfsync-on-rewrite") == "yes"
    }

    /// The eviction policy, if it may take locks away.
    pub(crate) fn evicts(&self) -> Option<&str> {
        let policy = self.get("maxmemory_policy");
        (!policy.is_empty() && policy != "noeviction").then_some(policy)
    }

    fn is_old(&self) -> bool {
        let mut numbers = self.version().split('.').map(|part| part.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < OLDEST
    }

    /// Refuses a server that cannot keep the promise.
    pub(crate) fn check(&self, config: &RedisConfig, address: &str) -> Result<(), Trouble> {
        let refuse = |kind, message: String| Err(Trouble::new(kind, message));
        let in_cluster = self.get("cluster_enabled") == "1";
        match &config.place {
            Place::Cluster(_) if !in_cluster => {
                let message = format!("{address} is no Cluster: write redis://");
                return refuse(ErrorKind::Refused, message);
            }
            Place::Server(_) | Place::Sentinel { .. } if in_cluster => {
                let message = format!("{address} is a node of a Cluster: write redis+cluster://");
                return refuse(ErrorKind::Refused, message);
            }
            // A node of a Cluster passes on to the master what it does not have.
            Place::Cluster(_) => {}
            Place::Sentinel { .. } if self.get("role") == "slave" => {
                // The sentinels are about to know better.
                return Err(Trouble::no_answer(address, "is a replica at the moment"));
            }
            Place::Server(_) if self.get("role") == "slave" => {
                let master = format!("{}:{}", self.get("master_host"), self.get("master_port"));
                let message = format!(
                    "{address} is a replica, which takes no locks: use its master, {master}"
                );
                return refuse(ErrorKind::Refused, message);
            }
            Place::Server(_) | Place::Sentinel { .. } => {}
        }
        if self.is_old() {
            let (major, minor) = OLDEST;
            let version = self.version();
            let message =
                format!("{address} is Redis {version}: upgrade it to {major}.{minor} or later");
            return refuse(ErrorKind::Unsupported, message);
        }
        match self.evicts() {
            Some(policy) if !config.allow_eviction => refuse(
                ErrorKind::Refused,
                format!(
                    "{address} may evict locks when memory is short (maxmemory-policy {policy}): \
                     type CONFIG SET maxmemory-policy noeviction, or open it with \
                     allow_eviction=true and live with lost locks"
                ),
            ),
            Some(policy) => {
                tracing::warn!(target: "sprag::redis", policy, "this server may evict locks");
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Address;

    fn check(text: &str) -> sprag_core::Result<()> {
        let config = RedisConfig::new(Address::Tcp("db".into(), 6379));
        Ok(Info::read(text).check(&config, "db:6379")?)
    }

    const GOOD: &str = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n";

    #[test]
    fn a_log_that_is_not_written_at_once_is_none() {
        let text = |word: &str| Value::Text(word.into());
        let has_log = |always: &str, stops: &str| {
            let mut info = Info::read("aof_enabled:1");
            let words = ["no-appendfsync-on-rewrite", stops, "appendfsync", always].map(text);
            info.learn_fsync(Value::List(words.into()));
            info.has_log()
        };
        assert!(has_log("always", "no"));
        assert!(!has_log("always", "yes") && !has_log("everysec", "no"));
    }

    #[test]
    fn a_server_that_cannot_keep_the_promise_is_refused_with_the_fix() {
        check(GOOD).unwrap();
        for (was, is, fix) in [
            ("7.0.15", "6.0.9", "upgrade"),
            ("role:master", "role:slave\r\nmaster_host:a\r\nmaster_port:1", "master, a:1"),
            ("noeviction", "volatile-ttl", "CONFIG SET maxmemory-policy noeviction"),
            ("role", "cluster_enabled:1\r\nrole", "redis+cluster://"),
        ] {
            let error = check(&GOOD.replace(was, is)).unwrap_err();
            assert!(error.to_string().contains(fix), "{error}");
        }
    }
}
