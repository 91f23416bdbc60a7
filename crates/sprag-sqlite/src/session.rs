//! [`Session`]: one store handle's presence, proven by the kernel.
//!
//! Each handle keeps an exclusive file lock on a file of its own. The kernel drops the lock when
//! the process ends, however it ends; process ids, which are reused and differ between
//! containers, are not asked. Session ids are random and never used again, so *dead* is for ever.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use sprag_core::SessionId;
use sprag_core::entropy::OsEntropy;

use crate::place::identity;
use crate::sharing::{Sharing, without_links};

/// How the name of a session file begins before it is locked.
const UNBORN: &str = "new-";

/// The session of one store handle.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) directory: PathBuf,
    pub(crate) process: u32,
    pub(crate) sharing: Sharing,
    path: PathBuf,
    file: File,
    identity: (u64, u64),
}

impl Session {
    /// Starts a session. Called inside the gate, so no sweep meets the file before it is locked.
    pub(crate) fn start(directory: &Path, sharing: Sharing) -> io::Result<Self> {
        let id = SessionId::random(&OsEntropy);
        let unborn = directory.join(format!("{UNBORN}{id}"));
        let path = directory.join(id.to_string());
        // The standard library sets close-on-exec: a child does not keep the session alive.
        let file = sharing.create(&unborn)?;
        // Locked first, renamed second: nobody ever sees the file under its name and unlocked.
        file.try_lock()?;
        fs::rename(&unborn, &path)?;
        let found = file.metadata()?;
        Ok(Self {
            id,
            directory: directory.to_owned(),
            process: std::process::id(),
            sharing,
            path,
            file,
            identity: (found.dev(), found.ino()),
        })
    }

    /// The locked file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the process of `session` is woken.
    pub(crate) fn socket_name(session: SessionId) -> String {
        format!("{session}.sock")
    }

    /// Whether others still see this session. If somebody deleted its file they take it for
    /// dead, and so must we.
    pub(crate) fn is_intact(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }

    /// Whether the session is gone for good. In doubt (no permission, too many open files) it is
    /// alive, and its leases end by their TTL.
    pub(crate) fn is_dead(&self, other: SessionId) -> bool {
        other != self.id && is_dead(&self.directory.join(other.to_string()))
    }

    /// What can be seen of another session.
    pub(crate) fn presence(&self, other: SessionId) -> Presence {
        presence(&self.directory.join(other.to_string()))
    }

    /// Ends the session: all that it holds or waits for is free, also when the disk is full.
    pub(crate) fn end(&self) {
        // A forked child shares the file lock with its parent and must leave it alone.
        if std::process::id() != self.process {
            return;
        }
        let socket = self.directory.join(Self::socket_name(self.id));
        for path in [&socket, &self.path] {
            remove(path);
        }
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, path = %self.path.display(), "cannot unlock the session file");
        }
    }
}

/// What can be seen of a session.
#[derive(Debug)]
pub(crate) enum Presence {
    /// Its file is locked.
    Alive(File),
    /// It is gone for good.
    Dead,
    /// Its file cannot be opened or asked for its lock.
    Unknown,
}

/// Whether the owner of the session file at `path` is gone.
fn is_dead(path: &Path) -> bool {
    matches!(presence(path), Presence::Dead)
}

fn presence(path: &Path) -> Presence {
    // A queue of bytes that somebody put there must not hold us up.
    let flags = without_links() | OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Presence::Dead,
        Err(_) => return Presence::Unknown,
    };
    // Shared: two that look at the same time must not take each other for the owner.
    match file.try_lock_shared() {
        Ok(()) => {
            // Nobody can own it again, so every process that sees this may remove it. The lock goes
            // with the handle; until then the answer to others is "free" or "missing": dead.
            remove(&path.with_extension("sock"));
            remove(path);
            Presence::Dead
        }
        Err(TryLockError::WouldBlock) => Presence::Alive(file),
        Err(TryLockError::Error(_)) => Presence::Unknown,
    }
}

/// So many live sessions are a crowd.
const CROWD: usize = 32;

/// Removes what dead sessions left behind. Called inside the gate. Returns how many are alive; in a
/// crowd not all of them are looked at, which others do.
pub(crate) fn sweep(directory: &Path) -> io::Result<usize> {
    let mut alive = 0;
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        let path = directory.join(name);
        if let Some(id) = name.strip_suffix(".sock") {
            if is_id(id) && !directory.join(id).exists() {
                remove(&path);
            }
        } else if is_id(name.strip_prefix(UNBORN).unwrap_or(name)) {
            // Until some are found: a new boot must not overlook a live one.
            alive += usize::from(!is_dead(&path));
            if alive == CROWD {
                break;
            }
        }
    }
    Ok(alive)
}

fn is_id(name: &str) -> bool {
    name.parse::<SessionId>().is_ok()
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(%error, path = %path.display(), "cannot remove a file of a session");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{Session, sweep};
    use crate::sharing::Sharing;
    use std::fs;

    #[test]
    fn a_session_is_alive_until_it_ends_or_its_file_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two, three] =
            [(); 3].map(|()| Session::start(dir.path(), Sharing::User).unwrap());
        assert!(!one.is_dead(one.id) && !one.is_dead(two.id) && one.is_intact());
        two.end();
        assert!(one.is_dead(two.id) && !two.is_intact());
        fs::remove_file(three.path()).unwrap();
        assert!(one.is_dead(three.id) && !three.is_intact());
    }

    #[test]
    fn an_unreadable_session_counts_as_alive() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = [(); 2].map(|()| Session::start(dir.path(), Sharing::User).unwrap());
        // A symbolic link to itself cannot be opened, and it is there.
        fs::remove_file(two.path()).unwrap();
        std::os::unix::fs::symlink(two.path(), two.path()).unwrap();
        assert!(!one.is_dead(two.id));
    }

    #[test]
    fn a_sweep_removes_the_dead_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let live = Session::start(dir.path(), Sharing::User).unwrap();
        let dead = Session::start(dir.path(), Sharing::User).unwrap();
        let left = dir.path().join(Session::socket_name(dead.id));
        let name = dead.path().to_owned();
        drop(dead); // As a crash does: the lock is gone, the files are not.
        fs::write(&left, "").unwrap();
        fs::write(dir.path().join("notes.txt"), "mine").unwrap();
        assert_eq!(sweep(dir.path()).unwrap(), 1);
        assert!(live.is_intact() && !name.exists() && !left.exists());
        assert!(dir.path().join("notes.txt").exists());
    }
}
