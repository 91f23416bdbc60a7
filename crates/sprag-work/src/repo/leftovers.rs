//! What is in a worktree and no merge can bring to main. A folder with any of it is kept.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use sprag_git::Git;
use sprag_ledger::Oid;

use super::save::Status;
use super::worktree::Checkout;
use super::{Repo, SEEN, repository};
use crate::error::{Error, Result};
use crate::flow::Ignored;
use crate::task::Leftover;

/// How many names a message has at most.
const NAMED: usize = 5;
/// Folders of caches that do not say that they are.
const CACHES: [&str; 2] = ["node_modules", "__pycache__"];
/// The file that says that a folder is a cache, and what it begins with: <https://bford.info/cachedir>.
const CACHE_TAG: (&str, &[u8]) = ("CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55");

/// What was found in a worktree.
#[derive(Debug, Default)]
struct Found {
    /// Why the folder has to stay.
    reasons: Vec<String>,
    /// What goes with it otherwise.
    ignored: Vec<PathBuf>,
}

impl Repo {
    /// Takes the worktree of a claim away, and its branch. What is in none of the `safe` commits
    /// stays: where.
    ///
    /// # Errors
    ///
    /// If the folder can neither be removed nor left.
    pub(crate) fn put_away(&self, checkout: &Checkout, safe: &[&Oid]) -> Result<Vec<Leftover>> {
        let Found { mut reasons, ignored } = self.look_through(checkout).unwrap_or_else(|error| {
            let reason = format!("what cannot be looked at ({})", error.message());
            Found { reasons: vec![reason], ignored: Vec::new() }
        });
        let mut left = Vec::new();
        match self.keep_undone(checkout, safe) {
            Ok(kept) if reasons.is_empty() => left.extend(kept),
            // The folder keeps its log.
            Ok(_) => {}
            Err(error) => reasons.push(error.message().to_owned()),
        }
        if reasons.is_empty() {
            match self.remove(checkout) {
                Ok(()) if ignored.is_empty() => {}
                Ok(()) => left.push(Leftover::removed(named(&ignored))),
                Err(error) => reasons.push(error.message().to_owned()),
            }
        }
        if !reasons.is_empty() {
            let head = self.head_of(checkout)?;
            self.detach(checkout, head.as_ref())?;
            let at = checkout.path.display().to_string();
            left.push(Leftover::kept(reasons.join(", "), at));
        }
        left.extend(self.stashes_on(&checkout.branch));
        left.extend(self.free_branch(&checkout.branch, safe)?);
        Ok(left)
    }

    /// What keeps a folder from being removed, and what of it is ignored.
    fn look_through(&self, checkout: &Checkout) -> Result<Found> {
        let mut found = Found::default();
        if !checkout.is_in_place() {
            // Nothing is there, or something that is not ours.
            if fs::read_dir(&checkout.path).is_ok_and(|mut files| files.next().is_some()) {
                found.reasons.push("files that are in no worktree any more".to_owned());
            }
            return Ok(found);
        }
        if let Some(operation) = checkout.unfinished() {
            found.reasons.push(format!("an unfinished {operation}"));
        }
        let index = self.index_of(checkout)?;
        let status = index.status()?;
        let inner = self.repositories_in(&checkout.path, &status)?;
        let submodules = index.submodules()?;
        found.reasons.extend(self.work_in_submodules(checkout, &submodules)?);
        let is_submodule = |path: &&PathBuf| submodules.iter().any(|(module, _)| module == *path);
        let nested: Vec<_> = inner.iter().filter(|path| !is_submodule(path)).collect();
        if !nested.is_empty() {
            found.reasons.push(format!("the repository {}", named(&nested)));
        }
        let outside =
            |path: &&PathBuf| !inner.iter().any(|repository| path.starts_with(repository));
        let late: Vec<_> = status.changed.iter().filter(outside).collect();
        if !late.is_empty() {
            found.reasons.push(format!("changes that are not committed: {}", named(&late)));
        }
        let worth = |path: &&PathBuf| self.is_worth_keeping(&checkout.path, path);
        let worth: Vec<_> = status.ignored.iter().filter(outside).filter(worth).collect();
        if !worth.is_empty() {
            found.reasons.push(format!("files that git ignores: {}", named(&worth)));
        }
        found.ignored = status.ignored;
        Ok(found)
    }

