//! Commits what is in a worktree, whatever git was told not to see.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use sprag_git::Git;
use sprag_ledger::Oid;

use super::tree::TemporaryIndex;
use super::worktree::Checkout;
use super::{Repo, repository};
use crate::error::{Error, ErrorKind, Result};

/// Settings that hide changes from git, run programs of the user's own, or make it stop halfway.
const PINNED: [&str; 11] = [
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.splitIndex=false",
    "core.trustctime=true",
    "core.checkStat=default",
    "core.hooksPath=/dev/null",
    "status.showUntrackedFiles=all",
    "diff.ignoreSubmodules=none",
    "submodule.recurse=false",
    "add.ignoreErrors=false",
    "advice.addEmbeddedRepo=false",
];

/// What `git status` says about a worktree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    /// Changed or new, and not ignored.
    pub(super) changed: Vec<PathBuf>,
    /// Ignored files, and folders of which all is ignored.
    pub(super) ignored: Vec<PathBuf>,
}

impl Repo {
    /// Git in a worktree or a repository in it, for which only what is in the files counts.
    pub(super) fn plain_git(&self, path: &Path) -> (Git, Vec<OsString>) {
        // It is a fact about the file system, and a wrong setting hides files.
        let blind = path.join(".GIT").exists();
        let own = format!("core.ignoreCase={blind}");
        let settings = PINNED.iter().map(|pin| (*pin).to_owned()).chain([own]);
        let args = settings.flat_map(|setting| [OsString::from("-c"), setting.into()]);
        (self.git.clone().directory(path), args.collect())
    }

    /// Commits whatever is in a worktree and not committed on top of its HEAD; gives back where it is
    /// then. The branch follows. Ignored files stay as they are, and repositories in it.
    ///
    /// # Errors
    ///
    /// If git cannot read or write a file. Then nothing was changed.
    pub(crate) fn save(&self, checkout: &Checkout, message: &str) -> Result<Option<Oid>> {
        let Some(head) = self.head_of(checkout)? else { return Ok(None) };
        if !checkout.is_in_place() {
            return Ok(Some(head));
        }
        let index = self.index_of(checkout)?;
        let status = index.status()?;
        let mut inner = self.repositories_in(&checkout.path, &status)?;
        if !inner.is_empty() {
            let submodules = index.submodules()?;
            inner.retain(|path| submodules.iter().all(|(module, _)| module != path));
            // Made in a folder of this repository, it does not hide the files of that.
            inner.retain(|path| !index.has_files_in(path));
        }
        let own = |path: &&PathBuf| !inner.iter().any(|repository| path.starts_with(repository));
        if !status.changed.iter().any(|path| own(&path)) {
            return Ok(Some(head));
        }
        // Git takes a repository that is no submodule for one entry without content, or for an error
        // if it has no commit.
        let mut paths = b":/\0".to_vec();
        for repository in &inner {
            paths.extend(b":(top,exclude,literal)");
            paths.extend(repository.as_os_str().as_bytes());
            paths.push(0);
        }
        let add = ["add", "--sparse", "--all", "--pathspec-from-file=-", "--pathspec-file-nul"];
        index.run(&add, &paths)?;
        let tree = index.run(&["write-tree"], &[])?;
        let odd = || Error::new(ErrorKind::Repository, "git write-tree gave no tree");
        let tree = Oid::new(String::from_utf8_lossy(&tree).trim()).ok_or_else(odd)?;
        let tip = if tree == self.tree_of(&head)? {
            head
        } else {
            let commit = self.commit(&tree, &[&head], message)?;
            let update =
                ["update-ref", "-m", "sprag: saved", "HEAD", commit.as_str(), head.as_str()];
            index.run(&update, &[])?;
            commit
        };
        // Otherwise git would show all of it as undone. Nothing is lost if it cannot be replaced.
        fs::rename(&index.index.path, checkout.admin.join("index")).ok();
        Ok(Some(tip))
    }

    /// A copy of a worktree's index in which no file is said to be unchanged.
    pub(super) fn index_of(&self, checkout: &Checkout) -> Result<CopiedIndex> {
        let index = TemporaryIndex::new(self)?;
        let (git, pins) = self.plain_git(&checkout.path);
        let git = git.env("GIT_INDEX_FILE", &index.path);
        let copied = CopiedIndex { index, git, pins };
        match copy(&checkout.admin.join("index"), &copied.index.path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                copied.read_head()?;
            }
            Err(error) => {
                let shown = checkout.path.display();
                return Err(Error::system(format!("cannot read the index of {shown}"), &error));
            }
        }
        copied.forget_flags(&checkout.path)?;
        Ok(copied)
    }
}

