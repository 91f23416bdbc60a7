//! The guardian: kills the command's process group if the wrapper is gone.

use std::process::ExitCode;

use crate::exit::Exit;

/// The guardian's `main`.
pub(crate) fn main() -> ExitCode {
    Exit::BUG.into()
}
