//! The Redis store of sprag: locks between all who reach one Redis server.
//!
//! ```text
//!   caller ──> link: one connection for commands, one for wake-ups
//!                 │  one script call per operation; the server's clock, in the script
//!                 v
//!   Redis: the plain key, the record, the queue ── PUBLISH ──> the process that was granted
//! ```
//!
//! The plain key `prefix + name` holds the lease of the exclusive holder with its TTL, so that
//! every program that locks with `SET NX PX` and compare-and-delete is excluded and excludes. The
//! script `scripts/lock.lua` is a port of [`record::apply`](sprag_core::record::apply), and tested
//! against it with random commands.
//!
//! [`RedlockStore`] asks several independent servers, of which a majority decides.

mod cluster;
mod config;
mod diagnose;
mod error;
mod hello;
mod keys;
mod link;
mod longest;
mod names;
mod passing;
mod quarantine;
mod redlock;
mod resp;
mod script;
mod slot;
mod store;
mod timers;
mod trail;
mod way;
mod wire;

#[cfg(test)]
mod differential;

pub use config::{Address, Quarantine, RedisConfig, Tls};
pub use redlock::{RedlockConfig, RedlockStore};
pub use store::RedisStore;
