//! Locks on anything that can compare and swap a named reference and has no clock: a git remote,
//! GitHub's refs.
//!
//! A [`Ledger`] is the little that such a place has to be able to do, [`LedgerStore`] makes a
//! [`Store`](sprag_core::Store) of it: a lock is a reference to its newest record, each record
//! follows the one before, so that the chain is the audit trail and the fence never goes back.
//! Whoever holds locks gives one sign of life for all of them, on the reference of its session.

mod chain;
mod clerk;
mod companion;
mod decide;
mod job;
mod ledger;
mod library;
mod memory;
mod oid;
mod page;
mod plan;
mod presence;
mod ref_name;
mod settings;
mod shelf;
mod store;
mod tended;
mod text;
mod trail;
mod witness;

pub use companion::Companion;
pub use ledger::{Change, Entry, Ledger, New, Swapped};
pub use memory::{Fault, MemoryLedger};
pub use oid::Oid;
pub use ref_name::RefName;
pub use settings::{Abandoned, Settings};
pub use store::{Concluded, LedgerStore, Silence};
pub use text::in_short;
