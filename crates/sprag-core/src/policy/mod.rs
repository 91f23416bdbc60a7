//! Pure decisions: how long to back off, whom to push aside, who is stale, which lock first, and
//! who waits for whom.
//!
//! Nothing in here reads a clock, draws a random number or talks to a store: the caller brings
//! the time, the randomness and what the store said, and every decision can be tested by itself.

pub mod deadlock;
pub mod order;
pub mod retry;
pub mod stale;
pub mod strategy;

pub use retry::{Backoff, RetryConfig};
pub use strategy::Strategy;
