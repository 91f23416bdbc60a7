//! `-w`: show something again whenever it changes.

use std::time::Duration;

use sprag::{Fence, LeaseId, LockView};

use super::Outcome;
use crate::context::Context;
use crate::failure::Failure;

const PAUSE: Duration = Duration::from_secs(1);

/// What of a lock is worth a new line: not the seconds that pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    name: String,
    fence: Fence,
    holders: Vec<LeaseId>,
    waiters: Vec<LeaseId>,
}

/// The shape of a lock.
pub(super) fn shape(lock: &LockView) -> Shape {
    Shape {
        name: lock.name.to_string(),
        fence: lock.fence,
        holders: lock.holders.iter().map(|holder| holder.lease).collect(),
        waiters: lock.waiters.iter().map(|waiter| waiter.lease).collect(),
    }
}

/// Reads and prints until it is interrupted: every second on a terminal, elsewhere on a change.
pub(super) async fn repeat<T>(
    context: &Context,
    read: impl AsyncFn() -> Result<T, Failure>,
    shape: impl Fn(&T) -> Vec<Shape>,
    print: impl Fn(&T),
) -> Outcome {
    let live = context.output.is_terminal() && !context.output.json;
    let mut shown = None;
    loop {
        let seen = read().await?;
        let now = shape(&seen);
        if live {
            // Home, then clear what is left below: without flicker.
            context.output.clear();
        }
        if live || shown.as_ref() != Some(&now) {
            print(&seen);
            shown = Some(now);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
