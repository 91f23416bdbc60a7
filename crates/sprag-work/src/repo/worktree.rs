//! [`Checkout`]: the worktree of a claim, known by the reason for which git has it locked. Git writes
//! that down before anything else of a worktree. What has another reason or none is never removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sprag_git::GitError;
use sprag_ledger::Oid;

use super::{Repo, repository};
use crate::error::{Error, ErrorKind, Result};
use crate::name::ItemName;

/// How often git is asked again that met another git of this clone.
const ATTEMPTS: usize = 3;
/// How long one waits for another one of this clone.
pub(super) const TURN: Duration = Duration::from_secs(30);
/// The file in which git keeps the reason for which a worktree is locked.
const LOCKED: &str = "locked";
/// What such a reason begins with if a claim made the worktree.
const MARK: &str = "sprag claim ";

/// A worktree that a claim of this clone made, as git has it registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkout {
    /// Where it is. The folder may be gone.
    pub(crate) path: PathBuf,
    /// Where git keeps what it knows about it.
    pub(crate) admin: PathBuf,
    /// The claim that made it.
    pub(crate) id: String,
    /// The branch that was made with it.
    pub(crate) branch: String,
    /// What it was made for.
    pub(crate) item: ItemName,
}

impl Checkout {
    /// Whether the folder is there and still is this worktree: somebody may have put another
    /// repository in its place.
    pub(crate) fn is_in_place(&self) -> bool {
        let link = fs::read_to_string(self.path.join(".git")).unwrap_or_default();
        let target = link.trim_end().strip_prefix("gitdir: ").map(|to| self.path.join(to));
        let real = |path: &Path| fs::canonicalize(path).ok();
        target.is_some_and(|target| {
            real(&target).is_some_and(|target| Some(target) == real(&self.admin))
        })
    }

    /// A merge, a rebase or the like that is going on in it.
    pub(crate) fn unfinished(&self) -> Option<&'static str> {
        const SIGNS: [(&str, &str); 7] = [
            ("rebase-merge", "rebase"),
            ("rebase-apply/applying", "am"),
            ("rebase-apply", "rebase"),
            ("MERGE_HEAD", "merge"),
            ("CHERRY_PICK_HEAD", "cherry-pick"),
            ("REVERT_HEAD", "revert"),
            ("sequencer", "cherry-pick"),
        ];
        let found = SIGNS.iter().find(|(sign, _)| self.admin.join(sign).exists());
        found.map(|(_, operation)| *operation)
    }

    /// From now on it is the user's: nothing of ours touches it again.
    fn disown(&self) -> Result<()> {
        let failed = |error| Error::system(format!("cannot keep {}", self.path.display()), &error);
        fs::remove_file(self.admin.join(LOCKED)).map_err(failed)
    }

    /// The reason that it is locked for.
    fn mark(&self) -> String {
        let Self { path, id, branch, item, .. } = self;
        format!("{MARK}{id} {branch} {item} {}", path.display())
    }

    fn read(admin: PathBuf) -> Option<Self> {
        let mark = fs::read_to_string(admin.join(LOCKED)).ok()?;
        let mut words = mark.trim_end().strip_prefix(MARK)?.splitn(4, ' ');
        let (id, branch, item) = (words.next()?, words.next()?, words.next()?);
        // The user may have moved it. While it is made, git does not say yet where it is.
        let path = place_of(&admin).or_else(|| words.next().map(PathBuf::from))?;
        let (id, branch) = (id.to_owned(), branch.to_owned());
        Some(Self { path, id, branch, item: ItemName::new(item).ok()?, admin })
    }
}

/// Where the worktree is that git knows by this directory.
fn place_of(admin: &Path) -> Option<PathBuf> {
    let link = fs::read_to_string(admin.join("gitdir")).ok()?;
    Some(admin.join(link.trim_end()).parent()?.to_owned())
}

impl Repo {
    /// What git knows about the worktrees of this clone, a directory for each.
    fn registered(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let entries = fs::read_dir(self.common.join("worktrees")).into_iter().flatten();
        entries.flatten().map(|entry| entry.path())
    }

    /// The worktrees that claims of this clone made.
    pub(crate) fn checkouts(&self) -> Vec<Checkout> {
        self.registered().filter_map(Checkout::read).collect()
    }

    /// The worktree that a claim made, if it has one.
    pub(crate) fn checkout(&self, claim: &str) -> Option<Checkout> {
        self.checkouts().into_iter().find(|checkout| checkout.id == claim)
    }

