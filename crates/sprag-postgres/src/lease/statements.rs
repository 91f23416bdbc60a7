//! The statements of this store, and what they answer.
//!
//! They call functions of ours and nothing else, by their full names and with the types that they take:
//! behind a pool the session is not ours, and an operator or a function that another user of the database
//! has defined could fit better than PostgreSQL's own.

use serde::Deserialize;
use sprag_core::record::{Heir, Hold, Record, Wait, wire};
use sprag_core::{Fence, Holder, HolderView, LockName, LockView};

use crate::error::Misfit;

/// One command on one lock.
pub(super) const APPLY: &str = "SELECT sprag.apply_v1($1, $2, $3::text::jsonb, $4)::text";
/// An exclusive lock, the short way if there is one; of advisory locks, with its key.
pub(super) const TAKE: &str = "SELECT sprag.take_v1($1, $2, $3, $4, $5, $6, $7, $8)";
/// A release, the short way if there is one.
pub(super) const LEAVE: &str = "SELECT sprag.leave_v1($1, $2, $3, $4, $5)";
/// Many renewals, as many as fit into the time given.
pub(super) const RENEW: &str =
    "SELECT pg_catalog.unnest(sprag.renew_v1($1, $2, $3::text::jsonb, $4, $5))::text";
/// The same, each for itself.
pub(crate) const RENEW_EACH: &str =
    "SELECT answer::text, session FROM sprag.renew_each_v1($1, $2, $3::text::jsonb, $4, $5, $6)";
/// What is worth preparing.
pub(super) const PREPARED: &[&str] = &[APPLY, TAKE, LEAVE, RENEW];

/// One lock; no row if it was never used.
pub(super) const LOOK: &str = "SELECT its_name, record FROM sprag.look_v1($1, $2)";
/// The locks that somebody holds or waits for, in the order of their names: of a namespace, after a
/// name, with a prefix, so many.
pub(super) const LIST: &str = "SELECT its_name, record FROM sprag.list_v1($1, $2, $3, $4)";

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

/// Empties a record that cannot be read.
pub(super) const REPAIR: &str = "SELECT sprag.repair_v1($1, $2, $3::text::jsonb)::text";

/// The fence of a record, if it cannot be read.
pub(super) fn fence_of_damaged(text: &str) -> Option<Fence> {
    let Seen { fence } = serde_json::from_str(text).ok()?;
    serde_json::from_str::<Looked>(text).is_err().then_some(fence)
}

/// What is known of every record, be it damaged.
#[derive(Debug, Deserialize)]
struct Seen {
    fence: Fence,
}

/// The lock as people see it. A record that cannot be read is held by somebody unknown, until somebody
/// breaks it.
pub(super) fn view(name: &LockName, text: &str, max_waiters: usize) -> Result<LockView, Misfit> {
    let Seen { fence } = serde_json::from_str(text)?;
    Ok(match serde_json::from_str::<Looked>(text) {
        Ok(looked) => {
            let context = wire::clock_only(looked.now_us, max_waiters);
            looked.into_record().view(name, &context)
        }
        Err(error) => {
            tracing::warn!(target: "sprag::postgres", %name, %error, "a record cannot be read");
            let unknown = Holder::new("unknown", "its record cannot be read");
            let (mut view, mut holder) =
                (LockView::free(name.clone()), HolderView::stranger(unknown));
            (view.fence, holder.fence) = (fence, fence);
            view.holders.push(holder);
            view
        }
    })
}

impl Looked {
    fn into_record(self) -> Record {
        let Self { fence, limit, holders, waiters, heir, .. } = self;
        Record { fence, limit, holders, waiters, heir, ..Record::default() }
    }
}
