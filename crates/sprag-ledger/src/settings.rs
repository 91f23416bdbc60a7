//! [`Settings`]: what a store on a ledger may choose.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use sprag_core::record::Expiry;
use sprag_core::{Capability, Level};

/// Waiters per lock: all of them are in its record.
const MAX_WAITERS: usize = 256;

/// What becomes of a lock whose holder gives no sign of life any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Abandoned {
    /// It stays, for everybody to see, until somebody takes it over as stale or breaks it: work may
    /// lie there half done.
    #[default]
    Stays,
    /// It is free for the next one who waits.
    Freed,
}

/// How a [`LedgerStore`](crate::LedgerStore) behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// What the store can do, and its name.
    pub capability: Capability,
    /// What becomes of a lock whose holder is silent for its TTL. Leases that live by their TTL
    /// alone, detached or never renewed, are free in either case.
    pub abandoned: Abandoned,
    /// How often a lock is looked at while somebody of this process waits for it: from the first
    /// to the last, the longer the more seldom.
    pub poll: RangeInclusive<Duration>,
    /// How often a change is tried that others got in the way of.
    pub attempts: u32,
    /// A file for what was seen of others, so that short commands can build on earlier ones.
    pub observations: Option<PathBuf>,
    /// How late a read may be: within this time after a change we know of, an older version that
    /// is read is not believed.
    pub lag: Duration,
    /// Whether a lock is looked at before it is taken, although it is known from before: where a look
    /// is cheap and a swap that is refused is not.
    pub look_first: bool,
    /// How many changes of one lock are kept as a chain of entries. The next one begins anew, and
    /// takes the last of what happened along.
    pub chain: u64,
    /// Whether what only the client knows goes into the trail: each costs a write.
    pub notes: bool,
}

impl Settings {
    /// The settings for a store of this name.
    pub const fn new(store: &'static str) -> Self {
        let mut capability = Capability::full(store, Level::Fenced);
        capability.eviction_hints = false;
        capability.expiry = Expiry::Observed;
        capability.max_waiters = MAX_WAITERS;
        capability.default_ttl = Duration::from_secs(120);
        capability.min_ttl = Duration::from_secs(1);
        Self {
            capability,
            abandoned: Abandoned::Stays,
            poll: Duration::from_secs(1)..=Duration::from_secs(16),
            attempts: 20,
            observations: None,
            lag: Duration::ZERO,
            look_first: false,
            chain: 512,
            notes: true,
        }
    }
}