    /// Whether an ignored file is more than what can be made again.
    fn is_worth_keeping(&self, top: &Path, path: &Path) -> bool {
        self.ignored == Ignored::Keep && !is_cache(top, path)
    }

    /// What submodules have that their own remotes have not.
    fn work_in_submodules(
        &self,
        checkout: &Checkout,
        submodules: &[(PathBuf, Oid)],
    ) -> Result<Vec<String>> {
        if submodules.is_empty() && !checkout.admin.join("modules").exists() {
            return Ok(Vec::new());
        }
        let recorded = self.submodules_on_main()?;
        let mut work = Vec::new();
        for (path, _) in submodules {
            work.extend(self.work_in_submodule(&checkout.path.join(path), path, &recorded)?);
        }
        // One that is checked out nowhere any more may still have commits.
        for repository in git_directories(&checkout.admin.join("modules")) {
            let git = self.git.clone().repository(repository);
            if work.is_empty() && has_own_commits(&git, &recorded)? {
                work.push("commits of a submodule".to_owned());
            }
        }
        Ok(work)
    }

    /// The commits of submodules that main speaks of: others can fetch them.
    fn submodules_on_main(&self) -> Result<Vec<Oid>> {
        let said = self.git.ok(["ls-tree", "-r", "--full-tree", SEEN]);
        let text = said.map_err(|error| repository(&error))?.text();
        let commits = text.lines().filter_map(|line| line.strip_prefix("160000 commit "));
        Ok(commits.filter_map(|line| Oid::new(line.split('\t').next()?)).collect())
    }

    /// What a submodule has that its own remotes have not.
    fn work_in_submodule(
        &self,
        path: &Path,
        name: &Path,
        recorded: &[Oid],
    ) -> Result<Option<String>> {
        let shown = name.display();
        if path.join(".git").symlink_metadata().is_err() {
            let files = fs::read_dir(path).is_ok_and(|mut files| files.next().is_some());
            return Ok(files.then(|| format!("files in {shown}, where a submodule belongs")));
        }
        let (git, pins) = self.plain_git(path);
        let args = ["status", "--porcelain", "-z", "--no-renames", "--ignored=matching"];
        let args = pins.iter().map(AsRef::as_ref).chain(args.map(OsStr::new));
        let status = git.ok(args).map_err(|error| repository(&error))?;
        let Status { changed, ignored } = Status::read(&status.stdout);
        if !changed.is_empty() || ignored.iter().any(|file| self.is_worth_keeping(path, file)) {
            return Ok(Some(format!("changes in the submodule {shown}")));
        }
        Ok(has_own_commits(&git, recorded)?.then(|| format!("commits of the submodule {shown}")))
    }

    /// The submodules whose recorded commit is in `tip`, is new since `base`, and is on none of
    /// their remotes: on main it would be of use to nobody.
    pub(crate) fn unpushed_submodules(
        &self,
        checkout: &Checkout,
        base: &Oid,
        tip: &Oid,
    ) -> Result<Vec<PathBuf>> {
        let args = ["diff-tree", "-r", "-z", "--no-renames", "--raw", "--ignore-submodules=none"];
        let said = self.git.ok(args.into_iter().chain([base.as_str(), tip.as_str()]));
        let text =
            String::from_utf8_lossy(&said.map_err(|error| repository(&error))?.stdout).into_owned();
        let mut parts = text.split('\0');
        let mut unpushed = Vec::new();
        while let (Some(facts), Some(path)) = (parts.next(), parts.next()) {
            let facts: Vec<_> = facts.split(' ').collect();
            let (Some(&"160000"), Some(new)) = (facts.get(1), facts.get(3)) else { continue };
            let inner = checkout.path.join(path);
            if inner.join(".git").symlink_metadata().is_err() {
                continue;
            }
            let git = self.git.clone().directory(&inner);
            let walk = ["rev-list", "--max-count=1", new, "--not", "--remotes"];
            let said = git.run(walk).map_err(|error| repository(&error))?;
            // A commit that is not even here was made elsewhere.
            if said.is_ok() && !said.stdout.is_empty() {
                unpushed.push(PathBuf::from(path));
            }
        }
        Ok(unpushed)
    }

