//! The statements of this store, and what they answer.

use serde::Deserialize;
use sprag_core::Fence;
use sprag_core::record::{Heir, Hold, Record, Wait};

/// One command on one lock.
pub(super) const APPLY: &str = "SELECT sprag.apply_v1($1, $2, $3::text::jsonb, $4)::text";
/// An exclusive lock, the short way if there is one; of advisory locks, with its key.
pub(super) const TAKE: &str = "SELECT sprag.take_v1($1, $2, $3, $4, $5, $6, $7, $8)";
/// A release, the short way if there is one.
pub(super) const LEAVE: &str = "SELECT sprag.leave_v1($1, $2, $3, $4, $5)";
/// Many renewals, as many as fit into the time given.
pub(super) const RENEW: &str =
    "SELECT unnest(sprag.renew_v1($1, $2, $3::text::jsonb, $4, $5))::text";
/// The same, each for itself.
pub(crate) const RENEW_EACH: &str =
    "SELECT answer::text, session FROM sprag.renew_each_v1($1, $2, $3::text::jsonb, $4, $5, $6)";
/// What is worth preparing.
pub(super) const PREPARED: &[&str] = &[APPLY, TAKE, LEAVE, RENEW];

/// One lock; no row if it was never used.
pub(super) const LOOK: &str = "SELECT name, jsonb_build_object('now_us', sprag.now_us(), \
     'fence', greatest(fence, heir_fence), 'limit', permits, 'holders', (sprag.whole(l)).holders, \
     'heir', CASE WHEN heir_lease IS NOT NULL THEN jsonb_build_object('lease', heir_lease, \
     'fence', heir_fence) END, 'waiters', coalesce((SELECT \
     jsonb_agg(w.request ORDER BY w.arrival, w.ticket) FROM sprag.waiter AS w \
     WHERE w.space = l.space AND w.name = l.name), '[]'))::text \
     FROM sprag.lock AS l WHERE space = $1 AND name = $2";
/// The locks that somebody holds or waits for, in the order of their names: of a namespace, after a
/// name, with a prefix, so many.
pub(super) const LIST: &str = "SELECT name, jsonb_build_object('now_us', sprag.now_us(), \
     'fence', greatest(fence, heir_fence), 'limit', permits, 'holders', (sprag.whole(l)).holders, \
     'heir', CASE WHEN heir_lease IS NOT NULL THEN jsonb_build_object('lease', heir_lease, \
     'fence', heir_fence) END, 'waiters', coalesce((SELECT \
     jsonb_agg(w.request ORDER BY w.arrival, w.ticket) FROM sprag.waiter AS w \
     WHERE w.space = l.space AND w.name = l.name), '[]'))::text \
     FROM sprag.lock AS l WHERE space = $1 AND name > $2 AND name >= $3 \
     AND starts_with(name, $3) AND (plain_lease IS NOT NULL OR holders <> '[]' OR waiting > 0) ORDER BY name LIMIT $4";

/// The answer of [`LOOK`] and [`LIST`].
#[derive(Debug, Deserialize)]
pub(super) struct Looked {
    pub(super) now_us: u64,
    fence: Fence,
    limit: Option<u32>,
    holders: Vec<Hold>,
    waiters: Vec<Wait>,
    heir: Option<Heir>,
}

impl Looked {
    pub(super) fn into_record(self) -> Record {
        let Self { fence, limit, holders, waiters, heir, .. } = self;
        Record { fence, limit, holders, waiters, heir, ..Record::default() }
    }
}
