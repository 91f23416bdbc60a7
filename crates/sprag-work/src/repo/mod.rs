//! [`Repo`]: the repository one stands in. Nothing here touches its index, its files, or the
//! branch that is checked out.

mod ages;
mod branch;
mod desk;
mod leftovers;
mod save;
mod tree;
mod undone;
mod worktree;

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sprag_core::entropy::{Entropy, OsEntropy};
use sprag_core::home::state_folder;
use sprag_git::{Git, GitError, Pushed, RefChange, Trouble, Version};
use sprag_ledger::{Oid, RefName};

pub(crate) use self::ages::Ages;
pub(crate) use self::branch::{Branch, UNFINISHED};
pub(crate) use self::desk::{ClaimNote, Desk, Slip};
pub(crate) use self::tree::{Edit, Merged};
pub(crate) use self::worktree::Checkout;

use crate::error::{Error, ErrorKind, Result};
use crate::flow::{Ignored, Rules};

/// The first git that merges without a checkout.
const MERGES: Version = Version { major: 2, minor: 38, patch: 0 };

/// How long one waits for another one of this clone that fetches.
const FETCH: Duration = Duration::from_secs(10);
/// How long one waits for another one of this machine that is about to push to main.
const LANDING: Duration = Duration::from_secs(30);

/// A reference of this repository to the main branch as it was fetched last.
const SEEN: &str = "refs/sprag/seen";

/// The repository one stands in, and the remote that all share.
#[derive(Clone, Debug)]
pub struct Repo {
    pub(crate) git: Git,
    /// What all worktrees of it share: `.git`.
    common: PathBuf,
    /// Where its first worktree is, or the bare repository.
    top: PathBuf,
    /// Where its worktrees are made.
    worktrees: PathBuf,
    /// What becomes of ignored files in them.
    ignored: Ignored,
    remote: String,
    main: String,
    /// Who commits, where the user has not said so.
    identity: Vec<String>,
    /// The main branch as it was seen last.
    seen: Arc<Mutex<Option<Oid>>>,
    /// Where the remote is, once somebody wanted to know.
    url: Arc<OnceLock<String>>,
}

/// What the remote has, at one moment.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The newest commit of the main branch, which is here as well.
    pub main: Oid,
    /// All branches.
    pub branches: BTreeMap<String, Oid>,
}

impl Repo {
    /// Finds the repository around a directory.
    ///
    /// # Errors
    ///
    /// Repository if there is none, if it has no remote, or if git is missing or too old.
    pub fn discover(directory: &Path, rules: &Rules) -> Result<Self> {
        // Nothing is tidied up while others work; no question is asked.
        let git = Git::new().directory(directory).env("GIT_OPTIONAL_LOCKS", "0");
        // What is safe on the remote is asked of the true history, not of one with replacements.
        let git = git.env("GIT_NO_REPLACE_OBJECTS", "1").env("GIT_GRAFT_FILE", "/dev/null");
        let version = git.version().map_err(|error| repository(&error))?;
        if version < MERGES {
            let message = format!("git {version} is too old for work items");
            return Err(Error::new(ErrorKind::Repository, message)
                .fact("need", format!("git {MERGES} or newer"))
                .next("see which git is used", "git version"));
        }
        let said = git.run(["rev-parse", "--path-format=absolute", "--git-common-dir"]);
        let said = said.map_err(|error| repository(&error))?;
        if !said.is_ok() {
            let shown = directory.display();
            let message = format!("{shown} is not in a git repository");
            return Err(Error::new(ErrorKind::Repository, message)
                .next("go into a clone of it", "git clone URL"));
        }
        let common = PathBuf::from(said.text());
        let top = first_worktree(&common);
        let remote = remote(&git, rules)?;
        let git = hide_logins(git, &remote)?;
        let main = match &rules.main {
            Some(main) => main.clone(),
            None => default_branch(&git, &remote)?,
        };
        let worktrees = match &rules.worktrees {
            Some(folder) => top.join(folder),
            None => beside(&top),
        };
        // The commands run in the first worktree, which stays, whatever becomes of the directory.
        let git = git.directory(&top);
        let identity = identity(&git)?;
        let (seen, url) = (Arc::default(), Arc::default());
        let ignored = rules.ignored.unwrap_or_default();
        Ok(Self { git, common, top, worktrees, ignored, remote, main, identity, seen, url })
    }

    /// The directory that all its worktrees share.
    pub fn common(&self) -> &Path {
        &self.common
    }

    /// Where its first worktree is.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// The name of the remote.
    pub fn remote_name(&self) -> &str {
        &self.remote
    }

