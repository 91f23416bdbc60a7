//! From errors of PostgreSQL to [`Error`], with the address and what to do.

use sprag_core::{Error, ErrorKind, Operation};
use tokio_postgres::error::{DbError, SqlState};

use crate::config::PostgresConfig;

/// The name of this store in errors and metrics.
pub(crate) const STORE: &str = "postgres";

/// An error that says what is wrong and what to do. The store's methods put in the operation.
pub(crate) fn error(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, Operation::Open, message).at(STORE)
}

/// No answer came in time; what was asked may be done or not.
pub(crate) fn no_answer(config: &PostgresConfig, what: &str) -> Error {
    let message = format!("{config} {what}: check that the server is running and reachable");
    error(ErrorKind::Unavailable, message)
}

/// An error of the client library or an answer of the server.
pub(crate) fn from_postgres(config: &PostgresConfig, source: tokio_postgres::Error) -> Error {
    let told = match source.as_db_error() {
        Some(said) => {
            let (kind, message) = explain(config, said);
            error(kind, message)
        }
        None => {
            let why = std::error::Error::source(&source).map(ToString::to_string);
            if why.as_deref() == Some("password missing") {
                return error(ErrorKind::Refused, no_password(config)).caused_by(source);
            }
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            no_answer(config, &format!("cannot be reached ({source}{why})"))
        }
    };
    told.caused_by(source)
}

fn no_password(config: &PostgresConfig) -> String {
    format!(
        "{config} answers, and wants a password, and there is none: set PGPASSWORD, add a line to \
         ~/.pgpass, name a file with ?password_file=, or put it into the URL"
    )
}

/// What the server's answer means for a lock.
fn explain(config: &PostgresConfig, said: &DbError) -> (ErrorKind, String) {
    let message = said.message();
    match *said.code() {
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => (
            ErrorKind::Refused,
            format!(
                "{config} answers, and refused the user or password ({message}): correct them, in \
                 the URL, in its password_file, in PGPASSWORD or in ~/.pgpass"
            ),
        ),
        SqlState::INVALID_CATALOG_NAME => (
            ErrorKind::Refused,
            format!(
                "{} has no database {:?}: correct the URL, or type createdb {}",
                config.address, config.database, config.database
            ),
        ),
        SqlState::INSUFFICIENT_PRIVILEGE => (
            ErrorKind::Refused,
            format!(
                "{config} does not permit that to this user ({message}): let the owner of the \
                 schema type SELECT sprag.let_in('its name')"
            ),
        ),
        SqlState::READ_ONLY_SQL_TRANSACTION => (ErrorKind::Refused, read_only(config)),
        SqlState::TOO_MANY_CONNECTIONS => (
            ErrorKind::Busy,
            format!(
                "{config} has no connection left ({message}): raise max_connections, or put \
                 PgBouncer in front of it"
            ),
        ),
        SqlState::CANNOT_CONNECT_NOW => {
            (ErrorKind::Busy, format!("{config} is not ready ({message}): try again in a moment"))
        }
        _ => explain_failure(config, said),
    }
}

/// What a request that failed means for a lock.
fn explain_failure(config: &PostgresConfig, said: &DbError) -> (ErrorKind, String) {
    let message = said.message();
    match *said.code() {
        SqlState::LOCK_NOT_AVAILABLE => (
            ErrorKind::Busy,
            format!(
                "{config} gave up ({message}): somebody keeps a row of the schema sprag locked, so end \
                 that transaction; or the lock_timeout of this user is too short"
            ),
        ),
        SqlState::QUERY_CANCELED => (
            ErrorKind::Busy,
            format!(
                "{config} gave up ({message}): if it is not just overloaded, raise the \
                 statement_timeout of this user"
            ),
        ),
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => (
            ErrorKind::Busy,
            format!(
                "{config} could not decide ({message}): set this user's \
                 default_transaction_isolation to read committed"
            ),
        ),
        SqlState::DISK_FULL => {
            (ErrorKind::StoreFull, format!("{config} has no room ({message}): make some"))
        }
        SqlState::OUT_OF_MEMORY => (
            ErrorKind::StoreFull,
            format!(
                "{config} has no room ({message}): if it is its table of locks, raise its \
                 max_locks_per_transaction, or use mode=lease"
            ),
        ),
        SqlState::UNDEFINED_TABLE
        | SqlState::UNDEFINED_FUNCTION
        | SqlState::UNDEFINED_COLUMN
        | SqlState::INVALID_SCHEMA_NAME => (
            ErrorKind::Corrupt,
            format!(
                "the schema sprag in {config} is not the one of this version ({message}): open \
                 the store again, and upgrade sprag if it says so"
            ),
        ),
        ref code if code.code().starts_with("22") => (
            ErrorKind::Corrupt,
            format!(
                "the record of this lock in {config} cannot be read ({message}): look at it with \
                 sprag show, and free it with sprag break --force and the token that is shown"
            ),
        ),
        ref code if code.code().starts_with("57") || code.code().starts_with("08") => {
            (ErrorKind::Unavailable, format!("{config} ended the connection: {message}"))
        }
        ref code => (
            ErrorKind::Corrupt,
            format!("{config} could not do it: {message} (SQLSTATE {})", code.code()),
        ),
    }
}

/// A server that takes no writes takes no locks.
pub(crate) fn read_only(config: &PostgresConfig) -> String {
    format!("{config} is read only, a standby for instance: use the address of its primary")
}

/// Why an answer does not fit.
pub(crate) type Misfit = Box<dyn std::error::Error + Send + Sync>;

/// An answer of another form than any that was asked for: perhaps one to somebody else, so what was asked
/// may be done or not.
pub(crate) fn misfit(config: &PostgresConfig, why: &Misfit) -> Error {
    no_answer(config, &format!("gave an answer that does not fit ({why})"))
}

/// An answer that no function of ours gives.
pub(crate) fn strange_answer(source: impl std::fmt::Display) -> Error {
    error(ErrorKind::Corrupt, format!("the server's answer is not understood: {source}"))
}
