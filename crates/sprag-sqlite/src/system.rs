//! The store that all users of a machine share, made once by root.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use sprag_core::{ErrorKind, Result};

use crate::accounts;
use crate::error::{error, from_io};
use crate::sharing::Sharing;

/// The folder of the store that all users of a machine share.
const FOLDER: &str = "/var/lib/sprag";
/// Its database.
const DATABASE: &str = "sprag.db";

/// Where the store of the whole machine is, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SystemStore {
    /// The database file.
    pub path: PathBuf,
    /// The group whose members may use it.
    pub group: String,
    /// Whether it was made just now.
    pub changed: bool,
}

/// Makes the store that all members of a group share, and only they: the folder `/var/lib/sprag`. Does
/// nothing if it is there.
///
/// # Errors
///
/// Refused if this is not root, there is no such group, or something else is there.
pub fn make_system_store(group: &str) -> Result<SystemStore> {
    make_at(Path::new(FOLDER), group)
}

fn make_at(folder: &Path, group: &str) -> Result<SystemStore> {
    let shown = folder.display();
    if !geteuid().is_root() {
        let message = format!("only root makes {shown}: type sudo sprag stores --make-system");
        return Err(error(ErrorKind::Refused, message));
    }
    let number = accounts::group_number(group)?;
    let sharing = Sharing::Group(number);
    let before = fs::symlink_metadata(folder);
    let changed = before.is_err();
    if let Ok(found) = before
        && found.gid() != number
        && folder.join(DATABASE).exists()
    {
        let message = format!(
            "{shown} is there for the group {}: to make it for another one, remove it while nobody uses \
             it",
            accounts::group_name(found.gid())
        );
        return Err(error(ErrorKind::Refused, message));
    }
    sharing.make_folder(folder).map_err(|e| from_io("create the directory", folder, e))?;
    belongs_to_root(folder)?;
    sharing.adopt(folder)?;
    sharing.check_folder(folder)?;
    let group = accounts::group_name(number);
    Ok(SystemStore { path: folder.join(DATABASE), group, changed })
}

/// The database of the store that all users of a machine share.
pub fn system_path() -> PathBuf {
    Path::new(FOLDER).join(DATABASE)
}

/// For which group the store is that root has made at `database`.
pub(crate) fn group_of(database: &Path) -> Result<u32> {
    let folder = database.parent().unwrap_or(database);
    match fs::symlink_metadata(folder) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            let message = format!(
                "there is no store of the whole machine yet, which is in {}: type sudo sprag stores \
                 --make-system",
                folder.display()
            );
            Err(error(ErrorKind::Refused, message))
        }
        Err(source) => Err(from_io("examine", folder, source)),
        Ok(_) => belongs_to_root(folder),
    }
}

/// Refuses what somebody else put where the folder of root should be; its group.
fn belongs_to_root(folder: &Path) -> Result<u32> {
    let found = fs::symlink_metadata(folder).map_err(|e| from_io("examine", folder, e))?;
    if found.is_dir() && found.uid() == 0 {
        return Ok(found.gid());
    }
    let message = format!(
        "{} is not a folder of root, but of the user {}, or a link: remove it, and type sudo sprag \
         stores --make-system",
        folder.display(),
        accounts::user_name(found.uid())
    );
    Err(error(ErrorKind::Refused, message))
}