    /// The branch that finished work is merged into.
    pub fn main(&self) -> &str {
        &self.main
    }

    /// The main branch as the remote names it.
    pub(crate) fn main_ref(&self) -> RefName {
        branch_ref(&self.main).expect("the remote has it")
    }

    /// Where the remote is.
    ///
    /// # Errors
    ///
    /// Repository if it has no URL.
    pub fn url(&self) -> Result<String> {
        if let Some(known) = self.url.get() {
            return Ok(known.clone());
        }
        let said = self.git.ok(["remote", "get-url", "--push", &self.remote]);
        let url = said.map_err(|error| repository(&error))?.text();
        Ok(self.url.get_or_init(|| url).clone())
    }

    /// Waits for one's turn among those of this machine who bring something to main; it is over
    /// when the file is closed. Only to be kind: of dozens who try at once one gets through, and
    /// the work of the others is in vain. What counts is compared in the swap.
    pub(crate) fn landing_turn(&self) -> Result<Option<File>> {
        let turn = |desk: Desk| desk.turn("landing", LANDING);
        match self.neighbours().map(turn) {
            Some(Ok(turn)) => Ok(turn),
            None | Some(Err(_)) => turn(self.desk()),
        }
    }

    /// What all clones of this user share that have the same remote.
    fn neighbours(&self) -> Option<Desk> {
        let mut hasher = DefaultHasher::new();
        self.url().ok()?.hash(&mut hasher);
        let state = state_folder(|name| std::env::var_os(name))?;
        Some(Desk::new(state.join(format!("remotes/{:016x}", hasher.finish()))))
    }

    /// What this machine knows about claims.
    pub(crate) fn desk(&self) -> Desk {
        Desk::new(self.common.join("sprag"))
    }

