//! `sprag work`, with real repositories and processes that are killed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod commands;
mod crashes;
mod death;
mod full_disk;
mod in_the_way;
mod kept;
#[path = "../shared/mod.rs"]
mod shared;
mod support;
mod trouble;
