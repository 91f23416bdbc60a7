//! From errors of SQLite and the file system to [`Error`], with the path and what to do.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;
use sprag_core::{Error, ErrorKind, Loss, Operation};

/// The name of this store in errors and metrics.
pub(crate) const STORE: &str = "sqlite";

/// An error that says what is wrong and what to do. The store's methods put in the operation.
pub(crate) fn error(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, Operation::Open, message).at(STORE)
}

/// The gate was not free in time.
pub(crate) fn busy(path: &Path) -> Error {
    error(
        ErrorKind::Busy,
        format!(
            "another process did not finish its write to {} in time: try again, and look for a \
             stopped process if it stays so",
            path.display()
        ),
    )
}

/// A file of the store is not the one that was opened, and what this handle held is lost.
pub(crate) fn gone(path: &Path, loss: &Loss) -> Error {
    error(
        ErrorKind::Lost(loss.clone()),
        format!(
            "{} was deleted, moved or replaced while in use: open the store again",
            path.display()
        ),
    )
}

/// An error of a file operation; `what` was tried on `path`.
pub(crate) fn from_io(what: &str, path: &Path, source: io::Error) -> Error {
    use io::ErrorKind::{
        AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied, QuotaExceeded,
        ReadOnlyFilesystem, StorageFull,
    };
    let shown = path.display();
    let (kind, fix) = match source.kind() {
        PermissionDenied => (ErrorKind::Refused, "give this user access, or use another path"),
        ReadOnlyFilesystem => (ErrorKind::Refused, "use a path that can be written"),
        NotADirectory | IsADirectory | AlreadyExists | NotFound => {
            (ErrorKind::Refused, "use a path in a directory")
        }
        StorageFull | QuotaExceeded => (ErrorKind::StoreFull, "free some disk space"),
        _ => (ErrorKind::Unavailable, "check the disk"),
    };
    error(kind, format!("cannot {what} {shown} ({source}): {fix}")).caused_by(source)
}

/// An error of SQLite on the database at `path`.
pub(crate) fn from_sqlite(path: &Path, source: rusqlite::Error) -> Error {
    // SQLITE_IOERR_SHMSIZE: the index beside the log could not grow.
    const SHM_SIZE: i32 = 4874;
    let shown = path.display();
    let extended = source.sqlite_error().map_or(0, |e| e.extended_code);
    let (kind, message) = match source.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            // Readers give up so when a process was stopped while it recovered the log.
            | ErrorCode::FileLockingProtocolFailed,
        ) => {
            return busy(path).caused_by(source);
        }
        Some(ErrorCode::DiskFull) => (ErrorKind::StoreFull, full(path)),
        _ if extended == SHM_SIZE => (ErrorKind::StoreFull, full(path)),
        Some(ErrorCode::DatabaseCorrupt) => (
            ErrorKind::Corrupt,
            format!("{shown} is damaged: stop all its users, then move it away or restore it"),
        ),
        Some(ErrorCode::NotADatabase) => (
            ErrorKind::Corrupt,
            format!("{shown} is not a SQLite database and was left as it is: use another path"),
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => (
            ErrorKind::Refused,
            format!("{shown} cannot be written: give this user access to it and its directory"),
        ),
        _ => (ErrorKind::Unavailable, format!("{shown} cannot be used ({source}): check the disk")),
    };
    error(kind, message).caused_by(source)
}

fn full(path: &Path) -> String {
    format!(
        "no space is left for {}: free some; what ends with its process is freed without any",
        path.display()
    )
}

/// What is stored cannot be understood.
pub(crate) fn corrupt(path: &Path, name: &str, what: &str) -> Error {
    let shown = path.display();
    let fix = "nobody is given this lock until the row is repaired or deleted";
    error(
        ErrorKind::Corrupt,
        format!("the record of {name:?} in {shown} cannot be used: {what}; {fix}"),
    )
}

#[cfg(test)]
mod tests {
    use super::{from_io, from_sqlite};
    use sprag_core::ErrorKind;
    use std::io;
    use std::path::Path;

    #[test]
    fn the_kinds_are_told_apart_and_the_path_is_named() {
        let io = |errno: rustix::io::Errno| {
            let error = from_io("open", Path::new("/x/y"), io::Error::from(errno));
            assert!(error.to_string().contains("/x/y"), "{error}");
            error.kind().clone()
        };
        use rustix::io::Errno;
        assert_eq!(io(Errno::NOSPC), ErrorKind::StoreFull);
        assert_eq!(io(Errno::DQUOT), ErrorKind::StoreFull);
        assert_eq!(io(Errno::ACCESS), ErrorKind::Refused);
        assert_eq!(io(Errno::ROFS), ErrorKind::Refused);
        assert_eq!(io(Errno::NOTDIR), ErrorKind::Refused);
        assert_eq!(io(Errno::IO), ErrorKind::Unavailable);
        let sqlite = |code| {
            let source = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            from_sqlite(Path::new("/x/y"), source).kind().clone()
        };
        assert_eq!(sqlite(rusqlite::ffi::SQLITE_FULL), ErrorKind::StoreFull);
        assert_eq!(sqlite(rusqlite::ffi::SQLITE_IOERR_SHMSIZE), ErrorKind::StoreFull);
        assert_eq!(sqlite(rusqlite::ffi::SQLITE_BUSY), ErrorKind::Busy);
        assert_eq!(sqlite(rusqlite::ffi::SQLITE_PROTOCOL), ErrorKind::Busy);
        assert_eq!(sqlite(rusqlite::ffi::SQLITE_CORRUPT), ErrorKind::Corrupt);
        assert_eq!(sqlite(rusqlite::ffi::SQLITE_NOTADB), ErrorKind::Corrupt);
        assert_eq!(sqlite(rusqlite::ffi::SQLITE_READONLY), ErrorKind::Refused);
        assert_eq!(sqlite(rusqlite::ffi::SQLITE_IOERR_WRITE), ErrorKind::Unavailable);
    }
}
