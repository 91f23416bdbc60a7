//! The heart of sprag: its words, the contract of a store, the lock machine and the client.
//!
//! A request flows from the client through pure policy to a store, and comes back as a guard:
//!
//! ```text
//! Locks (client) -> policy -> Store -> LockGuard
//! ```
//!
//! This crate knows no store but [`MemoryStore`], reads no environment and prints nothing. Most users
//! want the `sprag` crate, which adds stores and `open(url)`.

pub mod audit;
mod capability;
mod client;
pub mod clock;
pub mod diagnosis;
pub mod entropy;
mod error;
pub mod evictions;
mod fence;
mod holder;
pub mod home;
mod id;
mod lineage;
mod loss;
pub mod mailbox;
mod memory;
mod mode;
pub mod mutant;
mod name;
pub mod pace;
pub mod policy;
mod recipes;
pub mod record;
mod relay;
pub mod store;
pub mod thread;
mod view;
pub mod wakeups;

pub use audit::{AuditEntry, AuditKind, AuditQuery};
pub use capability::{Capability, Level};
pub use client::{
    Client, ClientBuilder, Keeper, LockGuard, LockRequest, LockState, Released, Ticket, Wait,
    margin,
};
pub use error::{Error, ErrorKind, Operation, Result};
pub use fence::Fence;
pub use holder::{Holder, TaskInfo};
pub use id::{LeaseId, PartyId, SessionId};
pub use loss::Loss;
pub use memory::MemoryStore;
pub use mode::Mode;
pub use name::{IntoLockName, LockName};
pub use policy::{RetryConfig, Strategy};
pub use recipes::{Election, Leadership, LockGuards, RwLock, Semaphore};
pub use store::Store;
pub use thread::block_on;
pub use view::{HolderView, LockView, WaiterView};
