//! [`GitError`]: what went wrong with git, told apart by its words.

use std::fmt;
use std::time::Duration;

use sprag_core::{Error, ErrorKind, Operation};
use sprag_ledger::in_short;

use crate::redact::redact;

/// The name of this store in errors and metrics.
pub(crate) const STORE: &str = "git";
/// How many characters a message has at most.
const LONGEST: usize = 1_000;

/// What went wrong with git. The message says it and what to do; it holds no secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitError {
    trouble: Trouble,
    message: String,
}

/// What kind of trouble git is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trouble {
    /// There is no `git` program.
    Missing,
    /// The `git` program is older than [`Version::MINIMUM`](crate::Version::MINIMUM).
    TooOld,
    /// Git took too long and was ended.
    TimedOut,
    /// The server does not know us, or we do not know the server.
    AuthRefused,
    /// There is no such repository or remote.
    NotFound,
    /// The server cannot be reached or broke off.
    Unreachable,
    /// The server took the push and then refused it by a rule of its own.
    HookRefused,
    /// We may read but not write, or not even read.
    Forbidden,
    /// A disk is full, here or there.
    DiskFull,
    /// Something else holds git's own lock on a file or a reference.
    Locked,
    /// The server cannot do what was asked.
    Unsupported,
    /// The other side sends more than we take, or what it has is damaged.
    Damaged,
    /// Anything else.
    Failed,
}

/// What git says, what it means, and what to do about it. The first that matches counts.
const WORDS: &[(&[&str], Trouble, &str)] = &[
    (
        &["no space left on device", "disk quota exceeded", "file too large"],
        Trouble::DiskFull,
        "make room on the disk",
    ),
    (
        &["detected dubious ownership"],
        Trouble::Forbidden,
        "the repository belongs to another user: git config --global --add safe.directory PATH",
    ),
    (
        &["host key verification failed", "authenticity of host"],
        Trouble::AuthRefused,
        "the host is not known: connect to it once with ssh and accept its key",
    ),
    (
        &[
            "authentication failed",
            "could not read username",
            "could not read password",
            "permission denied (",
            "unable to read askpass",
            "returned error: 401",
            "too many authentication failures",
        ],
        Trouble::AuthRefused,
        "check the user, the key or the token; ssh -T HOST or git credential fill shows them",
    ),
    (
        &["returned error: 403", "write access to repository not granted", "access denied"],
        Trouble::Forbidden,
        "ask for write access to the repository",
    ),
    (
        &[
            "hook declined",
            "protected branch",
            "deletion prohibited",
            "gh006",
            "gh013",
            "deny updating a hidden ref",
            "denied by",
        ],
        Trouble::HookRefused,
        "allow pushes to refs/sprag/ on the server, or use another repository for locks",
    ),
    (
        &[
            "does not appear to be a git repository",
            "not a git repository",
            "repository not found",
            "no such remote",
            "returned error: 404",
            "repository not exported",
            "no such file or directory",
            "cannot change to",
        ],
        Trouble::NotFound,
        "check the path or URL; git remote -v lists the remotes of a repository",
    ),
    (
        &[".lock': file exists", "cannot lock ref", "unable to lock", "failed to update ref"],
        Trouble::Locked,
        "another git may be at work there; if none is, remove the stale .lock file",
    ),
    (
        &[
            "unable to create temporary",
            "insufficient permission",
            "permission denied",
            "read-only file system",
            "operation not permitted",
        ],
        Trouble::Forbidden,
        "ask for write access to the repository",
    ),
    (
        &[
            "not our ref",
            "possible repository corruption",
            "bad object",
            "is corrupt",
            "missing blob",
            "missing tree",
        ],
        Trouble::Damaged,
        "an object of the repository is missing or damaged: git fsck shows which",
    ),
    (
        &["hash algorithm", "mismatched algorithms"],
        Trouble::Unsupported,
        "the repository names its objects by another hash",
    ),
    (
        &["unpacker error", "unpack failed", "index-pack abnormal exit", "unpack-objects"],
        Trouble::Failed,
        "see the server's log; its disk may be full or not writable",
    ),
    (
        &["does not support --atomic", "does not support atomic"],
        Trouble::Unsupported,
        "take one lock at a time, or use a server that knows atomic pushes",
    ),
    (
        &[
            "could not resolve host",
            "connection refused",
            "connection timed out",
            "connection reset",
            "connection closed",
            "couldn't connect",
            "failed to connect",
            "network is unreachable",
            "no route to host",
            "unable to connect",
            "hung up",
            "early eof",
            "unexpected disconnect",
            "returned error: 5",
            "empty reply",
            "broken pipe",
            "rpc failed",
            "unable to access",
            "ssl",
        ],
        Trouble::Unreachable,
        "check that the server is running and reachable",
    ),
];

impl GitError {
    /// An error in words of our own.
    pub(crate) fn new(trouble: Trouble, message: impl AsRef<str>) -> Self {
        Self { trouble, message: in_short(&redact(message.as_ref()), LONGEST) }
    }

    /// The other side sends more than we take.
    pub(crate) fn too_large(what: &str, why: &dyn fmt::Display) -> Self {
        let message = format!(
            "{what}: the answer is too large: {why}; check that the URL is the right repository, \
             and that nothing but sprag writes below refs/sprag/"
        );
        Self::new(Trouble::Damaged, message)
    }

    /// There is no such program.
    pub(crate) fn missing(program: &str) -> Self {
        let message = format!("there is no {program}: install git, such as by apt-get install git");
        Self::new(Trouble::Missing, message)
    }

