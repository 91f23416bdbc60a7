//! Git's own protocol, as far as records need it: who has which references, give me these commits,
//! change these references.
//!
//! Git's commands would do, and do where they must. But `git push` does not send a change that it
//! takes for done, and lists all references of the server each time, as `git ls-remote` does.

mod advert;
mod answer;
mod credential;
mod http;
mod limit;
mod packet;
mod remote;
mod stream;

pub(crate) use advert::Advert;
pub(crate) use credential::Login;
pub(crate) use http::Http;
pub(crate) use limit::{REFERENCES, too_large};
pub(crate) use packet::{Packet, line, next, put, put_delimiter, put_flush};
pub(crate) use remote::Remote;

use std::io;
use std::time::Duration;

use crate::error::{GitError, Trouble};

/// What is asked of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    /// To read.
    UploadPack,
    /// To change references.
    ReceivePack,
}

impl Service {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
        }
    }
}

/// What a server said first, and what it answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) advert: std::sync::Arc<Advert>,
    pub(crate) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: GitError,
    /// Whether the request may have been received and done.
    pub(crate) sent: bool,
}

impl Failure {
    /// The request cannot have been done.
    pub(crate) const fn before(error: GitError) -> Self {
        Self { error, sent: false }
    }

    /// Whether it is of no use to ask again: what is too large stays so.
    pub(crate) fn is_final(&self) -> bool {
        self.error.trouble() == Trouble::Damaged
    }

    /// The request may have been done.
    pub(crate) const fn after(error: GitError) -> Self {
        Self { error, sent: true }
    }
}

impl From<GitError> for Failure {
    fn from(error: GitError) -> Self {
        Self::before(error)
    }
}

/// What went wrong with a connection; `said` is what the other side said about it.
pub(crate) fn broken(what: &str, e: &io::Error, said: &str, timeout: Duration) -> GitError {
    match e.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => GitError::timed_out(what, timeout),
        io::ErrorKind::FileTooLarge => GitError::too_large(what, e),
        _ if !said.trim().is_empty() => GitError::said(what, said),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
            GitError::said(what, "error: the remote end hung up")
        }
        io::ErrorKind::InvalidData => GitError::new(Trouble::Failed, format!("{what}: {e}")),
        _ => {
            let message = format!("{what}: {e}; check that the server is running and reachable");
            GitError::new(Trouble::Unreachable, message)
        }
    }
}
