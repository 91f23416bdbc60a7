//! [`Git`]: runs the `git` program, the same way wherever we are started.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::{GitError, Trouble};
use crate::hidden_login::{HiddenLogin, PASSWORD, USER};
use crate::talk::Talk;
use crate::version::Version;
use crate::wire::Login;

/// What a user may have set for git that is about the connection. All else that begins with `GIT_`
/// is about a repository or an identity, which are not ours.
const KEPT: &[&str] = &[
    "GIT_ALLOW_PROTOCOL",
    "GIT_ASKPASS",
    "GIT_CONFIG_",
    "GIT_CURL_",
    "GIT_EXEC_PATH",
    "GIT_HTTP_",
    "GIT_PROXY_",
    "GIT_SSH",
    "GIT_SSL_",
];

/// The `git` program, where it works and how long it may take.
///
/// It never asks at a terminal, says everything in English, and reads nothing of its environment
/// but what is about the connection. What it started is ended with it when its time is up.
///
/// # Examples
///
/// ```
/// use sprag_git::{Git, Version};
///
/// assert!(Git::new().version()? >= Version::MINIMUM);
/// # Ok::<(), sprag_git::GitError>(())
/// ```
#[derive(Clone)]
pub struct Git {
    program: PathBuf,
    place: Option<Place>,
    variables: Vec<(&'static str, OsString)>,
    /// Settings of git for this run, which are no part of its command line.
    settings: Vec<(String, String)>,
    login: Option<Login>,
    pub(crate) timeout: Duration,
}

impl std::fmt::Debug for Git {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Settings may have a login in them.
        let mut shown = f.debug_struct("Git");
        shown.field("program", &self.program).field("place", &self.place).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
enum Place {
    Directory(PathBuf),
    Repository(PathBuf),
}

/// What git said before it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its exit code; `None` if it was killed.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained about; may hold secrets, unlike the messages of [`GitError`].
    pub stderr: String,
}

impl Output {
    /// Whether it ended well.
    pub fn is_ok(&self) -> bool {
        self.code == Some(0)
    }

    /// What it printed, without the line end.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }
}

impl Default for Git {
    fn default() -> Self {
        Self::new()
    }
}

impl Git {
    /// The `git` in the path, in the working directory, with a minute's time.
    pub fn new() -> Self {
        let timeout = Duration::from_secs(60);
        let (variables, settings) = (Vec::new(), Vec::new());
        Self { program: "git".into(), place: None, variables, settings, login: None, timeout }
    }

    /// Another program.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Works as if started in this directory.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.place = Some(Place::Directory(directory.into()));
        self
    }

    /// Works on this repository, its `.git` or bare directory, and looks for no other.
    #[must_use]
    pub fn repository(mut self, git_dir: impl Into<PathBuf>) -> Self {
        self.place = Some(Place::Repository(git_dir.into()));
        self
    }

    /// Sets a variable of its environment, such as `GIT_INDEX_FILE`, which it never inherits.
    #[must_use]
    pub fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// Keeps the login in the URL of a remote out of the command lines of git and of what git
    /// starts, which everybody on this machine can read: git goes to the URL without it, and asks
    /// for it as it asks a credential helper. One login is kept, that of the last URL that has one.
    #[must_use]
    pub fn hide_login(mut self, url: &str) -> Self {
        let Some(hidden) = HiddenLogin::of(url) else { return self };
        let bare = &hidden.url;
        self.settings.push((format!("url.{bare}.insteadOf"), url.to_owned()));
        self.settings.extend(hidden.settings());
        self.login = hidden.login;
        self
    }

    /// How long one command may take.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The directory it works in, if one was named.
    pub fn place(&self) -> Option<&Path> {
        match self.place.as_ref()? {
            Place::Directory(path) | Place::Repository(path) => Some(path),
        }
    }

    /// Which git this is.
    ///
    /// # Errors
    ///
    /// If there is none, or it is older than [`Version::MINIMUM`].
    pub fn version(&self) -> Result<Version, GitError> {
        let said = self.ok(["version"])?.text();
        let version = Version::read(&said).ok_or_else(|| {
            GitError::new(Trouble::Failed, format!("git version answered {said:?}: is it git?"))
        })?;
        if version < Version::MINIMUM {
            let message =
                format!("git {version} is too old: install {} or newer", Version::MINIMUM);
            return Err(GitError::new(Trouble::TooOld, message));
        }
        Ok(version)
    }

