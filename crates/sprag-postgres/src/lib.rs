//! The PostgreSQL store of sprag: locks between all who reach one database.
//!
//! ```text
//!   caller ──> link: a thread with one connection, for statements and wake-ups
//!                 │  one statement per operation; the server's clock, in the statement
//!                 v
//!   schema sprag: lock, waiter, trail ── NOTIFY ──> the process that was granted
//! ```
//!
//! [`PostgresStore`] keeps leases in rows. The functions in `lease/sql` are a port of
//! [`record::apply`](sprag_core::record::apply), and tested against it with random commands. Nothing
//! depends on the session of a connection, so it works through a connection pool.
//!
//! [`AdvisoryStore`] has session locks besides: the same record says whose turn it is, and the
//! session lock on the [key](advisory_key) of the name is what is held. So programs that know nothing
//! of sprag are excluded too, and a process that dies frees its locks at once.

mod advisory;
mod config;
mod diagnose;
mod error;
mod lease;
mod link;
mod schema;

pub use advisory::{AdvisoryStore, key as advisory_key, lock_for_transaction};
pub use config::{Address, LockKind, PostgresConfig, TlsMode};
pub use lease::PostgresStore;
pub use schema::SQL;
