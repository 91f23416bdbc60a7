//! `sprag run`: the command, its lock and its guardian.

pub(crate) mod guardian;
pub(crate) mod socket;

use crate::args::Run;
use crate::code::Code;
use crate::commands::Outcome;
use crate::context::Context;
use crate::failure::Failure;

/// Runs the command under the lock.
pub(crate) fn main(args: &Run, context: &Context) -> Outcome {
    let Context { settings, .. } = context;
    let text = format!("cannot run {:?} with {:?} yet", args.names.0, settings.kill_after.value);
    Err(Failure::new(Code::Bug, text))
}