    /// Runs a command to its end, whatever that is.
    ///
    /// # Errors
    ///
    /// If it cannot be started or takes too long.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Output, GitError> {
        self.run_with(args, &[])
    }

    /// Runs a command with something to read.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_with<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &[u8],
    ) -> Result<Output, GitError> {
        let args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let what = name_of(&args);
        let mut talk = self.start(&mut self.command(&args))?;
        let broken = |e: io::Error| match e.kind() {
            io::ErrorKind::TimedOut => GitError::timed_out(&what, self.timeout),
            io::ErrorKind::FileTooLarge => GitError::new(Trouble::Damaged, format!("{what}: {e}")),
            _ => GitError::new(Trouble::Failed, format!("{what}: {e}")),
        };
        match talk.write_all(input) {
            // Why it did not want to read more is in its exit code.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            other => other.map_err(broken)?,
        }
        let code = talk.finish().map_err(broken)?.code();
        let mut stdout = Vec::new();
        talk.read_to_end(&mut stdout).map_err(broken)?;
        Ok(Output { code, stdout, stderr: talk.complaints() })
    }

    /// Runs a command that has to end well.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and if its exit code is not 0: what it said.
    pub fn ok<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Output, GitError> {
        self.ok_with(args, &[])
    }

    /// Runs a command with something to read that has to end well.
    ///
    /// # Errors
    ///
    /// As [`ok`](Self::ok).
    pub fn ok_with<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &[u8],
    ) -> Result<Output, GitError> {
        let args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let output = self.run_with(&args, input)?;
        if output.is_ok() {
            return Ok(output);
        }
        let said = if output.stderr.trim().is_empty() { output.text() } else { output.stderr };
        Err(GitError::said(&name_of(&args), &said))
    }

    /// The command, not yet started, with its surroundings in order.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.program);
        clean(&mut command);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        self.add_settings(&mut command);
        match &self.place {
            None => {}
            // Not by a change of directory: if it were missing, it would look as if git were.
            Some(Place::Directory(path)) => {
                command.arg("-C").arg(path);
            }
            Some(Place::Repository(path)) => {
                command.arg("--git-dir").arg(path);
            }
        }
        command.args(args);
        command
    }

    /// Behind those that the user has set in the same way.
    fn add_settings(&self, command: &mut Command) {
        if self.settings.is_empty() {
            return;
        }
        let set = std::env::var("GIT_CONFIG_COUNT").ok().and_then(|count| count.parse().ok());
        let first: usize = set.unwrap_or(0);
        for (at, (name, value)) in (first..).zip(&self.settings) {
            command.env(format!("GIT_CONFIG_KEY_{at}"), name);
            command.env(format!("GIT_CONFIG_VALUE_{at}"), value);
        }
        command.env("GIT_CONFIG_COUNT", (first + self.settings.len()).to_string());
        if let Some(login) = &self.login {
            command.env(USER, &login.user).env(PASSWORD, &login.password);
        }
    }

    pub(crate) fn start(&self, command: &mut Command) -> Result<Talk, GitError> {
        Talk::start(command, self.timeout).map_err(|e| {
            let program = command.get_program().to_string_lossy();
            match e.kind() {
                io::ErrorKind::NotFound => GitError::missing(&program),
                _ => GitError::new(Trouble::Failed, format!("cannot start {program}: {e}")),
            }
        })
    }
}

/// Makes a command say the same and ask nobody, wherever it is started.
pub(crate) fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("GIT_") && !KEPT.iter().any(|kept| text.starts_with(kept)) {
            command.env_remove(&name);
        }
    }
    command.env("LC_ALL", "C").env_remove("LANGUAGE");
    command.env("GIT_TERMINAL_PROMPT", "0").env("GCM_INTERACTIVE", "never");
    // Instead of ssh's BatchMode, which would need its command line: the user may have one.
    command.env("SSH_ASKPASS_REQUIRE", "force");
    if std::env::var_os("SSH_ASKPASS").is_none() {
        command.env("SSH_ASKPASS", "false");
    }
}

/// What a command is called in messages: `git push`.
fn name_of(args: &[OsString]) -> String {
    let mut args = args.iter().map(|arg| arg.to_string_lossy());
    while let Some(arg) = args.next() {
        match &*arg {
            "-c" | "-C" => drop(args.next()),
            arg if arg.starts_with('-') => {}
            arg => return format!("git {arg}"),
        }
    }
    "git".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_said_to_be_missing() {
        let error = Git::new().program("no-such-git").version().unwrap_err();
        assert_eq!(error.trouble(), Trouble::Missing);
        assert!(error.message().contains("install git"), "{error}");
    }

    #[test]
    fn an_old_git_is_told_what_is_new_enough() {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join("git");
        std::fs::write(&old, "#!/bin/sh\necho git version 2.17.1\n").unwrap();
        std::fs::set_permissions(&old, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let error = Git::new().program(old).version().unwrap_err();
        assert_eq!(error.trouble(), Trouble::TooOld);
        assert_eq!(error.message(), "git 2.17.1 is too old: install 2.30.0 or newer");
    }

    #[test]
    fn a_missing_directory_is_not_a_missing_git() {
        let error = Git::new().directory("/no/such").ok(["status"]).unwrap_err();
        assert_eq!(error.trouble(), Trouble::NotFound, "{error}");
    }

    #[test]
    fn input_goes_in_and_output_comes_out() {
        let hash = Git::new().ok_with(["hash-object", "--stdin"], b"hello\n").unwrap();
        assert_eq!(hash.text(), "ce013625030ba8dba906f756967f9e9ca394464a");
        let failed = Git::new().run(["cat-file", "--nonsense"]).unwrap();
        assert!(!failed.is_ok() && failed.stderr.contains("usage"), "{failed:?}");
    }

    #[test]
    fn a_command_is_named_by_its_verb() {
        let name = |args: &[&str]| name_of(&args.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(name(&["-c", "a=b", "--bare", "push", "x"]), "git push");
        assert_eq!(name(&[]), "git");
    }
}
