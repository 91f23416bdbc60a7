//! Leases in rows: [`PostgresStore`].

mod answers;
#[cfg(test)]
mod crowd;
#[cfg(test)]
pub(crate) mod differential;
pub(crate) mod parts;
pub(crate) mod passing;
pub(crate) mod plain;
#[cfg(test)]
mod renewals;
mod start;
mod statements;
mod store;
mod trail;
mod zeros;

pub(crate) use statements::RENEW_EACH;
pub use store::PostgresStore;
pub(crate) use store::written;