/// The index of a worktree, in a file of our own.
pub(super) struct CopiedIndex {
    index: TemporaryIndex,
    git: Git,
    pins: Vec<OsString>,
}

impl CopiedIndex {
    pub(super) fn run(&self, args: &[&str], input: &[u8]) -> Result<Vec<u8>> {
        let args = self.pins.iter().map(OsString::as_os_str).chain(args.iter().map(OsStr::new));
        let said = self.git.ok_with(args, input).map_err(|error| repository(&error))?;
        Ok(said.stdout)
    }

    /// Where git was killed while it checked the files out, those that are missing are nobody's
    /// deletion.
    fn read_head(&self) -> Result<()> {
        self.run(&["read-tree", "HEAD"], &[])?;
        let missing = self.run(&["ls-files", "--deleted", "-z"], &[])?;
        self.run(&["update-index", "-z", "--skip-worktree", "--stdin"], &missing).map(drop)
    }

    /// Files that git was told to take for unchanged are looked at again, if they are there. In a
    /// sparse checkout those that are not there are nobody's deletion.
    fn forget_flags(&self, path: &Path) -> Result<()> {
        let listed = self.run(&["ls-files", "-v", "-z"], &[])?;
        let mut flagged = Vec::new();
        for line in listed.split(|byte| *byte == 0) {
            let [flag, b' ', name @ ..] = line else { continue };
            let file = path.join(OsStr::from_bytes(name));
            if (flag.is_ascii_lowercase() || *flag == b'S') && file.symlink_metadata().is_ok() {
                flagged.extend(name);
                flagged.push(0);
            }
        }
        if !flagged.is_empty() {
            for flag in ["--no-assume-unchanged", "--no-skip-worktree"] {
                self.run(&["update-index", "-z", flag, "--stdin"], &flagged)?;
            }
        }
        Ok(())
    }

    pub(super) fn status(&self) -> Result<Status> {
        let args = ["status", "--porcelain", "-z", "--no-renames", "--untracked-files=all"];
        let more = ["--ignored=matching", "--ignore-submodules=none"];
        Ok(Status::read(&self.run(&[&args[..], &more].concat(), &[])?))
    }

    /// Whether files below a folder are tracked.
    fn has_files_in(&self, folder: &Path) -> bool {
        let mut literal = OsString::from(":(top,literal)");
        literal.push(folder);
        literal.push("/");
        let args =
            ["ls-files", "-z", "--"].map(OsStr::new).into_iter().chain([literal.as_os_str()]);
        let args = self.pins.iter().map(OsString::as_os_str).chain(args);
        self.git.ok(args).is_ok_and(|said| !said.stdout.is_empty())
    }

    /// The submodules that are tracked: where, and at which commit.
    pub(super) fn submodules(&self) -> Result<Vec<(PathBuf, Oid)>> {
        let listed = self.run(&["ls-files", "--stage", "-z"], &[])?;
        let submodule = |line: &[u8]| {
            let line = line.strip_prefix(b"160000 ")?;
            let tab = line.iter().position(|byte| *byte == b'\t')?;
            let oid = String::from_utf8_lossy(line.get(..tab)?).into_owned();
            let path = OsString::from_vec(line.get(tab + 1..)?.to_vec());
            Some((PathBuf::from(path), Oid::new(oid.split(' ').next()?)?))
        };
        Ok(listed.split(|byte| *byte == 0).filter_map(submodule).collect())
    }
}

impl Status {
    /// Reads what `git status --porcelain -z --no-renames` says.
    pub(super) fn read(said: &[u8]) -> Self {
        let mut status = Self::default();
        for line in said.split(|byte| *byte == 0) {
            let [one, two, b' ', name @ ..] = line else { continue };
            let path = PathBuf::from(OsStr::from_bytes(name));
            match (one, two) {
                (b'!', b'!') => status.ignored.push(path),
                _ => status.changed.push(path),
            }
        }
        status
    }
}

/// Copies an index with its time: by that git knows which files may have changed in the same moment.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    let time = fs::metadata(from)?.modified()?;
    fs::copy(from, to)?;
    fs::File::options().append(true).open(to)?.set_modified(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_changed_from_ignored() {
        let status = Status::read(b" M a b\0?? new/\0!! target/\0A  c\nd\0");
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(status.changed, paths(&["a b", "new/", "c\nd"]));
        assert_eq!(status.ignored, paths(&["target/"]));
    }
}
