//! [`Shop`]: a remote, clones of it, and `sprag work` in them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use sprag::clock::{BootClock, Clock};
use tempfile::TempDir;

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

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// Waits until a file is there.
#[track_caller]
pub(crate) fn wait_for(path: &Path) {
    wait_until(|| path.exists(), &path.display().to_string());
}

#[track_caller]
pub(crate) fn wait_until(mut reached: impl FnMut() -> bool, what: &str) {
    let limit = BootClock.now().plus(Duration::from_secs(60));
    while !reached() {
        assert!(BootClock.now() < limit, "{what} does not come");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
