//! [`AuditEntry`]: who got, lost, gave back or broke which lock, and when. For people.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fence::Fence;
use crate::holder::Holder;
use crate::id::LeaseId;
use crate::loss::Loss;
use crate::mode::Mode;
use crate::name::LockName;
use crate::record::form::json_of;
use crate::record::{Applied, Corrupt, Event, EventKind};

/// How many entries a store keeps at most; the oldest go first.
pub const TRAIL_LENGTH: usize = 10_000;
/// How many entries a query without a limit gets.
const PAGE: usize = 1000;
/// How many bytes of text an entry has beyond its holder.
const MAX_DETAIL: usize = 512;

/// What the trail says of a lease that was taken away once nothing runs under it any more.
pub const STOPPED: &str = "what ran under it has stopped";

/// One line of the audit trail. It tells what happened and never decides anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditEntry {
    /// Its place in the trail of its store, given by the store: grows, perhaps with gaps.
    pub sequence: u64,
    /// When, in milliseconds since 1970 on the clock of who wrote it.
    pub at_unix_ms: u64,
    /// The lock.
    pub name: LockName,
    /// What happened.
    pub kind: AuditKind,
    /// The fence of the lease; zero if it never got one.
    pub fence: Fence,
    /// The lease it happened to.
    pub lease: LeaseId,
    /// Whose lease it is or was.
    pub holder: Holder,
    /// How long it waited, why it was lost, who broke it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What happened to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuditKind {
    /// It got the lock, or its upgrade.
    Acquired,
    /// It gave the lock back.
    Released,
    /// It lost the lock. Told by the holder as soon as it notices and by the store when it
    /// clears up, so perhaps twice.
    Lost,
    /// An operator broke it.
    Broken,
    /// Another holder pushed it aside.
    TakenOver,
    /// It was renewed in time, but after more than two thirds of its TTL.
    RenewedLate,
    /// It did not get the lock within the time it wanted to wait.
    Refused,
    /// Something that can no longer be read: the entry is damaged.
    Unreadable,
}

impl AuditKind {
    /// The kind as people read it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Released => "released",
            Self::Lost => "lost",
            Self::Broken => "broken",
            Self::TakenOver => "taken over",
            Self::RenewedLate => "renewed late",
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
        }
    }
}

impl fmt::Display for AuditKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl AuditEntry {
    /// An entry that is in no trail yet.
    pub const fn new(
        at_unix_ms: u64,
        name: LockName,
        kind: AuditKind,
        fence: Fence,
        lease: LeaseId,
        holder: Holder,
    ) -> Self {
        Self { sequence: 0, at_unix_ms, name, kind, fence, lease, holder, detail: None }
    }

    /// Writes the entry as JSON.
    pub fn to_json(&self) -> String {
        json_of(self).expect("an entry is always writable as JSON")
    }

    /// Reads an entry back.
    ///
    /// # Errors
    ///
    /// [`Corrupt`] if the text is damaged.
    pub fn from_json(text: &str) -> Result<Self, Corrupt> {
        serde_json::from_str(text).map_err(|e| Corrupt::new(format!("an entry is damaged: {e}")))
    }

    /// Says more; what is too long is cut.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        let fits = |end: &usize| detail.is_char_boundary(*end);
        detail.truncate((0..=MAX_DETAIL.min(detail.len())).rev().find(fits).unwrap_or(0));
        self.detail = Some(detail);
        self
    }
}

/// What is asked of [`Store::audit`](crate::Store::audit). Answered oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Only entries of this lock.
    pub name: Option<LockName>,
    /// Only entries with a larger sequence, beginning with the oldest. 0 asks for the newest.
    pub after: u64,
    /// At most so many; 0 means 1,000.
    pub limit: usize,
}

impl AuditQuery {
    /// The limit that counts.
    pub fn page(&self) -> usize {
        if self.limit == 0 { PAGE } else { self.limit.min(TRAIL_LENGTH) }
    }
}

/// What a store adds to its trail when it writes `applied`; in the same step if it can.
///
/// Waiters that come and go are left out: they are in the trail if they get the lock, or when
/// their client says that it gave up.
pub fn audit_entries(name: &LockName, applied: &Applied, now_unix_ms: u64) -> Vec<AuditEntry> {
    let held = applied.events.iter().filter(|event| event.fence > Fence::ZERO);
    held.map(|event| audit_entry(name, event, now_unix_ms)).collect()
}

