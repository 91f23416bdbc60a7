//! Leases in rows: [`PostgresStore`].

#[cfg(test)]
pub(crate) mod differential;
pub(crate) mod parts;
pub(crate) mod passing;
pub(crate) mod plain;
#[cfg(test)]
mod renewals;
mod statements;
mod store;
mod trail;
mod zeros;

pub(crate) use statements::RENEW_EACH;
pub use store::PostgresStore;
pub(crate) use store::written;
