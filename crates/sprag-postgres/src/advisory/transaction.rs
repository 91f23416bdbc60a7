//! [`lock_for_transaction`]: a lock on a connection of the caller's own.

use sprag_core::{Error, ErrorKind, LockName, Operation, Result};
use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;

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
/// A namespace of leases is refused, as leases are no advisory locks: neither would exclude the
/// other. One that nobody has opened yet is not, so open it once with
/// [`mode=advisory`](crate::LockKind::Advisory): then it has advisory locks for ever.
///
/// # Errors
///
/// Refused, if the namespace has leases, or if this user may not read which kind it has; the
/// transaction is aborted then, so that nothing is done without the lock. A deadlock, if PostgreSQL
/// finds that this transaction and others wait for each other: then it is aborted. Else what the
/// server says, such as the end of its `lock_timeout`.
///
/// # Cancel safety
///
/// The server may go on waiting, and hold the lock then until the transaction is dropped.
pub async fn lock_for_transaction(
    transaction: &Transaction<'_>,
    namespace: &str,
    name: &LockName,
) -> Result<()> {
    let taken = transaction.batch_execute(&take(namespace, key(namespace, name.as_str()))).await;
    taken.map_err(|error| refused(&error, namespace, name).caused_by(error))
}

/// What the server answers if the namespace has leases.
const HAS_LEASES: &str = "SP002";

/// Takes the key, and then looks which kind of locks the namespace has: it may have got one while
/// this waited. All in one round trip, in a database that may not know sprag at all. Such a block
/// takes no parameters, and in hexadecimal digits nothing has to be quoted.
fn take(namespace: &str, key: i64) -> String {
    let space: String = namespace.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "DO $$ BEGIN \
         PERFORM pg_catalog.pg_advisory_xact_lock('{key}'::bigint); \
         IF pg_catalog.to_regclass('sprag.namespace') IS NOT NULL THEN \
           PERFORM FROM sprag.namespace AS n WHERE n.mode OPERATOR(pg_catalog.=) 'lease' \
             AND n.space OPERATOR(pg_catalog.=) pg_catalog.convert_from(pg_catalog.decode('{space}', 'hex'), 'UTF8'); \
           IF FOUND THEN RAISE SQLSTATE '{HAS_LEASES}'; END IF; \
         END IF; \
         END $$"
    )
}

fn refused(error: &tokio_postgres::Error, namespace: &str, name: &LockName) -> Error {
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
        Some(said) if said.code().code() == HAS_LEASES => (
            ErrorKind::Refused,
            format!(
                "the namespace {namespace:?} has lease locks, which a transaction does not exclude: \
                 give one that is opened with mode=advisory"
            ),
        ),
        Some(said) if *said.code() == SqlState::INSUFFICIENT_PRIVILEGE => (
            ErrorKind::Refused,
            format!(
                "this user may not read which kind of locks the namespace {namespace:?} has ({}): \
                 let the owner of the schema type GRANT USAGE ON SCHEMA sprag TO its name, and \
                 GRANT SELECT ON sprag.namespace TO its name",
                said.message()
            ),
        ),
        Some(said) => (ErrorKind::Unavailable, format!("{}: roll back", said.message())),
        None => (ErrorKind::Unavailable, "the connection has ended: connect again".into()),
    };
    Error::new(kind, Operation::Acquire, message).on(name).at(STORE)
}
