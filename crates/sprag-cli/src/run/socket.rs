//! What a command under `sprag run` asks its wrapper, without the store.

use std::io;
use std::path::Path;
use std::time::Duration;

/// What the wrapper says about one of its locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The lock's name.
    pub(crate) lock: String,
    /// Its fence.
    pub(crate) token: u64,
    /// For how long it is surely held; `None` if it is lost.
    pub(crate) safe_for: Option<Duration>,
}

/// Asks the wrapper behind `SPRAG_SOCKET`.
pub(crate) fn ask(_socket: &Path) -> io::Result<Vec<Held>> {
    Err(io::ErrorKind::Unsupported.into())
}
