//! From what GitHub answers to [`Error`], with what to do about it.

use sprag_core::{Error, ErrorKind, Operation};
use sprag_ledger::in_short;

/// The name of this store in errors and metrics.
pub(crate) const STORE: &str = "github";
/// How many characters a message has at most.
const LONGEST: usize = 1_000;

/// An error that says what is wrong and what to do. The store's methods put in the operation.
pub(crate) fn error(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, Operation::Open, in_short(&message.into(), LONGEST)).at(STORE)
}