    /// The repositories in a worktree, submodules included, from its top. Those in ignored caches do
    /// not count.
    pub(super) fn repositories_in(&self, top: &Path, status: &Status) -> Result<Vec<PathBuf>> {
        let skipped = |path: &Path| status.ignored.iter().any(|known| known == path);
        let mut found = Vec::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let failed = |error| Error::system(format!("cannot read {}", folder.display()), &error);
            for entry in fs::read_dir(top.join(&folder)).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                if !entry.file_type().map_err(failed)?.is_dir() || entry.file_name() == ".git" {
                    continue;
                }
                let path = folder.join(entry.file_name());
                if entry.path().join(".git").symlink_metadata().is_ok() {
                    found.push(path);
                } else if !(skipped(&path) && is_cache(top, &path)) {
                    folders.push(path);
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// What was stashed on a branch. Stashes belong to the clone, and stay.
    fn stashes_on(&self, branch: &str) -> Vec<Leftover> {
        let said = self.git.run(["log", "-g", "--format=%H %gs", "refs/stash", "--"]);
        let text = said.map(|said| said.text()).unwrap_or_default();
        let here = [format!("WIP on {branch}: "), format!("On {branch}: ")];
        let stash = |line: &str| {
            let (oid, subject) = line.split_once(' ')?;
            let at = || format!("the clone's stash {}", oid.get(..12).unwrap_or(oid));
            here.iter()
                .any(|start| subject.starts_with(start))
                .then(|| Leftover::kept("a stash", at()))
        };
        text.lines().filter_map(stash).collect()
    }
}

/// Whether a repository has commits that none of its remotes has.
fn has_own_commits(git: &Git, recorded: &[Oid]) -> Result<bool> {
    let all = ["--exclude=refs/tags/*", "--exclude=refs/remotes/*", "--all", "--not", "--remotes"];
    let args = ["rev-list", "--max-count=1", "--ignore-missing"].into_iter().chain(all);
    let said = git.run(args.chain(recorded.iter().map(Oid::as_str)));
    let said = said.map_err(|error| repository(&error))?;
    Ok(!said.is_ok() || !said.stdout.is_empty())
}

/// The git directories below the one where git keeps those of a worktree's submodules.
fn git_directories(modules: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![modules.to_owned()];
    while let Some(folder) = folders.pop() {
        if folder.join("HEAD").exists() && folder.join("objects").exists() {
            folders.push(folder.join("modules"));
            found.push(folder);
            continue;
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    found
}

/// Whether a path is in a folder of what can be made again.
fn is_cache(top: &Path, path: &Path) -> bool {
    let named = |folder: &&Path| {
        folder.file_name().is_some_and(|name| CACHES.iter().any(|cache| name == *cache))
    };
    let tagged = |folder: &&Path| {
        let (file, signature) = CACHE_TAG;
        let file = top.join(folder).join(file);
        // Anything else than a file may keep its reader waiting for ever.
        let is_file = file.symlink_metadata().is_ok_and(|facts| facts.is_file());
        let tag = || fs::read(&file).is_ok_and(|tag| tag.starts_with(signature));
        !folder.as_os_str().is_empty() && is_file && tag()
    };
    path.ancestors().any(|folder| named(&folder) || tagged(&folder))
}

/// Some paths for people.
fn named(paths: &[impl AsRef<Path>]) -> String {
    let shown: Vec<_> =
        paths.iter().take(NAMED).map(|path| path.as_ref().display().to_string()).collect();
    let more = paths.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    // They are shown on terminals.
    let shown: String =
        shown.join(", ").chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("{shown}{more}")
}
