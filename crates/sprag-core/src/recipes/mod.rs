//! Thin views over [`Client::lock`](crate::Client::lock), for what people call by name.

mod election;
mod many;
mod rw_lock;
mod semaphore;

pub use election::{Election, Leadership};
pub use many::LockGuards;
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;
