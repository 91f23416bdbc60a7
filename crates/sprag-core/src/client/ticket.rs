//! [`Ticket`]: a lease on its way to another process.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fence::Fence;
use crate::id::LeaseId;
use crate::mode::Mode;
use crate::name::LockName;

/// A held lease without a process: it lives by its TTL alone until somebody
/// [adopts](super::Client::adopt) it. Whoever has it may use it, so keep it secret. It is good for one:
/// of two who adopt it the first gets the lock, and the other is told that it is too late.
///
/// # Examples
///
/// ```
/// # futures::executor::block_on(async {
/// # use std::sync::Arc;
/// # use sprag_core::{Client, MemoryStore, Ticket};
/// # let store = MemoryStore::new();
/// # let here = Client::new(Arc::new(store.connect()));
/// # let there = Client::new(Arc::new(store.connect()));
/// let guard = here.lock("migrate").acquire().await?;
/// let text = serde_json::to_string(&guard.into_ticket().await?).unwrap();
///
/// // In another process:
/// let ticket: Ticket = serde_json::from_str(&text).unwrap();
/// let guard = there.adopt(ticket).await?;
/// guard.release().await?;
/// # Ok::<(), sprag_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ticket {
    pub(super) name: LockName,
    pub(super) lease: LeaseId,
    pub(super) mode: Mode,
    pub(super) fence: Fence,
    #[serde(rename = "ttl_ms", with = "millis")]
    pub(super) ttl: Duration,
}

impl Ticket {
    /// Describes a lease that is known from elsewhere, such as the command line.
    pub const fn new(
        name: LockName,
        lease: LeaseId,
        mode: Mode,
        fence: Fence,
        ttl: Duration,
    ) -> Self {
        Self { name, lease, mode, fence, ttl }
    }

    /// The lock.
    pub const fn name(&self) -> &LockName {
        &self.name
    }

    /// The lease id: the secret in it.
    pub const fn lease(&self) -> LeaseId {
        self.lease
    }

    /// The fence of the grant.
    pub const fn fence(&self) -> Fence {
        self.fence
    }
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(ttl: &Duration, to: S) -> Result<S::Ok, S::Error> {
        u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}
