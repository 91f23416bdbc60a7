//! [`Repository`]: a bare repository in a temporary folder.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::scratch_folder;

/// How a repository keeps its references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefFormat {
    /// A file for each, and one for many.
    Files,
    /// Tables, from git 2.45 on.
    Reftable,
}

/// A bare repository in a temporary folder, gone with the test.
#[derive(Debug)]
pub struct Repository {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Repository {
    /// Makes one with the `git` in the path; `None` if that git cannot.
    ///
    /// # Panics
    ///
    /// If there is no git, or no room for temporary files.
    pub fn new(format: RefFormat) -> Option<Self> {
        Self::with_program("git", format, &[])
    }

    /// Makes one with another git and more options for `git init`; `None` if that git cannot.
    ///
    /// # Panics
    ///
    /// If there is no such git, or no room for temporary files.
    pub fn with_program(
        program: impl Into<PathBuf>,
        format: RefFormat,
        options: &[&str],
    ) -> Option<Self> {
        let folder = tempfile::tempdir_in(scratch_folder());
        let folder = folder.expect("there is room for temporary files");
        let repository = Self { folder, program: program.into() };
        let mut init = repository.command();
        init.args(["init", "--quiet", "--bare"]).args(options);
        if format == RefFormat::Reftable {
            init.arg("--ref-format=reftable");
        }
        let made = init.arg(repository.path()).output().unwrap_or_else(|e| {
            panic!("git is missing ({e}); please type:\n  sudo apt-get install -y git")
        });
        if !made.status.success() {
            return None;
        }
        // Whoever reaches it over HTTP or the git protocol may push.
        repository.run(&["config", "http.receivepack", "true"]);
        repository.run(&["config", "receive.autogc", "false"]);
        Some(repository)
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("locks.git")
    }

    /// The folder that it is in.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// The git that made it.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Its git, free of what the test's own surroundings say about repositories.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GIT_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs git on it, as anybody else would, and gives back what it prints.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn run(&self, args: &[&str]) -> String {
        let mut command = self.command();
        let output = command.arg("--git-dir").arg(self.path()).args(args).output();
        let output = output.expect("git was there before");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {args:?}: {said}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Makes it run a script at certain moments, such as `pre-receive`.
    ///
    /// # Panics
    ///
    /// If the script cannot be written.
    pub fn hook(&self, name: &str, script: &str) {
        let hook = self.path().join("hooks").join(name);
        fs::create_dir_all(hook.parent().expect("it is in a folder")).expect("a folder for hooks");
        fs::write(&hook, format!("#!/bin/sh\n{script}\n")).expect("a hook can be written");
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("it can be run");
    }

    /// Does without a hook from now on.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn no_hook(&self, name: &str) {
        fs::remove_file(self.path().join("hooks").join(name)).expect("there is a hook");
    }

    /// Leaves a lock file behind, as a git does that is killed while it changes the reference.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn stale_lock(&self, reference: &str) -> PathBuf {
        let lock = self.path().join(format!("{reference}.lock"));
        fs::create_dir_all(lock.parent().expect("it is in a folder")).expect("a folder");
        fs::write(&lock, "").expect("a lock file can be written");
        lock
    }
}

/// The git programs of this machine, each version once.
///
/// # Panics
///
/// If there is none.
pub fn programs() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for folder in std::env::split_paths(&path) {
        let program = folder.join("git");
        let Ok(output) = Command::new(&program).arg("version").output() else { continue };
        let version = String::from_utf8_lossy(&output.stdout).into_owned();
        if found.iter().all(|(known, _)| *known != version) {
            found.push((version, program));
        }
    }
    assert!(!found.is_empty(), "git is missing; please type:\n  sudo apt-get install -y git");
    found.into_iter().map(|(_, program)| program).collect()
}
