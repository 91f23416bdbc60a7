//! [`Failure`]: why a chore did not succeed, and the exit code that says so.

#![expect(clippy::print_stderr, reason = "errors of a command go to stderr")]

use std::process::ExitCode;

/// The exit code for a command line that makes no sense (`EX_USAGE` of sysexits.h).
const USAGE: u8 = 64;

/// What every chore returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a chore did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line makes no sense.
    Usage(String),
    /// Something was tried and failed.
    Failed(String),
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// Tells the person at the terminal, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let (message, code) = match self {
            Self::Usage(message) => (message, ExitCode::from(USAGE)),
            Self::Failed(message) => (message, ExitCode::FAILURE),
        };
        eprintln!("xtask: {message}");
        code
    }
}