    /// A folder that is ours because nobody else made it: `create_dir` has one winner, in this clone
    /// and in others that share the folder for worktrees.
    pub(crate) fn new_folder(&self, branch: &str, claim: &str) -> Result<PathBuf> {
        let failed =
            |error| Error::system(format!("cannot make {}", self.worktrees.display()), &error);
        fs::create_dir_all(&self.worktrees).map_err(failed)?;
        // As git writes it down.
        let folder = fs::canonicalize(&self.worktrees).map_err(failed)?;
        let plain = folder.join(branch.replace('/', "-"));
        let mut other = plain.clone().into_os_string();
        other.push(format!(".{claim}"));
        for path in [plain, PathBuf::from(other)] {
            // Git may know a folder that is gone, or away with its disk.
            if self.registered().any(|admin| place_of(&admin).as_ref() == Some(&path)) {
                continue;
            }
            match fs::create_dir(&path) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(Error::system(format!("cannot make {}", path.display()), &error));
                }
            }
        }
        let message = format!("there is something for {branch} in {}", self.worktrees.display());
        let error = Error::new(ErrorKind::Repository, message);
        Err(error.next("see what is there", "git worktree list"))
    }

    /// Makes a worktree with a new branch at a commit, in a [new folder](Self::new_folder).
    pub(crate) fn add_worktree(
        &self,
        item: &ItemName,
        branch: &str,
        claim: &str,
        (path, at): (&Path, &Oid),
    ) -> Result<()> {
        // Twenty at once, and six of them fail: git does not lock what it makes.
        let _one_at_a_time = self.desk().turn("worktrees", TURN)?;
        let mut checkout = Checkout {
            path: path.to_owned(),
            admin: PathBuf::new(),
            id: claim.to_owned(),
            branch: branch.to_owned(),
            item: item.clone(),
        };
        let mut last = None;
        for _ in 0..ATTEMPTS {
            match self.register(&mut checkout, at).and_then(|()| self.fill(&checkout, at)) {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
            // Nobody has worked in it.
            if let Some(half_made) = self.checkout(claim) {
                self.unregister(&half_made)?;
            }
            self.delete_branch(branch, at)?;
        }
        fs::remove_dir(path).ok();
        self.remove_empty_folder();
        let message = last.map(|error| error.message().to_owned()).unwrap_or_default();
        let full = message.contains("No space left");
        let kind = if full { ErrorKind::System } else { ErrorKind::Repository };
        Err(Error::new(kind, format!("cannot make the worktree {}: {message}", path.display()))
            .next("see what is there", "git worktree list")
            .next("clear away what is dead", "sprag work recover"))
    }

    /// Tells git about an empty folder.
    fn register(&self, checkout: &mut Checkout, at: &Oid) -> Result<(), GitError> {
        let (shown, mark) = (checkout.path.to_string_lossy().into_owned(), checkout.mark());
        // With the log of what was checked out, whatever is set. Forced, as a rebase that was left
        // elsewhere may name the same branch; neither the folder nor the branch is there before.
        let args = ["-c", "core.logAllRefUpdates=always", "worktree", "add", "--quiet", "--force"];
        let locked = ["--lock", "--reason", &mark, "--no-checkout"];
        // Without an upstream: all of them would be written to one file.
        let new = ["--no-track", "-b", &checkout.branch, &shown, at.as_str()];
        self.git.ok(args.into_iter().chain(locked).chain(new))?;
        let link = fs::read_to_string(checkout.path.join(".git")).unwrap_or_default();
        let admin = link.trim_end().strip_prefix("gitdir: ").unwrap_or_default();
        checkout.admin = checkout.path.join(admin);
        Ok(())
    }

    /// Checks the files out, as `git worktree add` does it.
    fn fill(&self, checkout: &Checkout, at: &Oid) -> Result<(), GitError> {
        let git = self.git.clone().directory(&checkout.path);
        git.ok(["reset", "--hard", "--quiet", "--no-recurse-submodules"])?;
        let none = "0".repeat(at.as_str().len());
        let hook = ["hook", "run", "--ignore-missing", "post-checkout", "--"];
        git.ok(hook.into_iter().chain([none.as_str(), at.as_str(), "1"])).map(drop)
    }

    /// Removes a worktree in which nothing is that is not safe elsewhere.
    pub(super) fn remove(&self, checkout: &Checkout) -> Result<()> {
        let _one_at_a_time = self.desk().turn("worktrees", TURN)?;
        self.unregister(checkout)?;
        self.remove_empty_folder();
        Ok(())
    }

    fn unregister(&self, checkout: &Checkout) -> Result<()> {
        let shown = checkout.path.to_string_lossy().into_owned();
        // Forced, as our own lock is on it, and files that are safe elsewhere may be in it.
        let removed = self.git.run(["worktree", "remove", "--force", "--force", &shown]);
        let removed = removed.map_err(|error| repository(&error))?;
        if !removed.is_ok() && checkout.path.join(".git").exists() {
            let said = removed.stderr.trim().to_owned();
            return Err(Error::new(
                ErrorKind::Repository,
                format!("cannot remove {shown}: {said}"),
            ));
        }
        if checkout.admin.exists() {
            // Git was killed while it made it, and does not know it as a worktree.
            let failed =
                |e| Error::system(format!("cannot remove {}", checkout.admin.display()), &e);
            fs::remove_dir_all(&checkout.admin).map_err(failed)?;
        }
        // Only if it is empty.
        fs::remove_dir(&checkout.path).ok();
        Ok(())
    }

    /// Removes the folder of a worktree that git never heard of. Only if it is empty.
    pub(crate) fn remove_unused(&self, folder: &Path) {
        fs::remove_dir(folder).ok();
        self.remove_empty_folder();
    }

    /// The folder for worktrees goes with the last of them.
    fn remove_empty_folder(&self) {
        fs::remove_dir(&self.worktrees).ok();
    }

    /// Leaves a worktree to the user, at the commit where it is and without its branch.
    pub(super) fn detach(&self, checkout: &Checkout, tip: Option<&Oid>) -> Result<()> {
        if let Some(tip) = tip {
            let git = self.git.clone().repository(&checkout.admin);
            let args = ["update-ref", "--no-deref", "-m", "sprag: kept", "HEAD", tip.as_str()];
            git.ok(args).map_err(|error| repository(&error))?;
        }
        checkout.disown()
    }

    /// The commit that a worktree is at, also if its folder is gone.
    pub(crate) fn head_of(&self, checkout: &Checkout) -> Result<Option<Oid>> {
        let git = self.git.clone().repository(&checkout.admin);
        let said = git.run(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]);
        said.map(|said| Oid::new(said.text())).map_err(|error| repository(&error))
    }

    /// How many commits `tip` has that `base` has not.
    pub(crate) fn count(&self, base: &Oid, tip: &Oid) -> usize {
        let said = self.git.ok(["rev-list", "--count", &format!("{base}..{tip}")]);
        said.ok().and_then(|said| said.text().parse().ok()).unwrap_or(0)
    }
}
