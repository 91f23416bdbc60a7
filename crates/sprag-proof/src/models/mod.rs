//! The models, and what they share.

pub mod baton;
pub mod explore;
pub mod judge;
pub mod ledger;
pub mod normal;
pub mod observed;
pub mod queue;
pub mod redlock;
pub mod sessions;
