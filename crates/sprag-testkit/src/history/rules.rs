//! [`Rules`]: what a history has to obey.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a history has to obey: what the store promises, and what was done to it.
///
/// The default is a healthy run on a store with a fair queue, in which every lock is looked at in
/// the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Whether the store promises exclusion in this run (C2). Off if a lock was taken by force or
    /// stolen.
    pub exclusion: bool,
    /// Whether critical sections may not overlap either (C2). Off in runs with paused processes:
    /// no lock service can stop a process that wakes up after its lease has ended.
    pub sections: bool,
    /// Whether the guarded resource checks fences, so that no update is lost (C4).
    pub fenced_resource: bool,
    /// When the last fault was over; every waiter from then on is granted in time (C5). None if
    /// liveness is not checked.
    pub healed_at_ns: Option<u64>,
    /// How long a waiter may wait after the faults (C5).
    pub grant_within: Duration,
    /// Whether waiters are granted in their order (C6).
    pub fifo: bool,
    /// Whether each lock is looked at in the end, and nothing is left (C7).
    pub empty_at_end: bool,
    /// How much later than the end of its belief a holder may be told its loss (C8): the time a
    /// thread may take to wake up. None if nobody watches for losses, or processes were paused.
    pub lost_slack: Option<Duration>,
    /// Whether the store keeps what it acknowledged (C9). Off if it was restarted without
    /// durability.
    pub durable: bool,
    /// Processes that were killed, and when.
    pub killed: BTreeMap<String, u64>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            exclusion: true,
            sections: false,
            fenced_resource: true,
            healed_at_ns: None,
            grant_within: Duration::from_secs(10),
            fifo: true,
            empty_at_end: true,
            lost_slack: Some(Duration::from_millis(250)),
            durable: true,
            killed: BTreeMap::new(),
        }
    }
}
