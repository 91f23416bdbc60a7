#![doc = include_str!("../../../README.md")]

mod distributed_lock;
mod leader_election;
mod locks;
mod open;

pub use distributed_lock::DistributedLock;
pub use leader_election::LeaderElection;
pub use locks::{Locks, LocksBuilder};
pub use open::open;

#[doc(inline)]
pub use sprag_core::{
    Capability, Client, ClientBuilder, Election, Error, ErrorKind, Fence, Holder, HolderView,
    IntoLockName, Keeper, Leadership, LeaseId, Level, LockGuard, LockGuards, LockName, LockRequest,
    LockState, LockView, Loss, MemoryStore, Mode, Operation, PartyId, Released, Result,
    RetryConfig, RwLock, Semaphore, SessionId, Store, Strategy, TaskInfo, Ticket, Wait, WaiterView,
    clock, entropy, policy, record, store,
};

#[cfg(feature = "sqlite")]
#[doc(inline)]
pub use sprag_sqlite::{SqliteConfig, SqliteStore};
