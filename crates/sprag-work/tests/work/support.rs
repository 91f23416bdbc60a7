//! [`World`]: a remote and clones of it, and workers that have nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock};
use sprag_core::{Holder, LockGuard};
use sprag_work::{
    Finished, GitSource, How, ItemName, NewItem, Outcome, Rules, Task, Wanted, Worker,
};
use tempfile::TempDir;

/// A bare repository with one commit, and clones of it.
pub(crate) struct World {
    folder: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = Self::empty();
        let seed = world.clone_named("seed");
        std::fs::write(seed.join("README.md"), "a project\n").unwrap();
        git(&seed, &["add", "."]);
        git(&seed, &["commit", "-qm", "start"]);
        git(&seed, &["push", "-q", "origin", "HEAD:main"]);
        world
    }

    /// A remote without a commit.
    pub(crate) fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let world = Self { folder };
        git(world.folder.path(), &["init", "-q", "--bare", "-b", "main", "remote.git"]);
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn remote(&self) -> PathBuf {
        self.path("remote.git")
    }

    pub(crate) fn clone_named(&self, name: &str) -> PathBuf {
        self.clone_with(name, &[])
    }

    pub(crate) fn clone_with(&self, name: &str, options: &[&str]) -> PathBuf {
        let url = format!("file://{}", self.remote().display());
        let args: Vec<_> = ["clone", "-q"].into_iter().chain(options.iter().copied()).collect();
        git(self.folder.path(), &[&args[..], &[&url, name]].concat());
        let path = self.path(name);
        git(&path, &["config", "user.name", "tester"]);
        git(&path, &["config", "user.email", "tester@example.com"]);
        path
    }

    /// A worker in a clone.
    pub(crate) fn source(&self, clone: &Path, worker: &str) -> GitSource {
        self.source_with(clone, worker, &Rules::default())
    }

    pub(crate) fn source_with(&self, clone: &Path, worker: &str, rules: &Rules) -> GitSource {
        GitSource::open(clone, rules, Holder::new(worker, "here"))
            .unwrap()
            .run_ttl(Duration::from_secs(30))
    }

    /// The paths of all items on main, without what is below them.
    pub(crate) fn items(&self) -> Vec<String> {
        let args = ["-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", "main", "--"];
        let args = [&args[..], &["docs/work/"]].concat();
        let mut folders: Vec<_> = git(&self.remote(), &args)
            .lines()
            .filter_map(|path| {
                Some(path.strip_prefix("docs/work/")?.rsplit_once('/')?.0.to_owned())
            })
            .collect();
        folders.sort();
        folders.dedup();
        folders
    }

    /// All references of the remote but the records of locks.
    pub(crate) fn refs(&self) -> Vec<String> {
        let all = git(&self.remote(), &["for-each-ref", "--format=%(refname)"]);
        let known = |name: &&str| !name.starts_with("refs/sprag/locks/");
        all.lines().filter(known).map(str::to_owned).collect()
    }

    /// The subjects of main's own commits, newest first.
    pub(crate) fn log(&self) -> Vec<String> {
        let said = git(&self.remote(), &["log", "--first-parent", "--format=%s %b", "main"]);
        said.lines().map(str::to_owned).collect()
    }
}

/// Runs git and gives back what it printed.
pub(crate) fn git(directory: &Path, args: &[&str]) -> String {
    let output = plain_git(directory).args(args).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "git {args:?} in {}: {error}", directory.display());
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

pub(crate) fn plain_git(directory: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_NAME", "tester")
        .env("GIT_AUTHOR_EMAIL", "tester@example.com")
        .env("GIT_COMMITTER_NAME", "tester")
        .env("GIT_COMMITTER_EMAIL", "tester@example.com");
    command
}

pub(crate) fn name(text: &str) -> ItemName {
    ItemName::new(text).unwrap()
}

pub(crate) fn new_item(source: &GitSource, text: &str) {
    let new = NewItem { name: name(text), text: None, priority: 0 };
    source.create(&new).unwrap();
}

/// Makes an item somewhere in the middle of the flow.
pub(crate) fn place_item(clone: &Path, path: &str) {
    git(clone, &["pull", "-q", "origin", "main"]);
    let folder = clone.join("docs/work").join(path);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("README.md"), format!("{path}\n")).unwrap();
    git(clone, &["add", "."]);
    git(clone, &["commit", "-qm", &format!("add {path}")]);
    git(clone, &["push", "-q", "origin", "HEAD:main"]);
}

pub(crate) fn in_worktree() -> How {
    How { worktree: true, ..How::default() }
}

pub(crate) fn done() -> Outcome {
    Outcome::Done { category: Some("bugs".to_owned()) }
}

/// Works off everything with a handler that always succeeds.
pub(crate) fn drain(source: &GitSource, how: &How) -> Vec<Finished> {
    let handler = |_: &Task, _: &LockGuard| done();
    let mut worker =
        Worker::new(source.clone(), handler).claiming(how.clone()).wanting(Wanted::default());
    worker.drain(|_| ()).unwrap()
}

/// Waits for something that has to come.
#[track_caller]
pub(crate) fn wait_until(mut reached: impl FnMut() -> bool, what: &str) {
    let limit = BootClock.now().plus(Duration::from_secs(60));
    while !reached() {
        assert!(BootClock.now() < limit, "not yet: {what}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}
