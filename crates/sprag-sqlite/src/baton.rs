//! The baton: a lock that is passed on before that is written.
//!
//! A hand-over that is written first makes the next one wait for a transaction. So who becomes the
//! holder is told its heir: the waiter to whom the record [promises](Record::promise) the lock, in the
//! same transaction. When the holder gives the lock back it tells its heir first, and writes the
//! release then. In between the record has the old holder, and:
//!
//! * **nobody else is let in.** Whatever becomes of the old holder (its release is written, it is
//!   killed, stopped until its lease ends, evicted), the record lets in the heir next, with the
//!   fence that was promised.
//! * **the heir may die**, or may have given up: then its place in the queue is gone, or goes with its
//!   session, and the release that is written lets in somebody else. Its place does not end with its
//!   time, as those of others do: it counts from its last question, which is no sign of life.
//! * **the baton may come late**, even after the lease has ended: that is as safe as any grant that is
//!   heard of late, see [`crate::wake`].
//! * **force** alone takes back a promise. It robs the heir as it robs the holder, and tells both;
//!   but a holder that was stopped meanwhile does not know, and may still pass on what is not its
//!   own. So force leaves a [`Mark`] before it is written, the holder has the mark from before the
//!   promise was written, and an heir enters only if it is still the same. A transaction that
//!   did not see the promise is not written, so the mark of one that takes it back is always newer.
//! * **the heir may be faster** than the one who let it in. Until it has heard that the release is
//!   written, it writes that release itself before anything of its own: it has the old holder's word.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use sprag_core::record::Record;
use sprag_core::{Fence, LeaseId, SessionId};

use crate::sharing::Sharing;

/// What a holder knows about its heir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heir {
    pub(crate) lease: LeaseId,
    pub(crate) session: SessionId,
    pub(crate) fence: Fence,
    pub(crate) mark: Mark,
}

impl Heir {
    /// The heir of who holds the lock of this record.
    pub(crate) fn of(record: &Record, mark: Mark) -> Option<Self> {
        // Something else may have had a larger fence since.
        let heir = record.heir.filter(|heir| heir.fence == record.fence)?;
        let wait = record.waiters.iter().find(|wait| wait.lease == heir.lease)?;
        Some(Self { lease: heir.lease, session: wait.session?, fence: heir.fence, mark })
    }
}

/// How often anybody used force in this store: the length of a file, and which file it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) file: u64,
    pub(crate) length: u64,
}

/// The file that tells how often anybody used force.
#[derive(Debug)]
pub(crate) struct ForceCount {
    path: PathBuf,
    sharing: Sharing,
}

impl ForceCount {
    /// Makes the file if it is missing.
    pub(crate) fn open(path: &Path, sharing: Sharing) -> io::Result<Self> {
        let count = Self { path: path.to_owned(), sharing };
        count.file().map(|_| count)
    }

    fn file(&self) -> io::Result<File> {
        self.sharing.open(&self.path, OpenOptions::new().append(true))
    }

    /// What it says now; nothing if the file is gone, and then no baton counts.
    pub(crate) fn mark(&self) -> Option<Mark> {
        let found = rustix::fs::stat(&self.path).ok()?;
        Some(Mark { file: found.st_ino, length: u64::try_from(found.st_size).ok()? })
    }

    /// From now on no baton counts that is under way. Called within the transaction that takes a
    /// promise back, before it is written.
    pub(crate) fn raise(&self) -> io::Result<()> {
        self.file()?.write_all(b"!")
    }
}

#[cfg(test)]
mod tests {
    use super::ForceCount;
    use crate::sharing::Sharing;

    #[test]
    fn force_is_seen_by_everybody_who_has_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("force");
        let [one, other] = [(); 2].map(|()| ForceCount::open(&path, Sharing::User).unwrap());
        let before = one.mark().expect("there is a file");
        assert_eq!(other.mark(), Some(before));
        one.raise().unwrap();
        assert_ne!(other.mark(), Some(before));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(other.mark(), None);
    }
}
