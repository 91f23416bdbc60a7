//! Work items on real repositories.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod flow;
mod metrics;
mod races;
mod recover;
mod support;
