//! [`lock_for_transaction`]: a lock on a connection of the caller's own.

use sprag_core::{Error, ErrorKind, LockName, Operation, Result};
use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::key::key;
use crate::error::STORE;

/// Takes a lock for the length of a transaction, on the connection that the caller has anyway: it
/// ends with the transaction, and cannot outlive what was done under it.
///
/// Waits until it is free, and excludes the locks of that name in an
/// [`AdvisoryStore`](super::AdvisoryStore) with that namespace, and is excluded by them. It has no
/// fence and needs none: what a transaction does is done while it has the lock, or not at all. Works
/// through a connection pool.
///
/// # Errors
///
/// A deadlock, if PostgreSQL finds that this transaction and others wait for each other: then it is
/// aborted. Else what the server says, such as the end of its `lock_timeout`.
///
/// # Cancel safety
///
/// The server may go on waiting, and hold the lock then until the transaction is dropped.
pub async fn lock_for_transaction(
    transaction: &Transaction<'_>,
    namespace: &str,
    name: &LockName,
) -> Result<()> {
    let number = key(namespace, name.as_str());
    let take = "SELECT pg_advisory_xact_lock($1)::text";
    let taken = transaction.query_typed(take, &[(&number, Type::INT8)]).await;
    taken.map(drop).map_err(|error| refused(&error, name).caused_by(error))
}

fn refused(error: &tokio_postgres::Error, name: &LockName) -> Error {
    let (kind, message) = match error.as_db_error() {
        Some(said) if *said.code() == SqlState::T_R_DEADLOCK_DETECTED => (
            ErrorKind::Deadlock,
            format!(
                "this transaction and others wait for each other ({}): roll it back and try again, \
                 and take locks in the same order everywhere",
                said.detail().unwrap_or(said.message())
            ),
        ),
        Some(said) if *said.code() == SqlState::LOCK_NOT_AVAILABLE => (
            ErrorKind::Timeout,
            format!("{}: roll back and try again, or raise lock_timeout", said.message()),
        ),
        Some(said) => (ErrorKind::Unavailable, format!("{}: roll back", said.message())),
        None => (ErrorKind::Unavailable, "the connection has ended: connect again".into()),
    };
    Error::new(kind, Operation::Acquire, message).on(name).at(STORE)
}
