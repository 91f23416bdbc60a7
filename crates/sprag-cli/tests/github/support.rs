//! [`Hub`]: a GitHub on this machine, and users with the `sprag` command.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use sprag_github_sim::{IssueState, Limits, Permission, Setup, Simulator};
use tempfile::TempDir;

use crate::shared::Answer;

pub(crate) const REPO: &str = "acme/app";
/// Every issue of these tests has it, if it is one for workers.
pub(crate) const LABEL: &str = "agent";

/// A GitHub with one repository, and homes for users of it.
pub(crate) struct Hub {
    pub(crate) github: Simulator,
    folder: TempDir,
}

impl Hub {
    pub(crate) fn new() -> Self {
        let github = Setup::new(7).speed(1).start();
        github.limits(Limits::GENEROUS);
        github.add_repo(REPO);
        github.add_token("token-of-octocat", "octocat");
        github.add_collaborator(REPO, "octocat", Permission::Write);
        let hub = Self { github, folder: tempfile::tempdir().unwrap() };
        hub.rules("");
        hub
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The rules of everybody, and more below `[work.github]`.
    pub(crate) fn rules(&self, more: &str) {
        let text = format!(
            "[work]\nsource = \"github\"\nrun_ttl = \"4s\"\n[work.github]\nrepo = \"{REPO}\"\n\
             labels = [\"{LABEL}\"]\napi = \"{}\"\nlag = \"1s\"\nstatus_ttl = \"200ms\"\n\
             limits = false\n{more}\n",
            self.github.url()
        );
        std::fs::write(self.path("sprag.toml"), text).unwrap();
    }

    pub(crate) fn add_issue(&self, title: &str) -> u64 {
        let number = self.github.add_issue(REPO, title);
        self.github.label_issue(REPO, number, LABEL);
        number
    }

    pub(crate) fn issue(&self, number: u64) -> IssueState {
        self.github.state().repo(REPO).unwrap().issue(number).unwrap().now().clone()
    }

    pub(crate) fn comments(&self, number: u64) -> Vec<String> {
        let state = self.github.state();
        let comments = state.repo(REPO).unwrap().comments(number);
        comments.iter().filter_map(|comment| Some(comment.now()?.body.clone())).collect()
    }

    /// The address of its locks.
    pub(crate) fn store(&self) -> String {
        format!("github://{REPO}?api={}&limits=false&poll_min_ms=50", self.github.url())
    }

    /// `sprag` on a machine of its own, by the name of its home.
    pub(crate) fn command(&self, machine: &str, args: &[&str]) -> Command {
        let home = self.path(machine);
        std::fs::create_dir_all(&home).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sprag"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &home)
            .env("TMPDIR", &home)
            .env("USER", "tester")
            // The simulator is not github.com, so a token for that is not sent to it.
            .env("GH_ENTERPRISE_TOKEN", "token-of-octocat")
            .env("SPRAG_CONFIG", self.path("sprag.toml"))
            .current_dir(home)
            .args(args)
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn sprag(&self, args: &[&str]) -> Answer {
        Answer::of(self.command("a", args).output().unwrap())
    }

    pub(crate) fn work(&self, args: &[&str]) -> Answer {
        self.sprag(&[&["work"], args].concat())
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let answer = self.work(&[&["--json"], args].concat()).exits(0);
        serde_json::from_str(&answer.out).unwrap()
    }

    pub(crate) fn start(&self, args: &[&str]) -> Child {
        let mut command = self.command("a", args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}
