//! Session locks of one connection: [`AdvisoryStore`].

#[cfg(test)]
mod again_races;
mod ask;
mod bare;
#[cfg(test)]
mod bare_races;
#[cfg(test)]
mod differential;
mod holdings;
mod key;
#[cfg(test)]
mod own_sessions;
mod pulse;
mod store;
#[cfg(test)]
mod sweep;
mod transaction;
mod watched;

pub(crate) use ask::PREPARED;
pub(crate) use bare::TELL;
pub(crate) use holdings::Holdings;
pub use key::key;
pub(crate) use pulse::{Life, Vital};
pub use store::AdvisoryStore;
pub use transaction::lock_for_transaction;
