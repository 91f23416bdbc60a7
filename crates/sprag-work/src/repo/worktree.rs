//! [`Worktree`]: a checkout of its own for one claim.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sprag_ledger::Oid;

use super::{Repo, repository};
use crate::error::{Error, ErrorKind, Result};

/// How often git is asked again that met another git of this clone.
const ATTEMPTS: usize = 3;
/// How long one waits for another one of this clone.
pub(super) const TURN: Duration = Duration::from_secs(30);

/// A checkout of its own for one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Worktree {
    pub(crate) path: PathBuf,
    pub(crate) branch: String,
}

impl Repo {
    /// Where the worktree of a claim is.
    pub(crate) fn worktree_path(&self, branch: &str) -> PathBuf {
        self.worktrees.join(branch.replace('/', "-"))
    }

    /// Makes a worktree with a new branch at a commit. What an earlier claim left there must have
    /// been cleared away before.
    pub(crate) fn add_worktree(&self, branch: &str, at: &Oid) -> Result<Worktree> {
        let path = self.worktree_path(branch);
        // Twenty at once, and six of them fail: git does not lock what it makes.
        let _one_at_a_time = self.desk().turn("worktrees", TURN)?;
        let failed =
            |error| Error::system(format!("cannot make {}", self.worktrees.display()), &error);
        std::fs::create_dir_all(&self.worktrees).map_err(failed)?;
        let shown = path.to_string_lossy().into_owned();
        let mut last = None;
        for _ in 0..ATTEMPTS {
            // Without an upstream: all of them would be written to one file.
            let args = ["worktree", "add", "--quiet", "--no-track", "-b", branch, &shown];
            match self.git.ok(args.into_iter().chain([at.as_str()])) {
                Ok(_) => return Ok(Worktree { path, branch: branch.to_owned() }),
                Err(error) => last = Some(error),
            }
            self.drop_worktree(&Worktree { path: path.clone(), branch: branch.to_owned() }, at)?;
        }
        let message = last.map(|error| error.message().to_owned()).unwrap_or_default();
        let full = message.contains("No space left");
        let kind = if full { ErrorKind::System } else { ErrorKind::Repository };
        Err(Error::new(kind, format!("cannot make the worktree {shown}: {message}"))
            .next("see what is there", "git worktree list")
            .next("clear away what is dead", "sprag work recover"))
    }

    /// Takes a half-made worktree away, and its branch if nothing was done on it.
    fn drop_worktree(&self, worktree: &Worktree, at: &Oid) -> Result<()> {
        let shown = worktree.path.to_string_lossy().into_owned();
        let run = |args: &[&str]| self.git.run(args).map_err(|error| repository(&error));
        run(&["worktree", "remove", "--force", "--force", &shown])?;
        run(&["worktree", "prune"])?;
        self.delete_branch(&worktree.branch, at)?;
        Ok(())
    }

    /// Removes a worktree whose work is safe elsewhere, with its branch, which is at `tip`.
    pub(crate) fn remove_worktree(&self, worktree: &Worktree, tip: &Oid) -> Result<()> {
        let _one_at_a_time = self.desk().turn("worktrees", TURN)?;
        let shown = worktree.path.to_string_lossy().into_owned();
        let args = ["worktree", "remove", "--force", "--force", &shown];
        let said = self.git.run(args).map_err(|error| repository(&error))?;
        if !said.is_ok() && worktree.path.exists() {
            // Git knows it no more; the folder may still be there.
            std::fs::remove_dir_all(&worktree.path).ok();
        }
        self.git.run(["worktree", "prune"]).map_err(|error| repository(&error))?;
        self.delete_branch(&worktree.branch, tip)?;
        // Only if it is empty.
        std::fs::remove_dir(&self.worktrees).ok();
        Ok(())
    }

    /// Deletes a local branch that is at `tip`; whether it was.
    pub(crate) fn delete_branch(&self, branch: &str, tip: &Oid) -> Result<bool> {
        let name = format!("refs/heads/{branch}");
        let said = self.git.run(["update-ref", "-d", &name, tip.as_str()]);
        said.map(|said| said.is_ok()).map_err(|error| repository(&error))
    }

