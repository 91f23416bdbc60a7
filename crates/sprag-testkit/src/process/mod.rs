//! Locks between real processes: one that takes locks and can be killed, and how it is driven.
//!
//! ```text
//!   case ── Taker ── a line of JSON ──> sprag-taker ── Client ── the store under test
//!             └─ SIGKILL, SIGSTOP ─────────^   └─ GuardedFile: what the lock protects
//! ```
//!
//! The program `sprag-taker` obeys [`Command`]s, one line each, and answers each with a [`Reply`]
//! of the same number, possibly later and in another order. So a process may wait for a lock and
//! do something else meanwhile. It ends when its input ends.

pub mod cases;
mod churn;
mod config;
mod fork;
mod guarded_file;
mod link;
mod main;
mod protocol;
mod recording;
mod serve;
mod taker;

pub use churn::{Churn, Tally, churn};
pub use config::TakerConfig;
pub use guarded_file::{GuardedFile, Write};
pub use link::{Options, answer, open, told_to_stop};
pub use main::taker_main;
pub use protocol::{Answer, Ask, Command, Granted, Order, Reply, Trouble, TroubleKind};
pub use recording::Recording;
pub use serve::serve;
pub use taker::{Started, Taker};
