//! [`GuardedFile`]: a counter in a file that refuses writers with an old fence.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use sprag_core::Fence;

/// What a lock protects in these tests: a counter that is read, kept for a while, and written
/// back plus one. Two that do so at once lose an update, which the counter shows for ever.
///
/// With a fence each access is checked: smaller fences than the largest seen are refused. Reading
/// counts as access. If it did not, a late write of the predecessor could slip in between the
/// read and the write of its successor, who would then overwrite it.
///
/// The fence and the counter are one write of 16 bytes, so that a killed process leaves them
/// whole; a file lock orders the accesses.
#[derive(Debug)]
pub struct GuardedFile(File);

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// The counter has the new value.
    Accepted,
    /// A larger fence was here before; nothing was changed.
    Rejected,
}

impl GuardedFile {
    /// Opens the file; makes it if it is not there.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).open(path).map(Self)
    }

    /// Reads the counter; `None` if the fence is too old.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub fn read(&self, fence: Option<Fence>) -> io::Result<Option<u64>> {
        self.locked(|| {
            let (last, count) = self.load()?;
            let Some(fence) = fence.map(Fence::get) else { return Ok(Some(count)) };
            if fence < last {
                return Ok(None);
            }
            self.save(fence, count)?;
            Ok(Some(count))
        })
    }

    /// Writes the counter; refused if the fence is too old.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub fn write(&self, fence: Option<Fence>, count: u64) -> io::Result<Write> {
        self.locked(|| {
            let (last, _) = self.load()?;
            let fence = fence.map(Fence::get);
            if fence.is_some_and(|fence| fence < last) {
                return Ok(Write::Rejected);
            }
            self.save(fence.unwrap_or(last), count)?;
            Ok(Write::Accepted)
        })
    }

    fn locked<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.0.lock()?;
        let result = act();
        self.0.unlock()?;
        result
    }

    fn load(&self) -> io::Result<(u64, u64)> {
        let mut bytes = Vec::with_capacity(16);
        let mut file = &self.0;
        file.seek(SeekFrom::Start(0))?;
        file.take(16).read_to_end(&mut bytes)?;
        let Ok(bytes) = <[u8; 16]>::try_from(bytes) else { return Ok((0, 0)) };
        let both = u128::from_be_bytes(bytes);
        let low = u64::try_from(both & u128::from(u64::MAX)).unwrap_or(0);
        Ok((u64::try_from(both >> 64).unwrap_or(0), low))
    }

    fn save(&self, fence: u64, count: u64) -> io::Result<()> {
        let both = u128::from(fence) << 64 | u128::from(count);
        self.0.write_all_at(&both.to_be_bytes(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{GuardedFile, Write};
    use sprag_core::Fence;

    #[test]
    fn an_old_fence_is_refused_also_right_after_a_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = GuardedFile::open(folder.path().join("counter")).unwrap();
        let [old, new] = [1, 2].map(Fence::new);
        assert_eq!(file.read(old).unwrap(), Some(0));
        assert_eq!(file.read(new).unwrap(), Some(0));
        assert_eq!(file.write(old, 1).unwrap(), Write::Rejected);
        assert_eq!(file.read(old).unwrap(), None);
        assert_eq!(file.write(new, 1).unwrap(), Write::Accepted);
        assert_eq!(file.read(None).unwrap(), Some(1));
        assert_eq!(file.write(None, 9).unwrap(), Write::Accepted);
        assert_eq!(file.read(new).unwrap(), Some(9));
    }
}
