//! [`Ward`]: the guardian, as `sprag run` sees it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::event::{Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

use super::tree;
use super::wire::{Message, Order, Wire};

/// How often what does not die is killed again.
const AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// A guardian that was started, and the wire to it.
#[derive(Debug)]
pub(crate) struct Ward {
    process: Child,
    pub(crate) wire: Wire,
}

impl Ward {
    /// Starts a guardian. It waits for an order, and ends if there comes none.
    ///
    /// In a process group of its own: who kills the group of `sprag run`, as timeout(1) does,
    /// must not kill the guardian with it.
    pub(crate) fn start(label: &str) -> io::Result<Self> {
        // If the guardian is killed, what it guarded becomes ours.
        set_child_subreaper(Some(getpid()))?;
        let (ours, theirs) = UnixStream::pair()?;
        let process = Command::new("/proc/self/exe")
            .arg0("sprag")
            .args([crate::GUARDIAN, label])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .process_group(0)
            .spawn()?;
        Ok(Self { process, wire: Wire::new(ours) })
    }

    /// Has the command started, with our stdin; the lifeline goes along.
    pub(crate) fn command(&mut self, order: Order, lifeline: Option<OwnedFd>) -> io::Result<()> {
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![rustix::stdio::stdin()];
        descriptors.extend(lifeline.as_ref().map(AsFd::as_fd));
        self.wire.send_with(&Message::Start(Box::new(order)), &descriptors)
    }

    /// Kills everything below the guardian, if it does not do so itself.
    pub(crate) fn kill_below(&self) {
        let guardian = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        if let Some(guardian) = guardian {
            tree::send(&tree::below(guardian), Signal::KILL);
            // It may be stopped, and could not tell that all is over.
            kill_process(guardian, Signal::CONT).ok();
        }
    }

    /// Waits for the guardian's end, which is near: what was taken was given back.
    pub(crate) fn end(&mut self) {
        drop(self.wire.try_send(&Message::Done));
        self.wire.hang_up();
        // An error means that there is nobody to wait for.
        drop(self.process.wait());
    }

    /// Ends all that the guardian guarded, because it was killed.
    pub(crate) fn end_all(&mut self) {
        self.end();
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Err(_) => return,
                Ok(None) => {
                    tree::send(&tree::below(getpid()), Signal::KILL);
                    // A pause: their ends are not told to us.
                    poll(&mut [], Some(&AGAIN)).ok();
                }
            }
        }
    }
}

impl AsFd for Ward {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}
