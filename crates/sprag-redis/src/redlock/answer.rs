//! [`Answer`]: what a node says.

use serde::{Deserialize, Serialize};
use sprag_core::record::Hold;
use sprag_core::{Fence, Holder, LeaseId, Loss, Mode, PartyId, SessionId};

use crate::resp::{FromValue, Value};

/// What a node says, and when by its clock; 0 if it does not say when.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) now_us: u64,
    pub(super) said: Said,
}

/// What a node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It is done; with the fence stored there.
    Yes(Fence),
    /// The lease does not have the key there.
    No,
    /// Somebody else has the key there.
    Held(Box<Hold>),
    /// The lease is over.
    Gone(Loss),
    /// The request came too late, or after a later one.
    Late,
    /// The node has forgotten what it knew.
    Fresh,
    /// The same, when a node is asked about itself.
    Blank(Blank),
    /// It has, and waits for so many milliseconds before it votes again.
    Rests(u64),
    /// Nobody has the key there; with the fence stored there.
    Free(Fence),
    /// It votes, from so many milliseconds on; and the longest lease it has seen.
    Marked { longest_ms: u64, rests_ms: u64 },
}

/// What a node says about itself that has forgotten what it knew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Blank {
    /// Another one each time that it forgets.
    pub(super) life: String,
    /// For how long it is known to have forgotten.
    pub(super) age_ms: u64,
    /// The longest lease that it still knows of.
    pub(super) longest_ms: u64,
}

/// What is kept about a holder, for people.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct About {
    pub(super) party: PartyId,
    pub(super) holder: Holder,
    pub(super) fixed: bool,
}

impl FromValue for Answer {
    fn from_value(value: Value) -> Option<Self> {
        let list = match value {
            Value::List(list) => list,
            Value::Text(text) => return short_yes(std::str::from_utf8(&text).ok()?),
            _ => return None,
        };
        let mut parts = list.into_iter();
        let word = String::from_value(parts.next()?)?;
        let now_us = u64::from_value(parts.next()?)?;
        let said = match word.as_str() {
            "yes" => Said::Yes(Fence::new(u64::from_value(parts.next()?)?)?),
            "no" => Said::No,
            "held" => Said::Held(Box::new(hold(parts.next()?, now_us / 1000)?)),
            "gone" => {
                let reason = String::from_value(parts.next()?)?;
                Said::Gone(serde_json::from_str(&reason).ok()?)
            }
            "late" => Said::Late,
            "fresh" => Said::Fresh,
            "blank" => Said::Blank(Blank {
                life: String::from_value(parts.next()?)?,
                age_ms: u64::from_value(parts.next()?)?,
                longest_ms: u64::from_value(parts.next()?)?,
            }),
            "rests" => Said::Rests(u64::from_value(parts.next()?)?),
            "free" => {
                // Where the holder would be.
                drop(parts.next());
                Said::Free(Fence::new(u64::from_value(parts.next()?)?)?)
            }
            "marked" => Said::Marked {
                longest_ms: u64::from_value(parts.next()?)?,
                rests_ms: u64::from_value(parts.next()?)?,
            },
            _ => return None,
        };
        Some(Self { now_us, said })
    }
}

/// How the short ways say yes: the time in seconds and microseconds, zeros if it was not asked for,
/// and the fence.
fn short_yes(text: &str) -> Option<Answer> {
    let mut numbers = text.splitn(3, ' ').map(|number| number.parse::<u64>().ok());
    let now_us = numbers.next()?? * 1_000_000 + numbers.next()??;
    Some(Answer { now_us, said: Said::Yes(Fence::new(numbers.next()??)?) })
}

/// Who has the key, as a holder in a record.
fn hold(value: Value, now_ms: u64) -> Option<Hold> {
    let Value::List(list) = value else { return None };
    let [lease, left, fence, ttl, detached, about] = <[Value; 6]>::try_from(list).ok()?;
    let lease: LeaseId = String::from_value(lease)?.parse().ok()?;
    let (left, ttl_ms) = (u64::from_value(left)?, u64::from_value(ttl)?);
    let about = String::from_value(about)?;
    let about = if about.is_empty() {
        let holder = Holder::new("another program (not sprag)", "unknown");
        About { party: PartyId::from_u128(lease.as_u128()), holder, fixed: true }
    } else {
        serde_json::from_str(&about).ok()?
    };
    // Which session it is does not matter: a node does not know who is alive.
    let session = (u64::from_value(detached)? == 0).then(|| SessionId::from_u128(0));
    Some(Hold {
        lease,
        session,
        party: about.party,
        mode: Mode::Exclusive,
        fence: Fence::new(u64::from_value(fence)?)?,
        ttl_ms,
        renewed_ms: (now_ms + left).saturating_sub(ttl_ms),
        upgrading: false,
        fixed: about.fixed,
        took_over: false,
        holder: about.holder,
    })
}
