//! Locks that were meant.

use super::ls;
use crate::context::Context;
use crate::nearest::nearest;
use crate::store::Opened;

/// Says which lock may have been meant by a name that was never used.
pub(super) async fn lock(name: &str, opened: &Opened, context: &Context) {
    let Ok(locks) = ls::read(opened, None).await else { return };
    if let Some(meant) = nearest(name, locks.iter().map(|lock| lock.name.as_str())) {
        context.output.note(&format!("did you mean {meant:?}?"));
    }
}
