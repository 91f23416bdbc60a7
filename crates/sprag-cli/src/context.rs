//! [`Context`]: what every command is given.

use std::path::PathBuf;

use crate::code::Code;
use crate::config::Settings;
use crate::failure::Failure;
use crate::output::Output;

/// The settings and the way to answer.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) output: Output,
    /// The file that `--config` named.
    pub(crate) config: Option<PathBuf>,
    /// Never ask, even on a terminal.
    pub(crate) no_input: bool,
}

impl Context {
    /// Runs a command that waits for the store.
    pub(crate) fn block_on<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| Failure::new(Code::Bug, format!("cannot start: {error}")))?;
        runtime.block_on(work)
    }
}
