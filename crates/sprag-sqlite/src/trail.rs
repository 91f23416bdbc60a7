//! [`Trail`]: the audit trail, a text file beside the database.
//!
//! Each line is an entry. Lines are added inside the gate, right after the commit that they tell
//! about: they are in the order of the commits, and a line never tells what did not happen. A
//! process that is killed between the two leaves its line out. Rows in the database would be
//! atomic with the change, and would double what an acquire writes.
//!
//! When the file is full it becomes the old one, and the old one before it is forgotten.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, StatxFlags, statx};
use sprag_core::audit::{AuditEntry, AuditQuery, TRAIL_LENGTH};

use crate::sharing::{Sharing, without_links};

/// How long the file may get. Together with the old one it has more than [`TRAIL_LENGTH`] entries
/// of ordinary length.
const MAX_BYTES: u64 = 4 << 20;

/// The audit trail of one store.
#[derive(Debug)]
pub(crate) struct Trail {
    path: PathBuf,
    old: PathBuf,
    file: Mutex<Option<File>>,
    max_bytes: u64,
    sharing: Sharing,
}

impl Trail {
    pub(crate) fn new(path: &Path, sharing: Sharing) -> Self {
        let mut old = path.as_os_str().to_owned();
        old.push(".old");
        let (path, old) = (path.to_owned(), old.into());
        Self { path, old, file: Mutex::default(), max_bytes: MAX_BYTES, sharing }
    }

    /// Adds entries at the end. Called inside the gate. If it fails the lock is as it is.
    pub(crate) fn append(&self, entries: &[AuditEntry], unix_micros: u64) {
        if !entries.is_empty()
            && let Err(error) = self.try_append(entries, unix_micros)
        {
            tracing::warn!(%error, path = %self.path.display(), "the audit trail has a gap");
        }
    }