/// The entry for one event, be it one that a store has written down and read again.
pub fn audit_entry(name: &LockName, event: &Event, now_unix_ms: u64) -> AuditEntry {
    let after = human(Duration::from_millis(event.after_ms));
    let (kind, detail) = match &event.kind {
        EventKind::Granted if event.mode == Mode::Exclusive => {
            (AuditKind::Acquired, Some(format!("waited {after}")))
        }
        EventKind::Granted => {
            (AuditKind::Acquired, Some(format!("{}, waited {after}", event.mode)))
        }
        EventKind::Gone(Loss::Released) => (AuditKind::Released, None),
        EventKind::Gone(Loss::Expired) => {
            (AuditKind::Lost, Some(format!("no renewal for {after}")))
        }
        EventKind::Gone(loss @ Loss::Stolen { .. }) => {
            (AuditKind::TakenOver, Some(format!("{loss}, after no renewal for {after}")))
        }
        EventKind::Gone(loss @ Loss::Broken { .. }) => (AuditKind::Broken, Some(loss.to_string())),
        EventKind::Gone(loss) => (AuditKind::Lost, Some(loss.to_string())),
    };
    let holder = event.holder.clone();
    let entry = AuditEntry::new(now_unix_ms, name.clone(), kind, event.fence, event.lease, holder);
    match detail {
        Some(detail) => entry.detail(detail),
        None => entry,
    }
}

/// A duration as people say it: `0.3s`, `41s`, `6m02s`, `1h05m`.
pub(crate) fn human(duration: Duration) -> String {
    let (seconds, tenths) = (duration.as_secs(), duration.subsec_millis() / 100);
    match seconds {
        0..10 if tenths > 0 => format!("{seconds}.{tenths}s"),
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// The trail of a store that keeps it in memory.
#[derive(Debug, Default)]
pub struct Trail {
    entries: VecDeque<AuditEntry>,
    last: u64,
}

impl Trail {
    /// Adds entries at the end and gives them their sequence; forgets the oldest beyond
    /// [`TRAIL_LENGTH`].
    pub fn append(&mut self, entries: impl IntoIterator<Item = AuditEntry>) {
        for mut entry in entries {
            self.last += 1;
            entry.sequence = self.last;
            if self.entries.len() == TRAIL_LENGTH {
                self.entries.pop_front();
            }
            self.entries.push_back(entry);
        }
    }

    /// What the query asks for, oldest first.
    pub fn read(&self, query: &AuditQuery) -> Vec<AuditEntry> {
        let wanted = |entry: &&AuditEntry| {
            entry.sequence > query.after && query.name.as_ref().is_none_or(|n| *n == entry.name)
        };
        let matching = self.entries.iter().filter(wanted);
        if query.after > 0 {
            return matching.take(query.page()).cloned().collect();
        }
        let mut newest: Vec<_> = matching.rev().take(query.page()).cloned().collect();
        newest.reverse();
        newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(number: u64) -> AuditEntry {
        let name = LockName::new(if number.is_multiple_of(2) { "even" } else { "odd" }).unwrap();
        let lease = LeaseId::from_u128(u128::from(number));
        AuditEntry::new(number, name, AuditKind::Lost, Fence::ZERO, lease, Holder::default())
    }

    fn sequences(trail: &Trail, name: Option<&str>, after: u64, limit: usize) -> Vec<u64> {
        let name = name.map(|name| LockName::new(name).unwrap());
        let found = trail.read(&AuditQuery { name, after, limit });
        found.iter().map(|entry| entry.sequence).collect()
    }

    #[test]
    fn the_newest_come_first_to_be_read_and_the_next_after_what_was_seen() {
        let mut trail = Trail::default();
        trail.append((1..=6).map(note));
        assert_eq!(sequences(&trail, None, 0, 2), [5, 6]);
        assert_eq!(sequences(&trail, None, 2, 2), [3, 4]);
        assert_eq!(sequences(&trail, Some("odd"), 0, 2), [3, 5]);
        assert_eq!(sequences(&trail, Some("odd"), 1, 9), [3, 5]);
    }

    #[test]
    fn the_trail_is_bounded_and_its_sequence_is_not() {
        let mut trail = Trail::default();
        trail.append((1..=TRAIL_LENGTH as u64 + 5).map(note));
        assert_eq!(trail.entries.len(), TRAIL_LENGTH);
        assert_eq!(sequences(&trail, None, 1, 1), [6]);
    }

    #[test]
    fn durations_are_short() {
        let said = [0, 340, 9_999, 41_500, 362_000, 3_900_000];
        let said = said.map(|millis| human(Duration::from_millis(millis)));
        assert_eq!(said, ["0s", "0.3s", "9.9s", "41s", "6m02s", "1h05m"]);
    }

    #[test]
    fn a_long_detail_is_cut_between_letters() {
        let entry = note(1).detail("ä".repeat(MAX_DETAIL));
        assert_eq!(entry.detail.unwrap().len(), MAX_DETAIL);
        assert_eq!(
            note(1).detail(format!("x{}", "ä".repeat(MAX_DETAIL))).detail.unwrap().len(),
            511
        );
    }
}
