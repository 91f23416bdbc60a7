//! [`GitConfig`]: which remote the locks are on, and how patient we are.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sprag_ledger::Abandoned;

use crate::cli::Cli;
use crate::error::{GitError, Trouble};
use crate::git::Git;
use crate::hidden_login::HiddenLogin;
use crate::native::{Native, Wire};
use crate::object::Format;
use crate::url::GitUrl;
use crate::wire::{Http, Remote};

/// What a user may tell git about HTTP that only git can do.
const HTTP_SETTINGS: &[&str] = &[
    "http.proxy",
    "http.extraheader",
    "http.sslcainfo",
    "http.sslcapath",
    "http.sslcert",
    "http.sslkey",
    "http.sslverify",
    "http.sslbackend",
    "http.cookiefile",
    "http.curloptresolve",
    "http.delegation",
    "http.emptyauth",
    "http.pinnedpubkey",
];

/// Which remote the locks are on, and how patient we are.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sprag_git::GitConfig;
///
/// let config = GitConfig::url("https://me:hunter2@git.example/locks.git")
///     .timeout(Duration::from_secs(10));
/// assert!(!format!("{config:?}").contains("hunter2"));
/// ```
#[derive(Clone)]
pub struct GitConfig {
    place: Place,
    git: Git,
    native: bool,
    pub(crate) abandoned: Abandoned,
    pub(crate) poll: RangeInclusive<Duration>,
    pub(crate) observations: Option<PathBuf>,
}

#[derive(Clone)]
enum Place {
    Url(String),
    /// A remote of the repository in a directory.
    Named(String, PathBuf),
}

impl std::fmt::Debug for GitConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GitConfig").field("remote", &self.shown()).finish_non_exhaustive()
    }
}

impl GitConfig {
    /// The repository at a URL, in any form that git takes.
    pub fn url(url: impl Into<String>) -> Self {
        Self::at(Place::Url(url.into()))
    }

    /// The remote that is called so in the repository at `directory`, such as `origin`.
    pub fn remote(name: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self::at(Place::Named(name.into(), directory.into()))
    }

    fn at(place: Place) -> Self {
        let git = Git::new().timeout(Duration::from_secs(30));
        Self {
            place,
            git,
            native: true,
            abandoned: Abandoned::default(),
            poll: Duration::from_secs(1)..=Duration::from_secs(16),
            observations: None,
        }
    }