    fn try_append(&self, entries: &[AuditEntry], unix_micros: u64) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = String::new();
        for entry in entries {
            let line = entry.to_json();
            // Mostly there is one.
            if lines.is_empty() {
                lines = line;
            } else {
                lines.push_str(&line);
            }
            lines.push('\n');
        }
        // Another process may have begun a new file because this one is full, and somebody may
        // have deleted it.
        let current = match &*file {
            Some(file) => self.is_current(file)?,
            None => false,
        };
        if !current {
            *file = Some(self.open(unix_micros)?);
        }
        match &mut *file {
            Some(file) => file.write_all(lines.as_bytes()),
            None => Ok(()),
        }
    }

    /// Whether the file is still the one to append to, and not full. Its times are not asked for:
    /// a kernel that was asked for them notes the time of the next write more exactly, which costs
    /// as much as the write.
    fn is_current(&self, file: &File) -> io::Result<bool> {
        let asked = StatxFlags::SIZE | StatxFlags::NLINK;
        let found = statx(file, "", AtFlags::EMPTY_PATH, asked)?;
        Ok(found.stx_size < self.max_bytes && found.stx_nlink > 0)
    }

    /// Opens the file to append to it, after a new one was begun if it is full.
    fn open(&self, unix_micros: u64) -> io::Result<File> {
        let mut base = unix_micros;
        if let Ok(mut full) = read_only(&self.path)
            && let Some(header) = Part::of(&mut full)?
            && header.length >= self.max_bytes
        {
            // Sequences go on above the last one, whatever the clock says.
            base = base.max(header.base + header.length);
            fs::rename(&self.path, &self.old)?;
        }
        let mut file = self.sharing.open(&self.path, OpenOptions::new().append(true))?;
        if file.metadata()?.len() == 0 {
            file.write_all(format!("{base}\n").as_bytes())?;
        }
        Ok(file)
    }

    /// What the query asks for, oldest first.
    pub(crate) fn read(&self, query: &AuditQuery) -> io::Result<Vec<AuditEntry>> {
        let mut entries = Vec::new();
        for path in [&self.old, &self.path] {
            match read_only(path) {
                Ok(mut file) => read_part(&mut file, query.after, &mut entries)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let spare = entries.len().saturating_sub(TRAIL_LENGTH);
        entries.drain(..spare);
        entries.retain(|entry| query.name.as_ref().is_none_or(|name| *name == entry.name));
        if query.after == 0 {
            let spare = entries.len().saturating_sub(query.page());
            entries.drain(..spare);
        } else {
            entries.truncate(query.page());
        }
        Ok(entries)
    }
}

fn read_only(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(without_links()).open(path)
}

/// One of the two files.
struct Part {
    /// The first line: the sequence that its first byte would have. The sequence of an entry is
    /// that of its first byte.
    base: u64,
    length: u64,
}

impl Part {
    /// `None` if the file is not one of ours.
    fn of(file: &mut File) -> io::Result<Option<Self>> {
        // A number and its end.
        let mut start = [0; 21];
        let length = file.read(&mut start)?;
        let line = start[..length].split(|byte| *byte == b'\n').next();
        let base = line.and_then(|line| std::str::from_utf8(line).ok()?.parse().ok());
        let length = file.metadata()?.len();
        Ok(base.map(|base| Self { base, length }))
    }
}

/// Adds the entries after `after` to `entries`. Lines that cannot be read are left out: they
/// decide nothing.
fn read_part(file: &mut File, after: u64, entries: &mut Vec<AuditEntry>) -> io::Result<()> {
    let Some(part) = Part::of(file)? else { return Ok(()) };
    // An entry before the one that was read last is of no interest.
    let skipped = after.saturating_sub(part.base).min(part.length);
    file.seek(SeekFrom::Start(skipped))?;
    let mut text = Vec::new();
    file.take(part.length - skipped).read_to_end(&mut text)?;
    let mut offset = skipped;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let sequence = part.base + offset;
        offset += line.len() as u64;
        let entry = std::str::from_utf8(line).ok().map(AuditEntry::from_json);
        if let Some(Ok(mut entry)) = entry
            && sequence > after
        {
            entry.sequence = sequence;
            entries.push(entry);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sprag_core::audit::{AuditEntry, AuditKind, AuditQuery};
    use sprag_core::{Fence, Holder, LeaseId, LockName};

    use super::Trail;
    use crate::sharing::Sharing;

    fn entry(number: u128) -> AuditEntry {
        let name = LockName::new(format!("job/{}", number % 2)).unwrap();
        let (fence, lease) = (Fence::ZERO, LeaseId::from_u128(number));
        AuditEntry::new(0, name, AuditKind::Acquired, fence, lease, Holder::default())
    }

    fn numbers(entries: &[AuditEntry]) -> Vec<u128> {
        entries.iter().map(|entry| entry.lease.as_u128()).collect()
    }

    #[test]
    fn it_is_bounded_and_its_sequence_grows_over_files_handles_and_clocks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trail");
        let trail = || Trail { max_bytes: 2000, ..Trail::new(&path, Sharing::User) };
        let handles = [trail(), trail()];
        for number in 0..100 {
            // The clock goes back, and each handle finds files that the other began.
            handles[usize::from(number % 3 == 0)]
                .append(&[entry(number)], 5000 - u64::try_from(number).unwrap());
        }
        let all = handles[0].read(&AuditQuery::default()).unwrap();
        assert!((5..40).contains(&all.len()), "{}", all.len());
        let newest = u128::try_from(100 - all.len()).unwrap();
        assert_eq!(numbers(&all), (newest..100).collect::<Vec<_>>());
        assert!(all.is_sorted_by(|a, b| a.sequence < b.sequence));
        // Followers read on from where they are, over the border of the files, too.
        for (index, entry) in all.iter().enumerate() {
            let query = AuditQuery { after: entry.sequence, limit: 3, ..AuditQuery::default() };
            let next: Vec<_> = all[index + 1..].iter().take(3).cloned().collect();
            assert_eq!(handles[1].read(&query).unwrap(), next);
        }
    }

    #[test]
    fn what_is_not_an_entry_is_passed_over_and_a_deleted_file_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trail");
        let trail = Trail::new(&path, Sharing::User);
        trail.append(&[entry(1)], 7);
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"\xff\n{\"half\n");
        std::fs::write(&path, text).unwrap();
        trail.append(&[entry(2), entry(3)], 7);
        let odd = AuditQuery { name: Some(entry(1).name), ..AuditQuery::default() };
        assert_eq!(numbers(&trail.read(&odd).unwrap()), [1, 3]);
        std::fs::remove_file(&path).unwrap();
        trail.append(&[entry(4)], 9000);
        assert_eq!(numbers(&trail.read(&AuditQuery::default()).unwrap()), [4]);
    }
}
