//! [`Standing`]: how far a configuration file is believed, and the user's list of trusted files.

use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use sprag::home::state_folder;

/// More than this is no configuration file.
const LARGEST: u64 = 1 << 20;

/// How far a file is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The user's own, the system's, or named by `--config` or `SPRAG_CONFIG`.
    Own,
    /// Found in a project; the user has said `sprag config trust` to this content of it.
    Trusted,
    /// Found in a project; the user has said nothing about this content.
    Untrusted,
}

impl Standing {
    /// Whether everything in the file counts.
    pub(crate) const fn is_trusted(self) -> bool {
        !matches!(self, Self::Untrusted)
    }

    /// For people and programs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Trusted => "trusted",
            Self::Untrusted => "untrusted",
        }
    }
}

/// A file of a project that must not be used, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsafe {
    pub(crate) path: PathBuf,
    pub(crate) why: String,
    /// The command that makes it usable, where there is one.
    pub(crate) fix: Option<String>,
}

/// Reads a file that was found and not named.
///
/// The owner is compared on the open file: a path may lead somewhere else a moment later.
pub(super) fn read_found(path: &Path) -> io::Result<Result<String, Unsafe>> {
    let refused =
        |(why, fix): (String, Option<String>)| Ok(Err(Unsafe { path: path.to_owned(), why, fix }));
    let link = std::fs::symlink_metadata(path)?;
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    let real = path.canonicalize()?;
    let open_to_all = open_to_all(path).or_else(|| open_to_all(&real));
    let (owner, me) = (Owner::of(&metadata), rustix::process::geteuid().as_raw());
    if let Err(why) = owner.may_speak_to(me, open_to_all.as_deref(), path) {
        return refused(why);
    }
    // The target may be the user's own and the link somebody else's.
    if link.is_symlink() {
        let owner = Owner { mode: 0, ..Owner::of(&link) };
        if let Err(why) = owner.may_speak_to(me, open_to_all.as_deref(), path) {
            return refused(why);
        }
    }
    if !metadata.is_file() || metadata.len() > LARGEST {
        return refused(("is no file of at most 1 MiB".to_owned(), None));
    }
    let mut text = String::new();
    Read::by_ref(&mut file).take(LARGEST).read_to_string(&mut text)?;
    Ok(Ok(text))
}

/// Who owns a file, and who may write to it.
#[derive(Clone, Copy, Debug)]
struct Owner {
    user: u32,
    mode: u32,
}

impl Owner {
    fn of(metadata: &Metadata) -> Self {
        Self { user: metadata.uid(), mode: metadata.mode() }
    }

    /// Whether the user `me` may be told something by it: `Err` says why not, and what to type.
    fn may_speak_to(
        self,
        me: u32,
        open_to_all: Option<&Path>,
        path: &Path,
    ) -> Result<(), (String, Option<String>)> {
        if self.user != me && self.user != 0 {
            return Err((format!("belongs to user {}, and you are user {me}", self.user), None));
        }
        if self.mode & 0o022 != 0 {
            let file = crate::output::plain::shell_word(&path.display().to_string());
            return Err((
                format!("can be changed by others (mode {:03o})", self.mode & 0o777),
                Some(format!("chmod go-w {file}")),
            ));
        }
        match open_to_all {
            Some(folder) if self.user != me => Err((
                format!(
                    "is below {}, where everybody may write, and is not yours",
                    folder.display()
                ),
                None,
            )),
            _ => Ok(()),
        }
    }
}

/// The folder around a file, however far above, in which every user may make files.
fn open_to_all(path: &Path) -> Option<PathBuf> {
    let written_by_all = |folder: &&Path| {
        // What cannot be looked at is taken for open.
        folder.metadata().map_or(true, |metadata| metadata.mode() & 0o002 != 0)
    };
    let mut above = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    above.find(written_by_all).map(Path::to_owned)
}

/// The files of projects that the user trusts: one record for each path, with a hash of the content.
#[derive(Debug)]
pub(crate) struct TrustList(PathBuf);

impl TrustList {
    /// The list of this user; none without a home.
    pub(crate) fn of_user(env: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let folder = state_folder(|name| env(name).map(Into::into))?;
        Some(Self(folder.join("trusted")))
    }

    /// Whether the user has said yes to this content at this path.
    pub(crate) fn has(&self, path: &Path, content: &str) -> bool {
        let record = std::fs::read_to_string(self.record(path));
        record.is_ok_and(|record| record.split(' ').next() == Some(&digest(content.as_bytes())))
    }

    /// Says yes to this content at this path.
    pub(crate) fn add(&self, path: &Path, content: &str) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let record = self.record(path);
        let draft = record.with_extension(std::process::id().to_string());
        let text = format!("{} {}\n", digest(content.as_bytes()), path.display());
        std::fs::write(&draft, text)?;
        std::fs::rename(draft, record)
    }

    /// Takes a yes back; whether there was one.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<bool> {
        match std::fs::remove_file(self.record(path)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The record of a path, by whichever links it is reached.
    fn record(&self, path: &Path) -> PathBuf {
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        let path = folder.zip(path.file_name()).map_or(path.to_owned(), |(f, name)| f.join(name));
        self.0.join(digest(path.as_os_str().as_encoded_bytes()))
    }
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Owner;

    #[test]
    fn a_file_speaks_to_its_owner_and_that_of_root_to_all() {
        let open = Some(Path::new("/tmp"));
        let path = Path::new("/p/sprag.toml");
        for (user, mode, open_to_all, refused) in [
            (1000, 0o100_644, None, None),
            (1000, 0o100_600, open, None),
            (0, 0o100_644, None, None),
            (0, 0o100_644, open, Some("is below /tmp, where everybody may write")),
            (1001, 0o100_644, None, Some("belongs to user 1001, and you are user 1000")),
            (1001, 0o100_644, open, Some("belongs to user 1001")),
            (1000, 0o100_664, None, Some("can be changed by others (mode 664)")),
            (0, 0o100_646, None, Some("can be changed by others (mode 646)")),
        ] {
            let said = Owner { user, mode }.may_speak_to(1000, open_to_all, path);
            let said = said.err().map(|(why, _)| why);
            match (said, refused) {
                (None, None) => {}
                (Some(said), Some(refused)) if said.starts_with(refused) => {}
                (said, _) => panic!("{user} {mode:o} {open_to_all:?}: {said:?}"),
            }
        }
    }
}
