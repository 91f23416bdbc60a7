//! `sprag completions`.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

/// Print a script that completes commands, flags, lock names and stores
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// A shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// source <(sprag completions bash)
    Bash,
    /// source <(sprag completions zsh)
    Zsh,
    /// sprag completions fish | source
    Fish,
}

/// What the scripts ask: how could the last word go on?
#[derive(Args, Debug)]
pub(crate) struct Complete {
    /// The words so far, without `sprag`; the last one is to be completed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}
