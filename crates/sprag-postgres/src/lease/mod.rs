//! Leases in rows: [`PostgresStore`].

#[cfg(test)]
mod differential;
pub(crate) mod plain;
mod statements;
mod store;
mod trail;

pub(crate) use statements::{LEAVE, TAKE};
pub use store::PostgresStore;
pub(crate) use store::{answers, no_row, written};
