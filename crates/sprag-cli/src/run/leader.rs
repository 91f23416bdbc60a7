//! The first process of the command, before it becomes that: it dies with its guardian, even where
//! `sprag run` is killed at the same moment and nobody is left to stop it.
//!
//! ```text
//!   guardian --order, stdin--> leader: PDEATHSIG, then exec
//!            <--nothing but the end, or why it could not--
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal,
};

use super::guardian::{command_of, spawn};
use super::wire::{Message, Order, Wire};

/// The status of a shell for a command that could not be started.
const NOT_STARTED: u8 = 127;

/// Starts the command below this process.
pub(super) fn start(order: &Order, stdin: OwnedFd) -> io::Result<Pid> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut leader = Command::new("/proc/self/exe");
    let guardian = getpid().as_raw_pid().to_string();
    leader.arg0("sprag").args([crate::LEADER, &guardian]).stdin(Stdio::from(OwnedFd::from(theirs)));
    let pid = spawn(leader.process_group(order.group))?;
    // Our copy of the other end goes with the description of the command.
    drop(leader);
    let mut wire = Wire::new(ours);
    let sent = wire.send_with(&Message::Start(Box::new(order.clone())), &[stdin.as_fd()]);
    match sent.and_then(|()| wire.wait()) {
        Ok(None) => Ok(pid),
        Ok(Some(Message::NotStarted(errno))) => Err(io::Error::from_raw_os_error(errno)),
        // It died before it became the command, which its end tells.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(pid),
        Ok(Some(_)) | Err(_) => {
            kill_process(pid, Signal::KILL).ok();
            Ok(pid)
        }
    }
}

/// What a leader does; its stdin is the wire, and its argument the guardian.
pub(crate) fn main() -> ExitCode {
    // Nobody is there to be told: the guardian is gone, and with it the lock.
    lead().unwrap_or(ExitCode::from(NOT_STARTED))
}

fn lead() -> io::Result<ExitCode> {
    let mut wire = Wire::new(UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?));
    let Some(Message::Start(order)) = wire.wait()? else { return Ok(ExitCode::FAILURE) };
    if let Some(stdin) = wire.descriptor() {
        rustix::stdio::dup2_stdin(&stdin)?;
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let guardian = getppid().map(|parent| parent.as_raw_pid().to_string());
    if guardian != std::env::args().nth(2) {
        // It died before that, and no signal will come.
        return Ok(ExitCode::FAILURE);
    }
    let error = match command_of(&order) {
        Some(mut command) => command.exec(),
        None => Errno::NOENT.into(),
    };
    wire.send(&Message::NotStarted(error.raw_os_error().unwrap_or(0)))?;
    Ok(ExitCode::from(NOT_STARTED))
}
