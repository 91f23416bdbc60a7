//! [`GitServer`]: a repository and the way to it.

use std::net::TcpStream;
use std::path::PathBuf;

use sprag::GitConfig;

use super::ssh::Sshd;
use super::{GitHttp, RefFormat, Repository};
use crate::keeper::Keeper;
use crate::redis_server::{Certificates, free_port};
use crate::support::eventually;

/// How a repository is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By its path.
    File,
    /// Through `git daemon`.
    Daemon,
    /// Through `git http-backend`.
    Http,
    /// The same over TLS, with an authority that only a setting of git knows.
    Https,
    /// Through an sshd.
    Ssh,
}

impl Transport {
    /// All but the one that needs an authority of its own.
    pub const ALL: [Self; 4] = [Self::File, Self::Daemon, Self::Http, Self::Ssh];
}

/// A repository and the way to it.
#[derive(Debug)]
pub struct GitServer {
    repository: Repository,
    way: Way,
}

#[derive(Debug)]
enum Way {
    File,
    Daemon(#[expect(dead_code, reason = "it runs as long as it is here")] Keeper, u16),
    Http(GitHttp),
    Https(GitHttp, Certificates),
    Ssh(Sshd),
}

impl GitServer {
    /// Starts a server on a fresh repository.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub async fn start(transport: Transport) -> Self {
        let repository = Repository::new(RefFormat::Files).expect("every git knows files");
        Self::serve(repository, transport).await
    }

    /// Serves a repository.
    ///
    /// # Panics
    ///
    /// If it cannot be served.
    pub async fn serve(repository: Repository, transport: Transport) -> Self {
        let way = match transport {
            Transport::File => Way::File,
            Transport::Http => Way::Http(GitHttp::start(&repository, None)),
            Transport::Https => {
                assert!(
                    std::env::var_os("GIT_SSL_CAINFO").is_none(),
                    "GIT_SSL_CAINFO overrules the setting that names the authority of this test: \
                     cargo xtask test takes it away, or say env -u GIT_SSL_CAINFO cargo test ..."
                );
                let certificates = Certificates::make();
                Way::Https(GitHttp::start(&repository, Some(&certificates)), certificates)
            }
            Transport::Ssh => Way::Ssh(Sshd::start(&repository).await),
            Transport::Daemon => {
                let (keeper, port) = daemon(&repository).await;
                Way::Daemon(keeper, port)
            }
        };
        Self { repository, way }
    }

    /// The repository behind it.
    pub const fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The HTTP server, if it is one.
    ///
    /// # Panics
    ///
    /// If it is none.
    pub fn http(&self) -> &GitHttp {
        match &self.way {
            Way::Http(http) | Way::Https(http, _) => http,
            other => panic!("{other:?} is no HTTP server"),
        }
    }

    /// What git calls it.
    pub fn git_url(&self) -> String {
        match &self.way {
            Way::File => format!("file://{}", self.repository.path().display()),
            Way::Daemon(_, port) => format!("git://127.0.0.1:{port}/locks.git"),
            Way::Http(http) | Way::Https(http, _) => http.url(),
            Way::Ssh(sshd) => sshd.url(&self.repository),
        }
    }

    /// What sprag calls it.
    pub fn url(&self) -> String {
        format!("git+{}", self.git_url())
    }

    /// What has to be in the environment of who wants to reach it.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        match &self.way {
            Way::Ssh(sshd) => vec![("GIT_SSH_COMMAND", sshd.command())],
            Way::Https(_, made) => vec![("GIT_SSL_CAINFO", made.authority().display().to_string())],
            _ => Vec::new(),
        }
    }

    /// What has to be set in a clone of who wants to reach it, as users may do.
    fn setting(&self) -> Option<(&'static str, String)> {
        match &self.way {
            Way::Ssh(sshd) => Some(("core.sshCommand", sshd.command())),
            Way::Https(_, made) => Some(("http.sslCAInfo", made.authority().display().to_string())),
            _ => None,
        }
    }

    /// A repository whose origin it is, with nothing in it.
    ///
    /// # Panics
    ///
    /// If there is no git, or no room for it.
    pub fn clone_named(&self, name: &str) -> PathBuf {
        let clone = self.repository.root().join(name);
        if clone.exists() {
            return clone;
        }
        let git = |args: &[&str]| {
            let mut command = self.repository.command();
            let done = command.arg("-C").arg(&clone).args(args).output();
            assert!(done.is_ok_and(|done| done.status.success()), "git {args:?}");
        };
        std::fs::create_dir(&clone).expect("there is room for a clone");
        git(&["init", "--quiet"]);
        git(&["remote", "add", "origin", &self.git_url()]);
        if let Some((name, value)) = self.setting() {
            git(&["config", name, &value]);
        }
        clone
    }

    /// How the store reaches it.
    ///
    /// # Panics
    ///
    /// If there is no git.
    pub fn config(&self) -> GitConfig {
        let config = match self.setting() {
            Some(_) => GitConfig::remote("origin", self.clone_named("clone")),
            None => GitConfig::url(self.git_url()),
        };
        config.program(self.repository.program())
    }
}

async fn daemon(repository: &Repository) -> (Keeper, u16) {
    let port = free_port();
    let root = repository.root().to_owned();
    let programs = PathBuf::from(repository.run(&["--exec-path"]));
    let mut keeper = Keeper::new(|_| {
        let mut command = vec![programs.join("git-daemon").into_os_string()];
        command.extend(
            [
                "--export-all",
                "--enable=receive-pack",
                "--reuseaddr",
                "--listen=127.0.0.1",
                // A race has more rivals than it would take at once.
                "--max-connections=0",
            ]
            .map(Into::into),
        );
        command.push(format!("--port={port}").into());
        command.push(format!("--base-path={}", root.display()).into());
        command.push(root.into_os_string());
        command
    });
    keeper.start();
    eventually("git daemon listens", || async { TcpStream::connect(("127.0.0.1", port)).is_ok() })
        .await;
    (keeper, port)
}
