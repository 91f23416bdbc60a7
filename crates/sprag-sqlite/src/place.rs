//! [`Place`]: the files of one store, and whether they are still the ones that were opened.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use rustix::process::geteuid;
use sprag_core::{ErrorKind, Result};

use crate::accounts;
use crate::error::{error, from_io};
use crate::filesystem;
use crate::sharing::Sharing;

/// The files of one store.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) database: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) gate: PathBuf,
    pub(crate) lobby: PathBuf,
    pub(crate) trail: PathBuf,
    pub(crate) force: PathBuf,
    pub(crate) sessions: PathBuf,
    /// For whom they are.
    pub(crate) sharing: Sharing,
    /// Device and inode of the database.
    identity: (u64, u64),
}

impl Place {
    /// Makes the directory and an empty database file where they are missing, and touches
    /// nothing else: the file may turn out to be somebody else's.
    pub(crate) fn prepare(path: &Path, sharing: Sharing) -> Result<Self> {
        Self::prepare_on(path, sharing, &filesystem::ask_kernel)
    }

    /// The same, where `read` says what file systems there are.
    fn prepare_on(path: &Path, sharing: Sharing, read: filesystem::Reader<'_>) -> Result<Self> {
        let path = make_database(path, sharing, read)?;
        // One database has one gate and one folder of sessions, by whichever link it is
        // reached: two folders would mean that each side takes the other for dead.
        let database = fs::canonicalize(&path).map_err(|e| from_io("find", &path, e))?;
        let found = fs::metadata(&database).map_err(|e| from_io("examine", &database, e))?;
        let shown = database.display();
        if !found.is_file() {
            let message = format!("{shown} is not a file: name a database file");
            return Err(error(ErrorKind::Refused, message));
        }
        if found.nlink() > 1 {
            let message = format!(
                "{shown} has {} hard links, and SQLite keeps a log for each: remove the others",
                found.nlink()
            );
            return Err(error(ErrorKind::Refused, message));
        }
        filesystem::check(&database, read)?;
        if let Some(directory) = database.parent() {
            filesystem::check_mount(&database, directory)?;
        }
        let beside = |suffix: &str| {
            let mut name = OsString::from(&database);
            name.push(suffix);
            PathBuf::from(name)
        };
        let (index, old) = (beside("-shm"), beside(".trail.old"));
        let place = Self {
            log: beside("-wal"),
            gate: beside(".gate"),
            lobby: beside(".lobby"),
            trail: beside(".trail"),
            force: beside(".force"),
            sessions: beside(".sessions"),
            sharing,
            identity: (found.dev(), found.ino()),
            database,
        };
        let Self { log, gate, lobby, trail, force, sessions, .. } = &place;
        for path in [log, &index, gate, lobby, trail, &old, force, sessions] {
            sharing.adopt(path)?;
            if sharing == Sharing::User {
                refuse_of_stranger(path, [0, found.uid(), geteuid().as_raw()])?;
            }
        }
        Ok(place)
    }

    /// Makes the folder of sessions.
    pub(crate) fn make_sessions(&self) -> Result<()> {
        make_folder(&self.sessions, self.sharing)
    }

    /// Whether the database is still the file that was opened. After `rm` or `mv` it is not, and
    /// others may have made a new one: what we read and write then excludes nobody.
    pub(crate) fn is_intact(&self) -> bool {
        identity(&self.database).is_ok_and(|found| found == self.identity)
    }

    /// How long the log is by now, in bytes.
    pub(crate) fn log_size(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |found| found.len())
    }
}

/// Device and inode of what is at `path`.
pub(crate) fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = rustix::fs::stat(path)?;
    Ok((found.st_dev, found.st_ino))
}

