//! [`Sharing`]: which users the files of a store are for.
//!
//! The files of a group are its own whatever the umask is. A new file gets its mode and group under
//! another name and is renamed then, so that nobody meets it before. Members of the group are trusted
//! with the locks and with nothing else: what they put in the place of a file must not make another user,
//! let alone root, change a file elsewhere. So no symbolic link is followed, nor a hard link used.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, fchown,
};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};
use sprag_core::entropy::OsEntropy;
use sprag_core::{ErrorKind, Result, SessionId};

use crate::accounts;
use crate::error::{error, from_io};

/// The mode of a folder that a group shares: what is made in it belongs to the group, too.
const FOLDER: u32 = 0o2770;
/// The mode of a file that a group shares.
const FILE: u32 = 0o660;

/// How something is looked at that may be anything.
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Which users the files of a store are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// For the user who made them.
    User,
    /// For this group.
    Group(u32),
}

impl Sharing {
    /// For whom the files beside a database are that is there already: somebody who names the file of a
    /// group and not the group must not make files beside it that the others cannot use.
    pub(crate) fn of(database: &Path) -> Self {
        let folder = database.parent().and_then(|folder| fs::metadata(folder).ok());
        match (fs::metadata(database).ok(), folder) {
            (Some(file), Some(folder))
                if file.gid() == folder.gid()
                    && file.mode() & 0o777 == FILE
                    && is_for_a_group(&folder) =>
            {
                Self::Group(file.gid())
            }
            _ => Self::User,
        }
    }