    /// How many commits `tip` has that `base` has not.
    pub(crate) fn count(&self, base: &Oid, tip: &Oid) -> usize {
        let said = self.git.ok(["rev-list", "--count", &format!("{base}..{tip}")]);
        said.ok().and_then(|said| said.text().parse().ok()).unwrap_or(0)
    }

    /// The commit that a worktree is at; `None` if it is gone.
    pub(crate) fn worktree_head(&self, path: &Path) -> Result<Option<Oid>> {
        if !path.join(".git").exists() {
            return Ok(None);
        }
        let git = self.git.clone().directory(path);
        let said = git.run(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]);
        said.map(|said| Oid::new(said.text())).map_err(|error| repository(&error))
    }

    /// Whether a merge, a rebase or the like is going on in a worktree.
    pub(crate) fn is_merging(&self, path: &Path) -> bool {
        const SIGNS: [&str; 5] =
            ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply"];
        let link = std::fs::read_to_string(path.join(".git")).unwrap_or_default();
        let folder = link.trim_end().strip_prefix("gitdir: ").map(|folder| path.join(folder));
        folder.is_some_and(|folder| SIGNS.iter().any(|sign| folder.join(sign).exists()))
    }

    /// Commits whatever is in a worktree and not committed, ignored files aside, on top of its
    /// HEAD; gives back where it is then. The branch follows, and nothing of the user's hooks runs.
    pub(crate) fn save_worktree(&self, path: &Path, message: &str) -> Result<Option<Oid>> {
        let Some(head) = self.worktree_head(path)? else { return Ok(None) };
        let git = self.git.clone().directory(path);
        let run = |args: &[&str]| git.ok(args).map_err(|error| repository(&error));
        if run(&["status", "--porcelain"])?.stdout.is_empty() {
            return Ok(Some(head));
        }
        run(&["-c", "advice.addEmbeddedRepo=false", "add", "--all", "--", ":/"])?;
        let tree = run(&["write-tree"])?.text();
        let tree = Oid::new(tree).ok_or_else(|| odd(path))?;
        if tree == self.tree_of(&head)? {
            return Ok(Some(head));
        }
        let commit = self.commit(&tree, &[&head], message)?;
        run(&["update-ref", "HEAD", commit.as_str(), head.as_str()])?;
        Ok(Some(commit))
    }

    /// The worktrees of this clone that have a branch checked out.
    pub(crate) fn worktrees(&self) -> Result<Vec<Worktree>> {
        let said = self.calm(|| self.git.ok(["worktree", "list", "--porcelain"]));
        let text = said.map_err(|error| repository(&error))?.text();
        let worktree = |block: &str| {
            let line = |key: &str| block.lines().find_map(|line| line.strip_prefix(key));
            let path = PathBuf::from(line("worktree ")?);
            Some(Worktree { path, branch: line("branch refs/heads/")?.to_owned() })
        };
        Ok(text.split("\n\n").filter_map(worktree).collect())
    }

    /// The local branches that are checked out nowhere and follow no other, and where they are.
    pub(crate) fn idle_branches(&self) -> Result<Vec<(String, Oid)>> {
        let format = "--format=%(objectname) %(refname:lstrip=2) %(worktreepath)%(upstream)";
        let said = self.calm(|| self.git.ok(["for-each-ref", format, "refs/heads/"]));
        let text = said.map_err(|error| repository(&error))?.text();
        let idle = |line: &str| {
            let (oid, rest) = line.split_once(' ')?;
            let (branch, used) = rest.split_once(' ')?;
            used.is_empty().then_some((branch.to_owned(), Oid::new(oid)?))
        };
        Ok(text.lines().filter_map(idle).collect())
    }

    /// Whether a worktree is one that claims are worked on in.
    pub(crate) fn is_own_worktree(&self, worktree: &Worktree) -> bool {
        worktree.path.parent() == Some(&self.worktrees)
    }
}

fn odd(path: &Path) -> Error {
    Error::new(ErrorKind::Repository, format!("git write-tree failed in {}", path.display()))
}