/// Makes the folder and the database where they are missing. Returns the path of the database.
fn make_database(path: &Path, sharing: Sharing, read: filesystem::Reader<'_>) -> Result<PathBuf> {
    let path = std::path::absolute(path).map_err(|e| from_io("find", path, e))?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        let message = format!("{} is not a file: name a database file", path.display());
        return Err(error(ErrorKind::Refused, message));
    };
    make_folder(folder, sharing)?;
    filesystem::check(folder, read)?;
    if sharing == Sharing::User {
        // Not with open: closing a file drops the locks that SQLite has on it through any other
        // handle of this process.
        return match mknodat(CWD, &path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0) {
            Ok(()) | Err(Errno::EXIST) => Ok(path),
            Err(errno) => Err(from_io("create", &path, errno.into())),
        };
    }
    let folder = fs::canonicalize(folder).map_err(|e| from_io("find", folder, e))?;
    sharing.check_folder(&folder)?;
    let path = folder.join(name);
    sharing.make(&path).map_err(|e| from_io("create", &path, e))?;
    sharing.adopt(&path)?;
    Ok(path)
}

/// Refuses a file beside the database that somebody else has put there: whoever owns the folder of sessions
/// can remove those in it, and then all are taken for dead.
fn refuse_of_stranger(path: &Path, owners: [u32; 3]) -> Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) if !owners.contains(&found.uid()) => found,
        Ok(_) => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(from_io("examine", path, e)),
    };
    let (shown, owner) = (path.display(), accounts::user_name(found.uid()));
    let message = format!(
        "{shown} belongs to the user {owner}, and the database does not: remove it, or keep the database in \
         a folder where nobody else can make files"
    );
    Err(error(ErrorKind::Refused, message))
}

fn make_folder(path: &Path, sharing: Sharing) -> Result<()> {
    sharing.make_folder(path).map_err(|e| from_io("create the directory", path, e))
}

#[cfg(test)]
mod tests {
    use super::Place;
    use crate::sharing::Sharing;
    use std::fs;
    use std::os::unix::fs::symlink;

    const NFS: u32 = 0x6969;
    const EXT4: u32 = 0xEF53;

    #[test]
    fn a_directory_on_a_network_file_system_is_refused_and_stays_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks.db");
        let error = Place::prepare_on(&path, Sharing::User, &|_| Ok(NFS)).unwrap_err();
        assert!(error.is_refused() && error.to_string().contains("NFS"), "{error:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        Place::prepare_on(&path, Sharing::User, &|_| Ok(EXT4)).unwrap();
    }

    #[test]
    fn a_link_to_a_network_file_system_is_refused() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (link, file) = (here.path().join("locks.db"), there.path().join("locks.db"));
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        let away = fs::canonicalize(there.path()).unwrap();
        let read = |path: &std::path::Path| Ok(if path.starts_with(&away) { NFS } else { EXT4 });
        let error = Place::prepare_on(&link, Sharing::User, &read).unwrap_err();
        assert!(error.is_refused() && error.to_string().contains("NFS"), "{error:?}");
    }

    #[test]
    fn a_link_beside_the_database_is_refused_with_its_path() {
        let (dir, away) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = dir.path().join("locks.db");
        for beside in ["trail", "sessions", "gate", "force"] {
            let trap = dir.path().join(format!("locks.db.{beside}"));
            symlink(away.path().join("else"), &trap).unwrap();
            let error = Place::prepare(&path, Sharing::User).unwrap_err();
            assert!(error.is_refused(), "{error:?}");
            assert!(error.to_string().contains(trap.to_str().unwrap()), "{error}");
            fs::remove_file(&trap).unwrap();
        }
        assert_eq!(fs::read_dir(away.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_stranger_has_put_beside_the_database_is_refused_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = dir.path().join("locks.db.sessions");
        fs::create_dir(&sessions).unwrap();
        let me = rustix::process::geteuid().as_raw();
        super::refuse_of_stranger(&sessions, [me; 3]).unwrap();
        let error = super::refuse_of_stranger(&sessions, [me + 1; 3]).unwrap_err();
        assert!(error.is_refused(), "{error:?}");
        assert!(error.to_string().contains(sessions.to_str().unwrap()), "{error}");
        super::refuse_of_stranger(&dir.path().join("missing"), [me + 1; 3]).unwrap();
    }

    #[test]
    fn the_kernel_is_asked_for_what_is_there() {
        // Its number is the same in every kernel.
        let proc = std::path::Path::new("/proc");
        assert_eq!(crate::filesystem::ask_kernel(proc).unwrap(), 0x9FA0);
    }
}
