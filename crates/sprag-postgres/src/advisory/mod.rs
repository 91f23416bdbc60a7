//! Session locks of one connection: [`AdvisoryStore`].

mod holdings;
mod key;
mod pulse;
mod store;
mod transaction;

pub(crate) use holdings::Holdings;
pub use key::key;
pub(crate) use pulse::{Life, Vital};
pub use store::AdvisoryStore;
pub(crate) use store::PREPARED;
pub use transaction::lock_for_transaction;
