//! Stores where a lock is free before the command that ran under it is dead.

use crate::code::Code;
use crate::failure::Failure;
use crate::store::Opened;

/// Refuses a store whose locks end with the connection of this process, if nothing that a guardian
/// has can keep them: when the connection ends, the next one enters, and the command is only then
/// being stopped.
pub(crate) fn refuse(opened: &Opened) -> Result<(), Failure> {
    if opened.capability().detached || opened.client().lifeline().is_some() {
        return Ok(());
    }
    let message = "on this store the next command may enter while this one is still being stopped";
    Err(Failure::new(Code::Unsupported, message)
        .fact("why", "its locks end with the connection: when sprag is killed or hangs, or the")
        .fact("", "server ends the session, they are free before the command is dead")
        .fact("store", opened.shown.clone())
        .advice("use leases, which outlast the connection: the same URL without mode=advisory")
        .hint("accept it", "sprag run --accept-overlap ..."))
}
