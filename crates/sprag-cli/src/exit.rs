//! [`Exit`]: the status of the process, one table for every command.

use std::process::ExitCode;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(u8);

impl Exit {
    /// Done.
    pub(crate) const OK: Self = Self(0);
    /// The negative answer of a question.
    pub(crate) const NO: Self = Self(1);
    /// Bad flags, names or values.
    pub(crate) const USAGE: Self = Self(64);
    /// The store cannot be reached or is too busy.
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// A bug of sprag.
    pub(crate) const BUG: Self = Self(70);
    /// Not acquired.
    pub(crate) const HELD: Self = Self(75);
    /// Lost while the command ran.
    pub(crate) const LOST: Self = Self(76);
    /// Not the holder, or not permitted.
    pub(crate) const DENIED: Self = Self(77);
    /// Bad URL or configuration.
    pub(crate) const CONFIG: Self = Self(78);
    /// Waiting would never end.
    pub(crate) const DEADLOCK: Self = Self(79);
    /// The command is there but cannot be executed.
    pub(crate) const NOT_EXECUTABLE: Self = Self(126);
    /// There is no such command.
    pub(crate) const NOT_FOUND: Self = Self(127);

    /// The child's own status, or one that the user asked for.
    pub(crate) const fn status(status: u8) -> Self {
        Self(status)
    }

    /// Ended by a signal: 128 and its number.
    pub(crate) const fn signal(number: u8) -> Self {
        Self(128 | number)
    }

    /// The number that the caller sees.
    pub(crate) const fn number(self) -> u8 {
        self.0
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

/// Every status with its name and what it means, as people read it.
pub(crate) const TABLE: &[(&str, &str, &str)] = &[
    ("0", "ok", "done; or skipped because `--if-held skip` said so"),
    ("1", "no", "the answer is no: `check` found no lock held, `demo` or `doctor` a broken claim"),
    ("64", "usage", "bad flags, names or durations; or the lock is held by this process tree"),
    ("69", "unavailable", "the store cannot be reached, is too busy or is full"),
    ("70", "bug", "an error inside sprag"),
    ("75", "held", "not acquired: somebody else holds it, or the waiting time is used up"),
    ("76", "lost", "the lock was lost while the command ran"),
    ("77", "denied", "not the holder, another token, or not permitted"),
    ("78", "config", "bad store URL, bad configuration file, or the store cannot do that"),
    ("79", "deadlock", "waiting would never end: the holders wait for each other"),
    ("126", "not executable", "the command of `run` is there but cannot be executed"),
    ("127", "not found", "there is no such command for `run`"),
    ("128+n", "signal", "the command died by signal n, or sprag was interrupted by it"),
    ("else", "", "what the command of `run` returned"),
];
