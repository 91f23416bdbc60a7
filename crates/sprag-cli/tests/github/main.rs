//! `sprag` and a GitHub on this machine: issues as work items, limits, warnings.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod docs;
mod fleet;
mod given_back;
#[path = "../shared/mod.rs"]
mod shared;
mod support;
mod warnings;
mod work;