    /// Another `git` program than the one in the path.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.git = self.git.program(program);
        self
    }

    /// How long one request may take; 30 s by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.git = self.git.timeout(timeout);
        self
    }

    /// Lets `git push` and `git fetch` do all the talking. That is done anyway where settings of
    /// git ask for it, such as a proxy; it is slower.
    #[must_use]
    pub const fn git_talks(mut self, yes: bool) -> Self {
        self.native = !yes;
        self
    }

    /// What becomes of a lock whose holder gives no sign of life any more; it stays by default,
    /// until somebody takes it over as stale.
    #[must_use]
    pub const fn abandoned(mut self, abandoned: Abandoned) -> Self {
        self.abandoned = abandoned;
        self
    }

    /// How often a lock is looked at while it is waited for: from the first to the last, the
    /// longer the more seldom; 1 to 16 s by default.
    #[must_use]
    pub const fn poll(mut self, poll: RangeInclusive<Duration>) -> Self {
        self.poll = poll;
        self
    }

    /// A folder for what was seen of others, so that short commands can build on earlier ones. It
    /// has to be there.
    #[must_use]
    pub fn observed_in(mut self, folder: impl Into<PathBuf>) -> Self {
        let identity = match &self.place {
            Place::Url(url) => url.clone(),
            Place::Named(name, directory) => {
                let directory = directory.canonicalize().unwrap_or_else(|_| directory.clone());
                format!("{name} {}", directory.display())
            }
        };
        let digest = Format::Sha256.digest(identity.as_bytes());
        self.observations = Some(folder.into().join(format!("git-{}.json", &digest[..16])));
        self
    }

    /// Whether the URL is one that git would take.
    pub fn is_understood(&self) -> bool {
        match &self.place {
            Place::Url(url) => GitUrl::parse(url).is_some(),
            Place::Named(..) => true,
        }
    }

    /// The remote as people may see it.
    pub(crate) fn shown(&self) -> String {
        match &self.place {
            Place::Url(url) => crate::redact::redact(url),
            Place::Named(name, _) => name.clone(),
        }
    }

    pub(crate) const fn git(&self) -> &Git {
        &self.git
    }

    /// Finds out where the remote is and who has to talk to it.
    pub(crate) fn wire(&self) -> Result<Box<dyn Wire>, GitError> {
        let (git, url, config) = self.resolve()?;
        // No command line shows a password.
        let git = git.hide_login(&url);
        let bare = HiddenLogin::of(&url).map_or_else(|| url.clone(), |hidden| hidden.url);
        let cli = || Box::new(Cli::new(git.clone(), bare.clone(), config.clone())) as Box<dyn Wire>;
        let native = |remote| Ok(Box::new(Native { remote }) as Box<dyn Wire>);
        if !self.native {
            return Ok(cli());
        }
        let parsed = GitUrl::parse(&url).ok_or_else(|| {
            GitError::new(Trouble::NotFound, format!("{url:?} is no URL of a git repository"))
        })?;
        match parsed {
            GitUrl::Local(path) => native(Remote::Local(self.git.clone(), path)),
            GitUrl::Ssh(url_parts) => match ssh_command(&git)? {
                SshCommand::Plain => native(Remote::Ssh { git, url: url_parts, command: None }),
                SshCommand::Own(own) => {
                    native(Remote::Ssh { git, url: url_parts, command: Some(own) })
                }
                SshCommand::Strange => Ok(cli()),
            },
            GitUrl::Daemon { .. } if set("GIT_PROXY_COMMAND") => Ok(cli()),
            GitUrl::Daemon { host, port, path } => native(Remote::Daemon { git, host, port, path }),
            GitUrl::Http(_) if has_http_settings(&git, &bare)? => Ok(cli()),
            GitUrl::Http(http) => native(Remote::Http(Http::new(git, http)?)),
            GitUrl::Other => Ok(cli()),
        }
    }

    /// The git that knows the settings, the URL as it is after them, and where they are from.
    fn resolve(&self) -> Result<(Git, String, Option<PathBuf>), GitError> {
        match &self.place {
            Place::Url(url) => {
                let is_here = matches!(GitUrl::parse(url), Some(GitUrl::Local(_)));
                // A URL with a login is meant as it stands, and no command may show it.
                let url = if is_here || HiddenLogin::of(url).is_some() {
                    url.clone()
                } else {
                    self.git.ok(["ls-remote", "--get-url", "--", url])?.text()
                };
                Ok((self.git.clone(), url, None))
            }
            Place::Named(name, directory) => self.find(name, directory),
        }
    }

    fn find(
        &self,
        name: &str,
        directory: &Path,
    ) -> Result<(Git, String, Option<PathBuf>), GitError> {
        let git = self.git.clone().directory(directory);
        let inside = git.run(["rev-parse", "--path-format=absolute", "--git-common-dir"])?;
        if !inside.is_ok() {
            let message = format!(
                "{} is in no git repository, so it has no remote {name:?}: go to one, or name the \
                 remote by its URL, such as git+ssh://git@HOST/locks.git",
                directory.display()
            );
            return Err(GitError::new(Trouble::NotFound, message));
        }
        let common = PathBuf::from(inside.text());
        let url = git.run(["remote", "get-url", "--push", name])?;
        if !url.is_ok() {
            let known = git.ok(["remote"])?.text().replace('\n', " ");
            let known = if known.is_empty() { "none".into() } else { known };
            let message = format!(
                "this repository has no remote {name:?} (there is: {known}): add one with git \
                 remote add {name} URL"
            );
            return Err(GitError::new(Trouble::NotFound, message));
        }
        let mut url = url.text();
        if let Some(GitUrl::Local(path)) = GitUrl::parse(&url)
            && path.is_relative()
        {
            let top = git.ok(["rev-parse", "--show-toplevel"]);
            let top = top.map_or_else(|_| common.clone(), |top| top.text().into());
            url = top.join(path).to_string_lossy().into_owned();
        }
        Ok((git, url, Some(common.join("config"))))
    }
}

enum SshCommand {
    Plain,
    Own(String),
    /// Not OpenSSH: only git knows how to call it.
    Strange,
}

fn ssh_command(git: &Git) -> Result<SshCommand, GitError> {
    if set("GIT_SSH") || set("GIT_SSH_VARIANT") {
        return Ok(SshCommand::Strange);
    }
    let own = match std::env::var("GIT_SSH_COMMAND") {
        Ok(own) => own,
        Err(_) => git.run(["config", "core.sshCommand"])?.text(),
    };
    let program = own.split_whitespace().next().unwrap_or_default();
    Ok(match program.rsplit('/').next() {
        Some("") | None => SshCommand::Plain,
        Some("ssh") => SshCommand::Own(own),
        Some(_) => SshCommand::Strange,
    })
}

fn has_http_settings(git: &Git, url: &str) -> Result<bool, GitError> {
    let from_outside = ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    let of_tls = ["GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_NO_VERIFY", "GIT_SSL_CERT"];
    let is_secure = url.starts_with("https:");
    if from_outside.into_iter().any(set) || is_secure && of_tls.into_iter().any(set) {
        return Ok(true);
    }
    let settings = git.run(["config", "--get-urlmatch", "http", url])?.text();
    let is_ours = |line: &str| {
        let name = line.split_whitespace().next().unwrap_or_default();
        HTTP_SETTINGS.contains(&name) && (is_secure || !name.starts_with("http.ssl"))
    };
    Ok(settings.lines().any(is_ours))
}

fn set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}
