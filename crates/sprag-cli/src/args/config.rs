//! `sprag config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Show the settings, or trust the sprag.toml of a project
#[derive(Args, Debug)]
pub(crate) struct Config {
    /// Show where each setting comes from
    #[arg(long)]
    pub(crate) show_origin: bool,
    #[command(subcommand)]
    pub(crate) trust: Option<Trust>,
}

/// What to say about a file.
#[derive(Debug, Subcommand)]
pub(crate) enum Trust {
    /// Let everything in a sprag.toml count, as long as it stays as it is
    Trust(TrustedFile),
    /// Take that back
    Untrust(TrustedFile),
}

/// The file.
#[derive(Args, Debug)]
pub(crate) struct TrustedFile {
    /// The file [default: the sprag.toml of this directory or above it]
    pub(crate) file: Option<PathBuf>,
}
