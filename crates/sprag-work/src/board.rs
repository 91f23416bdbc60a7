//! [`Board`]: all items by state, with who works on them.

use std::time::Duration;

use sprag_core::Fence;

use crate::item::Item;
use crate::source::Skipped;

/// All items, and who works on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board {
    /// The items, by state in the order of the flow, each state in the order of work.
    pub rows: Vec<Row>,
    /// Folders that look like items and are none.
    pub odd: Vec<Skipped>,
}

/// One item on the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The item.
    pub item: Item,
    /// Who has it.
    pub owner: Option<Owner>,
}

/// Who has an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The worker; `None` if the branch was pushed, or the issue assigned, by hand.
    pub worker: Option<String>,
    /// The branch that shows it.
    pub branch: Option<String>,
    /// The account that the issue is assigned to.
    pub assignee: Option<String>,
    /// The fence of the claim.
    pub fence: Fence,
    /// When the item was claimed, in milliseconds since 1970 on the worker's clock.
    pub since_unix_ms: Option<u64>,
    /// How long the claim lasts without a sign of life.
    pub ttl: Duration,
    /// How long no sign of life was seen, as far as somebody on this machine has looked.
    pub silent: Option<Duration>,
    /// Whether the claim stands by itself, without a process.
    pub detached: bool,
    /// Whether it was silent for so long that it may be freed.
    pub stale: bool,
}
