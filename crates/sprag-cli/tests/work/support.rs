//! [`Shop`]: a remote, clones of it, and `sprag work` in them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::shared::{Answer, LIMIT, wait_for_none};

/// Whether tests are to be run in their full size.
pub(crate) fn is_full() -> bool {
    std::env::var("SPRAG_TORTURE").is_ok_and(|size| size == "full")
}

/// A bare repository and clones of it, for a user with nothing else.
pub(crate) struct Shop {
    folder: TempDir,
}

impl Shop {
    pub(crate) fn new() -> Self {
        let shop = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(shop.path("tmp")).unwrap();
        shop.git("", &["init", "-q", "--bare", "-b", "main", "remote.git"]);
        shop.clone_named("a");
        shop.git("a", &["commit", "-q", "--allow-empty", "-m", "start"]);
        shop.git("a", &["push", "-q", "origin", "HEAD:main"]);
        shop
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn clone_named(&self, name: &str) {
        self.git("", &["clone", "-q", "remote.git", name]);
        self.git(name, &["checkout", "-q", "-B", "main"]);
    }

    /// Gives a command this user and nothing else.
    pub(crate) fn dress(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("USER", "tester")
            .env("TMPDIR", self.path("tmp"))
            .env("GIT_AUTHOR_NAME", "tester")
            .env("GIT_AUTHOR_EMAIL", "tester@example.com")
            .env("GIT_COMMITTER_NAME", "tester")
            .env("GIT_COMMITTER_EMAIL", "tester@example.com")
            .stdin(Stdio::null());
    }

    /// Runs git in a clone, or in the folder of all.
    pub(crate) fn git(&self, clone: &str, args: &[&str]) -> String {
        let mut command = Command::new("git");
        self.dress(&mut command);
        let output = command.current_dir(self.path(clone)).args(args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "git {args:?} in {clone:?}: {error}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// `sprag work` with these arguments in a clone.
    pub(crate) fn command(&self, clone: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sprag"));
        self.dress(&mut command);
        command.current_dir(self.path(clone)).arg("work").args(args);
        command
    }

    pub(crate) fn work(&self, clone: &str, args: &[&str]) -> Answer {
        Answer::of(self.command(clone, args).output().unwrap())
    }

    pub(crate) fn start(&self, clone: &str, args: &[&str]) -> Child {
        let mut command = self.command(clone, args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) fn json(&self, clone: &str, args: &[&str]) -> Value {
        let answer = self.work(clone, &[&["--json"], args].concat()).exits(0);
        serde_json::from_str(&answer.out).unwrap()
    }

    /// Rules for a clone, outside of its repository.
    pub(crate) fn rules(&self, text: &str) {
        std::fs::create_dir_all(self.path(".config/sprag")).unwrap();
        std::fs::write(self.path(".config/sprag/config.toml"), text).unwrap();
    }

    /// The folders of all items on main.
    pub(crate) fn items(&self) -> Vec<String> {
        let args = ["ls-tree", "-r", "--name-only", "main", "--", "docs/work/"];
        let mut folders: Vec<_> = self
            .git("remote.git", &args)
            .lines()
            .filter_map(|path| {
                Some(path.strip_prefix("docs/work/")?.rsplit_once('/')?.0.to_owned())
            })
            .collect();
        folders.sort();
        folders.dedup();
        folders
    }

    /// All references of the remote but the records of locks and what was rescued.
    pub(crate) fn refs(&self) -> Vec<String> {
        let all = self.git("remote.git", &["for-each-ref", "--format=%(refname)"]);
        let kept = ["refs/sprag/locks/", "refs/sprag/rescue/"];
        let known = |name: &&str| !kept.iter().any(|prefix| name.starts_with(prefix));
        all.lines().filter(known).map(str::to_owned).collect()
    }

    /// Waits until the remote has nothing but main, while these clones clear up.
    #[track_caller]
    pub(crate) fn wait_for_tidy_remote(&self, clones: &[impl AsRef<str>], what: &str) {
        let left = || {
            let clear_up = |clone: &str| drop(self.work(clone, &["recover"]).exits(0));
            clones.iter().for_each(|clone| clear_up(clone.as_ref()));
            let mut refs = self.refs();
            refs.retain(|name| name != "refs/heads/main");
            refs
        };
        wait_for_none(left, what, if is_full() { LIMIT * 5 } else { LIMIT });
    }

    /// What the agents complained about.
    pub(crate) fn complaints(&self) -> String {
        let logs = std::fs::read_dir(self.path("tmp")).unwrap().flatten();
        let logs = logs.filter_map(|log| std::fs::read_to_string(log.path()).ok());
        let lines = |log: String| log.lines().map(str::to_owned).collect::<Vec<_>>();
        let usual = ["done ", "sprag: claimed ", "sprag: skipped: "];
        let known = |line: &String| usual.iter().any(|usual| line.starts_with(usual));
        logs.flat_map(lines).filter(|line| !known(line)).collect::<Vec<_>>().join("\n")
    }

    /// A search path with a `git` in front that is this script; `$real` is the true one.
    pub(crate) fn git_that(&self, script: &str) -> OsString {
        let bin = self.path("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let all = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<_> = std::env::split_paths(&all).collect();
        let real = folders.iter().map(|folder| folder.join("git")).find(|git| git.exists());
        let script = format!("#!/bin/sh\nreal={}\n{script}", real.unwrap().display());
        std::fs::write(bin.join("git"), script).unwrap();
        std::fs::set_permissions(bin.join("git"), PermissionsExt::from_mode(0o755)).unwrap();
        std::env::join_paths([bin].into_iter().chain(folders)).unwrap()
    }

    /// Puts an item into the middle of the flow.
    pub(crate) fn place(&self, path: &str) {
        let seed = self.path("seed");
        if !seed.exists() {
            self.clone_named("seed");
        }
        self.git("seed", &["pull", "-q", "origin", "main"]);
        let folder = seed.join("docs/work").join(path);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("README.md"), format!("{path}\n")).unwrap();
        self.git("seed", &["add", "."]);
        self.git("seed", &["commit", "-q", "-m", &format!("add {path}")]);
        self.git("seed", &["push", "-q", "origin", "HEAD:main"]);
    }

    /// That no clone has a worktree or branch but its own.
    pub(crate) fn assert_tidy(&self, clone: &str) {
        let worktrees = self.git(clone, &["worktree", "list"]);
        assert_eq!(worktrees.lines().count(), 1, "{worktrees}");
        let branches = self.git(clone, &["branch", "--list"]);
        assert_eq!(branches.lines().count(), 1, "{branches}");
        assert!(!self.path(&format!("{clone}-work")).exists());
    }
}

/// The versions of git that are installed, each as a search path that finds it first.
pub(crate) fn gits() -> Vec<OsString> {
    let all = std::env::var_os("PATH").unwrap_or_default();
    let mut found = BTreeMap::new();
    for folder in std::env::split_paths(&all) {
        let Ok(said) = Command::new(folder.join("git")).arg("version").output() else { continue };
        let path = std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&all)));
        found.entry(said.stdout).or_insert_with(|| path.unwrap());
    }
    found.into_values().collect()
}
