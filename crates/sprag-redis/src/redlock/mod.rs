//! [`RedlockStore`]: locks that a majority of independent Redis servers agrees on.
//!
//! ```text
//!   try_acquire ──> all nodes at once ──> a majority said yes, with fences f1, f2, ...
//!                                              │  F = the largest of them
//!                                              v
//!                 a majority *that holds the key for this attempt* has F stored ──> granted
//! ```
//!
//! Usually that is one round trip: the asker proposes a fence that is larger than what the nodes
//! would choose, so that all of them store the same. Nodes that chose another one are told F. Two
//! majorities share a node, and what is stored there with the key is below the next fence: so
//! fences grow. The model `redlock` of `sprag-proof` shows that nothing less will do.
//!
//! Nobody waits for a node that is slow once a majority has decided. What is given up is freed
//! everywhere, behind the request that it frees, on the same connection. A request that arrives
//! after its time, or after a later attempt for the same lease, changes nothing.
//!
//! A lease counts from the moment its requests were sent; each node counts from when it set the key,
//! which is later, and Redis never ends a key early. What is left is that clocks run apart: for that
//! the client stops to believe a margin earlier, one percent of the TTL and at least 5 ms.

mod answer;
mod ballot;
mod config;
mod diagnose;
mod membership;
mod names;
mod nodes;
mod store;

pub use config::RedlockConfig;
pub use store::RedlockStore;

/// The name of this store in errors and metrics.
const STORE: &str = "redlock";
