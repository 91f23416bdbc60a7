//! The default store of sprag: locks between the processes of one machine, in one SQLite file, for one
//! user or for a group of users.
//!
//! No server. A crashed holder is seen within milliseconds, waiters sleep until they are woken,
//! and fences grow for ever. The file must be on a local file system.
//!
//! ```text
//!   caller ── gate free ──> inline connection ──┐
//!      └───── gate taken ─> worker thread ──────┤ under the gate: read, apply, write, commit
//!                                               v
//!   other processes <── datagram to the waiter ─┘      (session files: who is alive)
//! ```
//!
//! | file | what it is for |
//! |---|---|
//! | `sprag.db` (`-wal`, `-shm`) | the records; a transaction decides every change |
//! | `sprag.db.gate` | a file lock in front of every write: order and patience, not safety |
//! | `sprag.db.sessions/<id>` | locked by a live process; free to lock means dead |
//! | `sprag.db.sessions/<id>.sock` | where that process is woken |

mod accounts;
mod baton;
mod cache;
mod config;
mod database;
mod desk;
mod diagnose;
mod error;
mod filesystem;
mod gate;
mod leases;
mod maintenance;
mod message;
mod open;
mod place;
mod queue;
mod rows;
mod session;
mod sharing;
mod store;
mod system;
mod trail;
mod wake;
mod watch;
mod worker;

pub use config::{SqliteConfig, default_path};
pub use store::SqliteStore;
pub use system::{SystemStore, make_system_store, system_path};
