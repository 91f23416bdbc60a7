//! [`Capability`]: what a store can do, as data.

use std::fmt;
use std::time::Duration;

use crate::record::Expiry;

/// What a store can do. The client checks a request against it before the store is touched;
/// what a store lacks is refused as unsupported, never given as a weaker lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capability {
    /// The store's short name, such as `"sqlite"`; used in messages and metrics.
    pub store: &'static str,
    /// What the store promises.
    pub level: Level,
    /// Shared and upgradable locks, upgrade and downgrade.
    pub shared: bool,
    /// Semaphores.
    pub permits: bool,
    /// A queue kept by the store: FIFO, priorities, hand-over on release.
    pub queue: bool,
    /// Taking over a holder whose heartbeat is overdue, and taking by force.
    pub steal: bool,
    /// Leases that live by their TTL alone and outlive their process.
    pub detached: bool,
    /// An audit trail: who got, lost, gave back or broke which lock.
    pub audit: bool,
    /// What ends a lease that is not renewed.
    pub expiry: Expiry,
    /// Wake-ups; without them waiters ask on a timer.
    pub notify: bool,
    /// Holders hear at once that their lock was taken away, by a break or by force; without that they
    /// find out when they renew their lease next. A lease that is not renewed by itself is told at its
    /// end in any case.
    pub eviction_hints: bool,
    /// How long a lease lasts if nobody says how long: as short as signs of life are cheap.
    pub default_ttl: Duration,
    /// The shortest lease.
    pub min_ttl: Duration,
    /// The longest lease.
    pub max_ttl: Duration,
    /// Waiters per lock.
    pub max_waiters: usize,
    /// Bytes of text in a [`Holder`](crate::Holder).
    pub max_holder_bytes: usize,
}

impl Capability {
    /// A store that can do everything, with the default limits.
    pub const fn full(store: &'static str, level: Level) -> Self {
        Self {
            store,
            level,
            shared: true,
            permits: true,
            queue: true,
            steal: true,
            detached: true,
            audit: true,
            expiry: Expiry::Clock,
            notify: true,
            eviction_hints: true,
            default_ttl: Duration::from_secs(30),
            min_ttl: Duration::from_millis(100),
            max_ttl: Duration::from_secs(366 * 24 * 3600),
            max_waiters: 4096,
            max_holder_bytes: 2048,
        }
    }
}

/// How strong a store's promise is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Usually one holder; double work is possible in the faults listed for the store.
    Efficiency,
    /// At most one grant is inside its believed validity at any instant.
    LeaseExclusive,
    /// As `LeaseExclusive`, and fences never repeat or go back, so that a resource which checks
    /// them never accepts a late write.
    Fenced,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Efficiency => "L1 (efficiency)",
            Self::LeaseExclusive => "L2 (lease-exclusive)",
            Self::Fenced => "L3 (fenced)",
        })
    }
}
