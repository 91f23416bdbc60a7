//! [`Claim`]: a comment that says "I want this", as it is read from an issue.

use std::time::Duration;

use sha2::{Digest, Sha256};
use sprag_core::{Fence, Holder, HolderView, LeaseId};

use crate::client::Comment;
use crate::mirror::{LockMetadata, LockNote};
use crate::time;

/// GitHub's times are whole seconds.
const COARSE: u64 = 2;
/// A comment that is longer is not one of ours.
const LONGEST: usize = 8 << 10;

/// A claim that was not given back.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) comment: u64,
    pub(super) note: LockNote,
    tag: String,
    ttl: Duration,
    /// How old its last sign of life is, by GitHub's clock alone.
    age: Duration,
}

impl Claim {
    /// The claims among comments that were read at `date`, the oldest first. What strangers write
    /// is not believed.
    pub(super) fn all(comments: &[Comment], date: u64) -> Vec<Self> {
        comments.iter().filter_map(|comment| Self::read(comment, date)).collect()
    }

    pub(super) fn read(comment: &Comment, date: u64) -> Option<Self> {
        if !comment.by_member || comment.body.len() > LONGEST {
            return None;
        }
        let json = comment.body.split_once("```json")?.1.split_once("```")?.0;
        let note = serde_json::from_str::<LockMetadata>(json).ok()?.lock;
        if note.released_at.is_some() {
            return None;
        }
        let (tag, ttl) = (note.claim.clone()?, Duration::from_millis(note.ttl_ms?));
        let age = Duration::from_secs(date.saturating_sub(time::parse(&comment.updated_at)?));
        Some(Self { comment: comment.id, note, tag, ttl, age })
    }

    pub(super) fn is_of(&self, lease: LeaseId) -> bool {
        self.tag == tag(lease)
    }

    /// Whether it gave no sign of life for its TTL and a bit, and `at_least` for so long.
    pub(super) fn is_stale(&self, at_least: Duration) -> bool {
        let ttl = self.ttl.max(at_least);
        self.age > ttl.mul_f64(1.05) + Duration::from_secs(COARSE)
    }

    pub(super) fn view(&self) -> HolderView {
        let LockNote { worker_id, node_id, task_info, .. } = self.note.clone();
        let since = time::parse(&self.note.claimed_at).map(|seconds| seconds * 1000);
        let holder = Holder { task_info, since_unix_ms: since, ..Holder::new(worker_id, node_id) };
        let mut view = HolderView::stranger(holder);
        view.fence = Fence::new(self.comment).unwrap_or(Fence::ZERO);
        view.ttl = self.ttl;
        view.remaining = Some(self.ttl.saturating_sub(self.age));
        view
    }
}

/// Names a lease on an issue. Who reads it cannot release with it.
pub(super) fn tag(lease: LeaseId) -> String {
    let hash =
        Sha256::new().chain_update("sprag:claim:v1\0").chain_update(lease.as_u128().to_be_bytes());
    hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comment(lease: LeaseId, at: &str) -> Comment {
        let mut note = LockNote::new(&Holder::new("w", "n"), Fence::ZERO, 0, true);
        note.claim = Some(tag(lease));
        note.ttl_ms = Some(60_000);
        Comment {
            id: 7,
            author: "octocat".into(),
            body: note.to_comment(),
            updated_at: at.into(),
            by_member: true,
        }
    }

    #[test]
    fn a_claim_is_read_and_ages_by_githubs_clock() {
        let lease = LeaseId::from_u128(5);
        let comment = comment(lease, "1970-01-01T00:10:00Z");
        let stale = |date| Claim::read(&comment, date).unwrap().is_stale(Duration::ZERO);
        assert!(!stale(600) && !stale(662) && stale(670));
        let claim = Claim::read(&comment, 630).unwrap();
        assert!(claim.is_of(lease) && !claim.is_of(LeaseId::from_u128(6)));
        assert_eq!(claim.view().remaining, Some(Duration::from_secs(30)));
        assert!(!comment.body.contains(&lease.to_string()));
    }

    #[test]
    fn what_a_stranger_writes_is_nothing() {
        let good = comment(LeaseId::from_u128(5), "1970-01-01T00:10:00Z");
        let stranger = Comment { by_member: false, ..good.clone() };
        let long = Comment { body: format!("{}{}", good.body, "x".repeat(10_000)), ..good.clone() };
        let empty = Comment { body: "```json\n{}\n```".into(), ..good.clone() };
        let timeless = Comment { updated_at: "yesterday".into(), ..good };
        for comment in [stranger, long, empty, timeless] {
            assert!(Claim::read(&comment, 600).is_none(), "{comment:?}");
        }
    }
}
