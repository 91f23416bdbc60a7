//! [`Loss`]: why a lock is no longer held.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fence::Fence;

/// Why a holder or waiter lost its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Loss {
    /// The lease ran out before it was renewed.
    Expired,
    /// The lease ran out because the store could not be reached to renew it.
    Unreachable,
    /// The lease will run out, because the store allows no more requests before it does.
    RateLimited,
    /// Another holder took the lock over, because this one looked dead or by force.
    Stolen {
        /// The worker that took it.
        by: String,
        /// Whether it was taken while the lease was still good.
        forced: bool,
    },
    /// An operator broke the lock.
    Broken {
        /// Who broke it.
        by: String,
        /// Why, in the operator's words.
        reason: String,
        /// The fence the operator named.
        fence: Fence,
    },
    /// The session behind the lease is gone.
    SessionDied,
    /// The holder released it, or the waiter left the queue.
    Released,
    /// The store no longer knows the lease: it lost its state or was cleared.
    StateLost,
    /// The time allowed by `max_hold` is used up.
    MaxHold,
    /// The number of permits was lowered below what the waiter asks for.
    LimitLowered,
    /// The process was forked; the lock stayed with the parent.
    Forked,
    /// The client was shut down.
    ShutDown,
    /// Somebody else has adopted the ticket.
    Adopted,
}

impl Loss {
    /// A short name, used as a label in metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Unreachable => "unreachable",
            Self::RateLimited => "rate_limited",
            Self::Stolen { .. } => "taken_over",
            Self::Broken { .. } => "broken",
            Self::SessionDied => "session_died",
            Self::Released => "released",
            Self::StateLost => "state_lost",
            Self::MaxHold => "max_hold",
            Self::LimitLowered => "limit_lowered",
            Self::Forked => "forked",
            Self::ShutDown => "shut_down",
            Self::Adopted => "adopted",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("its lease expired"),
            Self::Unreachable => {
                f.write_str("its lease expired while the store could not be reached")
            }
            Self::RateLimited => {
                f.write_str("the store's rate limit allows no renewal before its lease ends")
            }
            Self::Stolen { by, forced: false } => write!(f, "{by} took it over as stale"),
            Self::Stolen { by, forced: true } => write!(f, "{by} took it by force"),
            Self::Broken { by, reason, .. } => write!(f, "{by} broke it: {reason}"),
            Self::SessionDied => f.write_str("its session ended"),
            Self::Released => f.write_str("it was released"),
            Self::StateLost => f.write_str("the store no longer knows it"),
            Self::MaxHold => f.write_str("it was held for as long as max_hold allows"),
            Self::LimitLowered => f.write_str("the number of permits was lowered below its count"),
            Self::Forked => f.write_str("this is a forked process; the parent has the lock"),
            Self::ShutDown => f.write_str("the client was shut down"),
            Self::Adopted => f.write_str(
                "its ticket is good for one and somebody has adopted it already: acquire the lock, \
                 or have the one who holds it make another ticket",
            ),
        }
    }
}
