//! From what GitHub answers to [`Error`], with what to do about it.

use sprag_core::{Error, ErrorKind, Operation};

/// The name of this store in errors and metrics.
pub(crate) const STORE: &str = "github";

/// An error that says what is wrong and what to do. The store's methods put in the operation.
pub(crate) fn error(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, Operation::Open, message).at(STORE)
}
