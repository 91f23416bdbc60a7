//! [`Gate`]: the file lock in front of every write.
//!
//! The gate is for patience and order: who waits for it sleeps in the kernel, instead of in
//! SQLite's busy handler, which lets single commits wait for seconds. It is not what makes a
//! write safe; that is the transaction behind it. If somebody deletes the gate file, two
//! processes may be inside at once and one of them starts its transaction again.
//!
//! In front of the gate is the lobby, a second file of the same kind, for those who want a lock.
//! One of them at a time stands at the gate, so that who gives a lock back waits for one request
//! and not for a crowd. It is good manners, too: who finds the lobby taken for long and the gate
//! free goes around it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// One open file description of the gate. Two of them exclude each other, also in one process.
#[derive(Debug)]
pub(crate) struct Gate(File);

/// Being inside; dropped to leave.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a File);

impl Gate {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.mode(0o600).open(path).map(Self)
    }

    /// Enters if nobody is inside.
    pub(crate) fn try_enter(&self) -> io::Result<Option<Inside<'_>>> {
        match self.0.try_lock() {
            Ok(()) => Ok(Some(Inside(&self.0))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits until it is inside, which may be never: a stopped process keeps the gate.
    pub(crate) fn enter(&self) -> io::Result<Inside<'_>> {
        loop {
            match self.0.lock() {
                Ok(()) => return Ok(Inside(&self.0)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Tries to enter for about `patience`; only for opening, where there is no worker yet.
    pub(crate) fn enter_within(&self, patience: Duration) -> io::Result<Option<Inside<'_>>> {
        let (mut waited, mut pause) = (Duration::ZERO, Duration::from_micros(200));
        loop {
            if let Some(inside) = self.try_enter()? {
                return Ok(Some(inside));
            }
            if waited >= patience {
                return Ok(None);
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a blocking file lock cannot be given a time limit"
            )]
            std::thread::sleep(pause);
            waited += pause;
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::error!(%error, "the gate of the lock database could not be unlocked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Gate;
    use std::time::Duration;

    #[test]
    fn one_at_a_time_also_within_a_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gate");
        let (one, two) = (Gate::open(&path).unwrap(), Gate::open(&path).unwrap());
        let inside = one.try_enter().unwrap().unwrap();
        assert!(two.try_enter().unwrap().is_none());
        assert!(two.enter_within(Duration::from_millis(3)).unwrap().is_none());
        drop(inside);
        assert!(two.try_enter().unwrap().is_some());
    }
}