    /// Looks at the remote, and fetches what is new on its main branch. No reference of this
    /// repository is changed but one of our own.
    ///
    /// # Errors
    ///
    /// Repository if the remote has no main branch; unavailable if it cannot be reached.
    pub fn look(&self) -> Result<Remote> {
        for _ in 0..5 {
            let said = self.git.ok(["ls-remote", "--heads", "--", &self.remote]);
            let said = said.map_err(|error| self.remote_trouble(&error))?.text();
            let branches: BTreeMap<String, Oid> = said
                .lines()
                .filter_map(|line| line.split_once("\trefs/heads/"))
                .filter_map(|(oid, name)| Some((name.to_owned(), Oid::new(oid)?)))
                .collect();
            let Some(main) = branches.get(&self.main).cloned() else {
                return Err(self.no_main(&branches));
            };
            if self.fetch(&main, &self.main)? {
                *self.seen() = Some(main.clone());
                return Ok(Remote { main, branches });
            }
        }
        let message = format!("{} of {} is rewritten again and again", self.main, self.remote);
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    fn seen(&self) -> MutexGuard<'_, Option<Oid>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A commit of main that is not much older than the newest.
    pub(crate) fn recent_main(&self) -> Result<Oid> {
        let seen = self.seen().clone();
        seen.map_or_else(|| self.look().map(|remote| remote.main), Ok)
    }

    /// Brings a commit here that a branch of the remote has; whether it is here then.
    pub(crate) fn fetch(&self, commit: &Oid, branch: &str) -> Result<bool> {
        if self.seen().as_ref() == Some(commit) {
            return Ok(true);
        }
        // One brings it here for all of this clone.
        let _one_at_a_time = self.desk().turn("fetch", FETCH)?;
        if self.has_all(commit)? {
            return Ok(true);
        }
        let quiet = ["-c", "gc.auto=0", "-c", "maintenance.auto=false", "fetch", "--quiet"];
        let alone = ["--no-tags", "--no-write-fetch-head", "--refmap=", "--", &self.remote];
        let name = format!("refs/heads/{branch}");
        let args = quiet.into_iter().chain(alone).chain([name.as_str()]);
        match self.calm(|| self.git.ok(args.clone())) {
            Ok(_) if self.has(commit)? => {
                if branch == self.main {
                    // What is referenced is not fetched again. If another one is just about to do
                    // the same, once is enough.
                    drop(self.git.run(["update-ref", SEEN, commit.as_str()]));
                }
                Ok(true)
            }
            Ok(_) => Ok(false),
            // The branch may have gone meanwhile.
            Err(error) if error.message().contains("couldn't find remote ref") => Ok(false),
            Err(error) => Err(self.remote_trouble(&error)),
        }
    }

    /// Runs a git that looks at all worktrees, and runs it again if it met one in the making: some
    /// versions take that for damage.
    pub(super) fn calm<T>(&self, run: impl Fn() -> Result<T, GitError>) -> Result<T, GitError> {
        const ATTEMPTS: usize = 5;
        let half_made = |error: &GitError| error.message().contains("worktrees/");
        let mut ran = run();
        for _ in 1..ATTEMPTS {
            if !ran.as_ref().is_err_and(half_made) {
                break;
            }
            // Those of ours are made by one after the other; others need a moment.
            let _nobody_makes_one = self.desk().turn("worktrees", worktree::TURN);
            std::thread::park_timeout(Duration::from_millis(10));
            ran = run();
        }
        ran
    }

    /// Whether a commit is here with everything that it needs. While another process fetches it, or
    /// after one died while it did, the commit may be here without its files.
    fn has_all(&self, commit: &Oid) -> Result<bool> {
        let git = self.git.clone().env("GIT_NO_LAZY_FETCH", "1");
        let walk = ["rev-list", "--quiet", "--objects", "--exclude-promisor-objects"];
        let said = git.run(walk.into_iter().chain([commit.as_str(), "--not", SEEN]));
        said.map(|said| said.is_ok()).map_err(|error| repository(&error))
    }

    pub(crate) fn has(&self, commit: &Oid) -> Result<bool> {
        // Where objects are fetched when they are needed, looking for one must not fetch it.
        let git = self.git.clone().env("GIT_NO_LAZY_FETCH", "1");
        let said = git.run(["cat-file", "-e", &format!("{commit}^{{commit}}")]);
        said.map(|said| said.is_ok()).map_err(|error| repository(&error))
    }

    /// Whether `old` is an ancestor of `new`, or the same.
    pub(crate) fn is_ancestor(&self, old: &Oid, new: &Oid) -> Result<bool> {
        let said = self.git.run(["merge-base", "--is-ancestor", old.as_str(), new.as_str()]);
        said.map(|said| said.is_ok()).map_err(|error| repository(&error))
    }

    /// Changes one reference of the remote if it is what it has to be, again and again while the
    /// remote is only too busy.
    ///
    /// # Errors
    ///
    /// Conflict if it is not; unavailable or refused if the remote says so.
    pub(crate) fn push(&self, change: &RefChange) -> Result<()> {
        const ATTEMPTS: u32 = 8;
        let mut last = None;
        for attempt in 0..ATTEMPTS {
            let said = self.git.push(&self.remote, std::slice::from_ref(change), false);
            let said = said.map_err(|error| self.remote_trouble(&error))?.pop();
            match said {
                Some(Pushed::Done | Pushed::UpToDate) => return Ok(()),
                // The answer to an earlier attempt may have been lost.
                Some(Pushed::Refused) if last.is_some() && self.is_there(change) => return Ok(()),
                Some(Pushed::Refused | Pushed::Aborted) | None => {
                    let message =
                        format!("{} of {} was changed by others", change.name, self.remote);
                    return Err(Error::new(ErrorKind::Conflict, message));
                }
                Some(Pushed::Failed(error)) if error.trouble() != Trouble::Locked => {
                    return Err(self.remote_trouble(&error));
                }
                Some(Pushed::Failed(error) | Pushed::Unknown(error)) => last = Some(error),
            }
            let longest = Duration::from_millis(50) * (attempt + 1);
            std::thread::park_timeout(longest.mul_f64(OsEntropy.next_fraction()));
        }
        let message = format!("{} does not answer", self.remote);
        Err(last.map_or_else(
            || Error::new(ErrorKind::Unavailable, message),
            |error| self.remote_trouble(&error),
        ))
    }

    /// Whether a reference of the remote is where a change would have put it.
    fn is_there(&self, change: &RefChange) -> bool {
        let tips = self.git.tips(&self.remote, std::slice::from_ref(&change.name));
        tips.is_ok_and(|tips| tips.first() == Some(&change.new))
    }

    fn no_main(&self, branches: &BTreeMap<String, Oid>) -> Error {
        let (remote, main) = (&self.remote, &self.main);
        if branches.is_empty() {
            let message = format!("the repository of {remote} is empty");
            return Error::new(ErrorKind::Repository, message).next(
                "give it a first commit",
                format!("git commit --allow-empty -m start && git push {remote} HEAD:{main}"),
            );
        }
        let names: Vec<_> = branches.keys().take(5).map(String::as_str).collect();
        let message = format!("{remote} has no branch {main:?}");
        Error::new(ErrorKind::Repository, message)
            .fact("branches", names.join(", "))
            .fact("name it", "main = \"NAME\" below [work] in sprag.toml")
    }

    /// What to say about trouble with the remote.
    pub(crate) fn remote_trouble(&self, error: &GitError) -> Error {
        let kind = match error.trouble() {
            Trouble::Unreachable | Trouble::TimedOut | Trouble::Locked => ErrorKind::Unavailable,
            Trouble::AuthRefused | Trouble::Forbidden | Trouble::HookRefused => ErrorKind::Refused,
            Trouble::DiskFull => ErrorKind::System,
            _ => ErrorKind::Repository,
        };
        let error = Error::new(kind, error.message());
        error.next("see where the remote is", format!("git remote get-url {}", self.remote))
    }
}

/// The full name of a branch; `None` if git would not take it.
pub(crate) fn branch_ref(branch: &str) -> Option<RefName> {
    RefName::new(format!("refs/heads/{branch}"))
}

/// What to say about trouble with this repository.
pub(crate) fn repository(error: &GitError) -> Error {
    let kind = match error.trouble() {
        Trouble::DiskFull => ErrorKind::System,
        _ => ErrorKind::Repository,
    };
    let made = Error::new(kind, error.message());
    match error.trouble() {
        Trouble::DiskFull => made.next("make room", "git worktree list"),
        _ => made,
    }
}

/// The worktree that git lists first, or the bare repository: as git finds it, which is by name.
/// Asked for its worktrees, git fails while another one is being made.
fn first_worktree(common: &Path) -> PathBuf {
    let around = common.parent().filter(|_| common.ends_with(".git"));
    around.unwrap_or(common).to_owned()
}

/// The folder for worktrees: beside the repository, where no tool takes it for part of it.
fn beside(top: &Path) -> PathBuf {
    let name = top.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = format!("{}-work", name.unwrap_or_default().trim_end_matches(".git"));
    top.parent().map_or_else(|| top.join(&name), |parent| parent.join(&name))
}

fn remote(git: &Git, rules: &Rules) -> Result<String> {
    let listed = git.ok(["remote"]).map_err(|error| repository(&error))?.text();
    let remotes: Vec<&str> = listed.lines().collect();
    let wanted = rules.remote.as_deref();
    match (wanted, &remotes[..]) {
        (Some(name), known) if known.contains(&name) => Ok(name.to_owned()),
        (Some(name), known) => {
            let message = format!("this repository has no remote {name:?}");
            Err(Error::new(ErrorKind::Repository, message)
                .fact("remotes", known.join(", "))
                .next("add it", format!("git remote add {name} URL")))
        }
        (None, known) if known.contains(&"origin") => Ok("origin".to_owned()),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => {
            let message = "this repository has no remote, and the remote is where claims are made";
            Err(Error::new(ErrorKind::Repository, message)
                .next("add one", "git remote add origin URL"))
        }
        (None, several) => {
            let message = "this repository has several remotes and none is called origin";
            Err(Error::new(ErrorKind::Repository, message)
                .fact("remotes", several.join(", "))
                .fact("name it", "remote = \"NAME\" below [work] in sprag.toml"))
        }
    }
}

/// Keeps logins in the URLs of the remote out of command lines.
fn hide_logins(git: Git, remote: &str) -> Result<Git> {
    let mut hidden = git.clone();
    for which in ["--all", "--push"] {
        let urls = git.run(["remote", "get-url", which, remote]);
        let urls = urls.map_err(|error| repository(&error))?;
        hidden = urls.text().lines().fold(hidden, Git::hide_login);
    }
    Ok(hidden)
}

/// The branch that the remote calls its own.
fn default_branch(git: &Git, remote: &str) -> Result<String> {
    let known = format!("refs/remotes/{remote}/HEAD");
    let local = git.run(["symbolic-ref", "--quiet", &known]).map_err(|error| repository(&error))?;
    let prefix = format!("refs/remotes/{remote}/");
    if let Some(name) = local.text().strip_prefix(&prefix) {
        return Ok(name.to_owned());
    }
    let asked = git.run(["ls-remote", "--symref", "--", remote, "HEAD"]);
    let asked = asked.map_err(|error| repository(&error))?.text();
    let head = asked.lines().find_map(|line| line.strip_prefix("ref: refs/heads/"));
    let head = head.and_then(|line| line.split('\t').next());
    Ok(head.unwrap_or("main").to_owned())
}

/// What makes git commit as somebody, where the user has not said so.
fn identity(git: &Git) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for (key, text) in [("user.name", "sprag"), ("user.email", "sprag@localhost")] {
        let known = git.run(["config", key]).map_err(|error| repository(&error))?;
        if !known.is_ok() || known.text().trim().is_empty() {
            texts.extend(["-c".to_owned(), format!("{key}={text}")]);
        }
    }
    Ok(texts)
}