    /// Git took too long.
    pub(crate) fn timed_out(what: &str, after: Duration) -> Self {
        let message = format!("{what} did not end within {after:?}: check the network");
        Self::new(Trouble::TimedOut, message)
    }

    /// What git's own words mean; `what` is what it was doing.
    pub(crate) fn said(what: &str, said: &str) -> Self {
        let lower = said.to_ascii_lowercase();
        let found = WORDS.iter().find(|(words, ..)| words.iter().any(|word| lower.contains(word)));
        let words = gist(said);
        let (trouble, message) = match found {
            Some((_, trouble, fix)) => (*trouble, format!("{what}: {words}; {fix}")),
            None if words.is_empty() => (Trouble::Failed, format!("{what} failed without a word")),
            None => (Trouble::Failed, format!("{what}: {words}")),
        };
        Self::new(trouble, message)
    }

    /// What kind of trouble it is.
    pub const fn trouble(&self) -> Trouble {
        self.trouble
    }

    /// What happened and what to do.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// The lines that matter, on one line: what git calls fatal or an error, else the last ones.
fn gist(said: &str) -> String {
    let strip = |line: &str| {
        let line = line.trim().trim_start_matches("remote: ").trim();
        line.trim_start_matches("fatal: ").trim_start_matches("error: ").to_owned()
    };
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let is_error = |line: &&&str| line.contains("fatal: ") || line.contains("error: ");
    let errors: Vec<String> = lines.iter().filter(is_error).map(|line| strip(line)).collect();
    let chosen = if errors.is_empty() {
        lines.iter().rev().take(2).rev().map(|line| strip(line)).collect()
    } else {
        errors
    };
    in_short(&chosen.into_iter().take(3).collect::<Vec<_>>().join("; "), 400)
}

impl fmt::Display for GitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for GitError {}

impl From<GitError> for Error {
    fn from(error: GitError) -> Self {
        let kind = match error.trouble {
            Trouble::Missing
            | Trouble::TooOld
            | Trouble::AuthRefused
            | Trouble::NotFound
            | Trouble::HookRefused
            | Trouble::Forbidden => ErrorKind::Refused,
            Trouble::DiskFull => ErrorKind::StoreFull,
            Trouble::Unsupported => ErrorKind::Unsupported,
            Trouble::Locked => ErrorKind::Busy,
            Trouble::Damaged => ErrorKind::Corrupt,
            Trouble::TimedOut | Trouble::Unreachable | Trouble::Failed => ErrorKind::Unavailable,
        };
        Self::new(kind, Operation::Open, error.message).at(STORE)
    }
}

#[cfg(test)]
mod tests {
    use super::{GitError, Trouble};

    #[test]
    fn what_a_server_says_moves_no_cursor_and_fills_no_screen() {
        let said = format!("remote: \x1b[2J\x1b]0;t\x07{}\nerror: a\rb\u{9b}1m", "y".repeat(9_000));
        let error = GitError::said("git push", &said);
        assert_eq!(error.to_string(), r"git push: a\rb\u{9b}1m");
        for text in [said.clone(), format!("error: {said}"), said.replace('\n', "")] {
            let error = GitError::said("git push", &text).to_string();
            assert!(!error.contains(char::is_control) && error.len() < 1_000, "{error:?}");
        }
        let error = GitError::new(Trouble::Failed, said).to_string();
        assert!(!error.contains(char::is_control) && error.chars().count() <= 1_000, "{error:?}");
    }

    #[test]
    fn what_git_says_is_told_apart() {
        for (said, trouble) in [
            ("fatal: '/x' does not appear to be a git repository", Trouble::NotFound),
            ("git@host: Permission denied (publickey).", Trouble::AuthRefused),
            (
                "fatal: could not read Username for 'https://h': terminal prompts disabled",
                Trouble::AuthRefused,
            ),
            (
                "fatal: unable to access 'https://h/': Could not resolve host: h",
                Trouble::Unreachable,
            ),
            (
                "fatal: unable to access 'http://h/': The requested URL returned error: 403",
                Trouble::Forbidden,
            ),
            (
                "error: RPC failed; HTTP 500\nfatal: the remote end hung up unexpectedly",
                Trouble::Unreachable,
            ),
            (
                "fatal: the receiving end does not support --atomic push\nfatal: the remote end hung \
                 up unexpectedly",
                Trouble::Unsupported,
            ),
            ("fatal: write error: No space left on device", Trouble::DiskFull),
            ("pre-receive hook declined", Trouble::HookRefused),
            ("error: Unable to create '/x/refs/a.lock': File exists.", Trouble::Locked),
            (
                "remote: fatal: Unable to create temporary file '/x': Permission denied",
                Trouble::Forbidden,
            ),
            ("fatal: detected dubious ownership in repository at '/x'", Trouble::Forbidden),
            ("whatever", Trouble::Failed),
            ("", Trouble::Failed),
        ] {
            assert_eq!(GitError::said("git push", said).trouble(), trouble, "{said}");
        }
    }

    #[test]
    fn messages_are_one_line_without_secrets() {
        let said = "hint: x\nfatal: unable to access 'https://me:hunter2@h/': Connection refused\n";
        let error = GitError::said("git push", said);
        assert_eq!(
            error.to_string(),
            "git push: unable to access 'https://***@h/': Connection refused; \
             check that the server is running and reachable"
        );
    }
}
