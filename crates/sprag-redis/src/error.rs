//! From errors of Redis to [`Error`], with the address and what to do.

use redis::RedisError;
use sprag_core::{Error, ErrorKind, Operation};

use crate::config::Address;

/// The name of this store in errors and metrics.
pub(crate) const STORE: &str = "redis";

/// An error that says what is wrong and what to do. The store's methods put in the operation.
pub(crate) fn error(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, Operation::Open, message).at(STORE)
}

/// No answer came in time; what was asked may be done or not.
pub(crate) fn no_answer(address: &Address, what: &str) -> Error {
    let message = format!("{address} {what}: check that the server is running and reachable");
    error(ErrorKind::Unavailable, message)
}

/// An error of the client library or an answer of the server.
pub(crate) fn from_redis(address: &Address, source: &RedisError) -> Error {
    let said = source.detail().unwrap_or_default();
    let (kind, message) = match (source.kind(), source.code().unwrap_or_default()) {
        // Of our own scripts.
        (_, "SPRAGCORRUPT") => (ErrorKind::Corrupt, said.to_owned()),
        (redis::ErrorKind::AuthenticationFailed, _) | (_, "NOAUTH" | "WRONGPASS") => (
            ErrorKind::Refused,
            format!("{address} refused the user or password: correct them in the URL"),
        ),
        (_, "NOPERM") => (
            ErrorKind::Refused,
            format!("{address} does not permit that to this user ({said}): extend its ACL"),
        ),
        (_, "READONLY") => (
            ErrorKind::Refused,
            format!("{address} is a replica, which takes no locks: use the address of its master"),
        ),
        (_, "LOADING") => {
            (ErrorKind::Busy, format!("{address} is still loading its data: try again in a moment"))
        }
        (_, "BUSY") => (
            ErrorKind::Busy,
            format!("{address} is busy with somebody's script: wait, or use SCRIPT KILL"),
        ),
        (_, "OOM") => (
            ErrorKind::StoreFull,
            format!("{address} has used all of its maxmemory: raise it, or make room"),
        ),
        (_, "MISCONF") => (
            ErrorKind::StoreFull,
            format!("{address} cannot write to its disk and takes no locks: see its log"),
        ),
        (_, "WRONGTYPE") => (
            ErrorKind::Corrupt,
            "a key of the lock holds another type of value: use another prefix, or delete the key"
                .into(),
        ),
        (_, "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN") => (ErrorKind::Unsupported, {
            format!("{address} is a node of a Redis Cluster, which is not supported yet")
        }),
        (redis::ErrorKind::Io, _) => {
            return no_answer(address, &format!("cannot be reached ({source})"))
                .caused_by(source.clone());
        }
        (_, "ERR") => (ErrorKind::Corrupt, format!("{address} could not do it: {said}")),
        _ => (ErrorKind::Unavailable, format!("{address} answered: {source}")),
    };
    error(kind, message).caused_by(source.clone())
}

/// An answer that no script of ours gives.
pub(crate) fn strange_answer(source: impl std::fmt::Display) -> Error {
    error(ErrorKind::Corrupt, format!("the server's answer is not understood: {source}"))
}