    /// Opens a file of the store; makes it first if it is missing.
    pub(crate) fn open(self, path: &Path, options: &OpenOptions) -> io::Result<File> {
        let mut options = options.clone();
        options.mode(0o600).custom_flags(without_links());
        if self == Self::User {
            return options.create(true).open(path);
        }
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make(path)?;
                options.open(path)?
            }
            opened => opened?,
        };
        let found = file.metadata()?;
        if found.is_file() && found.nlink() == 1 {
            return Ok(file);
        }
        let what = "it is not a file of its own, but a link or something else: remove it";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
    }

    /// Makes a new file, open for reading and writing.
    pub(crate) fn create(self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        self.give(&file, FILE)?;
        Ok(file)
    }

    /// Makes an empty file, unless there is one.
    pub(crate) fn make(self, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path).is_ok() {
            return Ok(());
        }
        let unborn = unborn(path);
        drop(self.create(&unborn)?);
        settle(&unborn, path, |path| fs::remove_file(path))
    }

    /// Makes a folder, unless there is one.
    pub(crate) fn make_folder(self, path: &Path) -> io::Result<()> {
        if self == Self::User {
            return DirBuilder::new().recursive(true).mode(0o700).create(path);
        }
        if path.is_dir() {
            return Ok(());
        }
        let unborn = unborn(path);
        DirBuilder::new().mode(0o700).create(&unborn)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(CWD, &unborn, flags, Mode::empty())?;
        self.give(&folder, FOLDER)?;
        settle(&unborn, path, |path| fs::remove_dir(path))
    }

    /// Lets those who share the store send to the socket at `path`, which is our own.
    pub(crate) fn admit(self, path: &Path) -> io::Result<()> {
        let mode = if self == Self::User { 0o600 } else { FILE };
        let socket = File::from(openat(CWD, path, LOOK, Mode::empty())?);
        let found = socket.metadata()?;
        if !found.file_type().is_socket() || found.uid() != geteuid().as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        fs::set_permissions(by_descriptor(&socket), Permissions::from_mode(mode))
    }

    /// Gives what was just made to the group.
    fn give(self, made: impl AsFd, mode: u32) -> io::Result<()> {
        let Self::Group(group) = self else { return Ok(()) };
        fchown(&made, None, Some(group))?;
        Ok(rustix::fs::fchmod(made, Mode::from_raw_mode(mode))?)
    }

    /// Shares what is at `path`, if it is there and our own; refuses what is a link, or belongs to somebody
    /// else and is not shared. Never with open: closing a file drops the locks that SQLite has on it.
    pub(crate) fn adopt(self, path: &Path) -> Result<()> {
        let failed = |e: Errno| from_io("examine", path, e.into());
        let file = match openat(CWD, path, LOOK, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(failed(errno)),
        };
        let found = file.metadata().map_err(|e| from_io("examine", path, e))?;
        let shown = path.display();
        let copied = found.is_file() && found.nlink() > 1;
        if found.is_symlink() || (copied && self != Self::User) {
            let message = format!("{shown} is a link and not a file of this store: remove it");
            return Err(error(ErrorKind::Refused, message));
        }
        let Self::Group(group) = self else { return Ok(()) };
        let mode = if found.is_dir() { FOLDER } else { FILE };
        if found.gid() == group && found.mode() & 0o7777 & mode == mode {
            return Ok(());
        }
        if found.uid() != geteuid().as_raw() {
            let (owner, group) = (accounts::user_name(found.uid()), accounts::group_name(group));
            let message = format!(
                "{shown} belongs to the user {owner} and is not shared with the group {group}: let \
                 {owner} open the store, or type sudo chgrp {group} {shown} && sudo chmod {mode:o} \
                 {shown}"
            );
            return Err(error(ErrorKind::Refused, message));
        }
        let path_of_it = by_descriptor(&file);
        chown(&path_of_it, None, Some(group))
            .and_then(|()| fs::set_permissions(&path_of_it, Permissions::from_mode(mode)))
            .map_err(|e| from_io("share", path, e))
    }

    /// Refuses a folder in which the group could not work together, or somebody else could
    /// exchange the files; and a user who is not in the group.
    pub(crate) fn check_folder(self, folder: &Path) -> Result<()> {
        let Self::Group(group) = self else { return Ok(()) };
        let (shown, name) = (folder.display(), accounts::group_name(group));
        let refused = |message: String| Err(error(ErrorKind::Refused, message));
        let found = fs::metadata(folder).map_err(|e| from_io("examine", folder, e))?;
        let owner = found.uid();
        if owner != 0 && owner != geteuid().as_raw() && !accounts::is_member(owner, group) {
            return refused(format!(
                "{shown} belongs to the user {}, who is not in the group {name}: let root or a member \
                 of the group make it",
                accounts::user_name(owner)
            ));
        }
        if found.gid() != group || !is_for_a_group(&found) {
            return refused(format!(
                "{shown} is not for the group {name} alone: name a folder that is not there yet, or \
                 give one to the group: sudo chgrp {name} DIR && sudo chmod {FOLDER:o} DIR"
            ));
        }
        let me = geteuid();
        let mine = || getgroups().is_ok_and(|groups| groups.iter().any(|g| g.as_raw() == group));
        if me.is_root() || getegid().as_raw() == group || mine() {
            return Ok(());
        }
        let user = accounts::user_name(me.as_raw());
        refused(format!(
            "the user {user} is not in the group {name}, which shares {shown}: type sudo usermod -aG \
             {name} {user} and log in again"
        ))
    }
}

/// Whether all members of its group may make files there that belong to the group, and nobody else.
fn is_for_a_group(folder: &Metadata) -> bool {
    const STICKY_OR_OF_ALL: u32 = 0o1002;
    folder.mode() & FOLDER == FOLDER && folder.mode() & STICKY_OR_OF_ALL == 0
}

/// The flag that lets an open fail at a symbolic link.
pub(crate) fn without_links() -> i32 {
    OFlags::NOFOLLOW.bits().cast_signed()
}

/// A path to what is open, whatever its name leads to by now.
fn by_descriptor(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// The name of something that is being made.
fn unborn(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".new-{}", SessionId::random(&OsEntropy)));
    name.into()
}

/// Gives something its name, or throws it away if there is one of that name.
fn settle(unborn: &Path, path: &Path, remove: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    match renameat_with(CWD, unborn, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(errno) => {
            remove(unborn)?;
            if errno == Errno::EXIST { Ok(()) } else { Err(errno.into()) }
        }
    }
}
