//! [`Talk`]: a process that is talked to, for a limited time, and ended with all that it started.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use sprag_core::clock::{BootClock, Clock, Moment};

use crate::wire::too_large;

/// How much of what a process complains about is kept.
const COMPLAINTS: usize = 64 << 10;
/// No process of ours prints more.
const OUTPUT: usize = 64 << 20;
/// How many times a pipe is read before the time is looked at.
const CHUNKS: usize = 16;
/// How long a process has to clean up before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// A process in a group of its own, with three pipes.
///
/// Reading and writing fail with [`io::ErrorKind::TimedOut`] when the time is up. Whatever still
/// runs is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Talk {
    child: Child,
    exit: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// What it said while we were writing.
    heard: VecDeque<u8>,
    complaints: Vec<u8>,
    has_exited: bool,
    deadline: Moment,
}

impl Talk {
    pub(crate) fn start(command: &mut Command, timeout: Duration) -> io::Result<Self> {
        // Its own group, so that it can be ended with its children, and is not when a terminal's
        // Ctrl-C ends us: whoever started it decides.
        command.process_group(0).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        for end in [stdin.as_ref().map(AsFd::as_fd), stdout.as_ref().map(AsFd::as_fd)] {
            end.map_or(Ok(()), |end| rustix::io::ioctl_fionbio(end, true))?;
        }
        stderr.as_ref().map_or(Ok(()), |end| rustix::io::ioctl_fionbio(end, true))?;
        let exit = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        Ok(Self {
            child,
            exit,
            stdin,
            stdout,
            stderr,
            heard: VecDeque::new(),
            complaints: Vec::new(),
            has_exited: false,
            deadline: BootClock.now().plus(timeout),
        })
    }

    /// Says that nothing more will be written.
    pub(crate) fn end_input(&mut self) {
        self.stdin = None;
    }

    /// What it complained about.
    pub(crate) fn complaints(&self) -> String {
        String::from_utf8_lossy(&self.complaints).into_owned()
    }

    /// Waits until it is done.
    pub(crate) fn finish(&mut self) -> io::Result<ExitStatus> {
        self.end_input();
        while !self.has_exited {
            self.step(&[])?;
        }
        // What it wrote before it went is in the pipes. That somebody else has them open, such as
        // a connection that ssh keeps for later, is no reason to wait.
        self.read_output(usize::MAX)?;
        self.read_complaints()?;
        self.child.wait()
    }

    /// Waits until something can be done, and does it. Answers how much was written.
    fn step(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.deadline.since(BootClock.now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let stdin = self.stdin.as_ref().filter(|_| !bytes.is_empty());
        let (mut write, mut read, mut complain) = (false, false, false);
        {
            let mut ends = vec![PollFd::new(&self.exit, PollFlags::IN)];
            let mut marks: Vec<&mut bool> = vec![&mut self.has_exited];
            if let Some(end) = stdin {
                ends.push(PollFd::new(end, PollFlags::OUT));
                marks.push(&mut write);
            }
            if let Some(end) = &self.stdout {
                ends.push(PollFd::new(end, PollFlags::IN));
                marks.push(&mut read);
            }
            if let Some(end) = &self.stderr {
                ends.push(PollFd::new(end, PollFlags::IN));
                marks.push(&mut complain);
            }
            match poll(&mut ends, Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            for (end, mark) in ends.iter().zip(marks) {
                *mark |= !end.revents().is_empty();
            }
        }
        if read {
            self.read_output(CHUNKS)?;
        }
        if complain {
            self.read_complaints()?;
        }
        if write { self.write_some(bytes) } else { Ok(0) }
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(stdin) = &mut self.stdin else { return Ok(0) };
        match stdin.write(bytes) {
            Err(e) if is_later(&e) => Ok(0),
            other => other,
        }
    }

    fn read_output(&mut self, chunks: usize) -> io::Result<()> {
        let Some(end) = &mut self.stdout else { return Ok(()) };
        let mut chunk = [0; 16 << 10];
        for _ in 0..chunks {
            match end.read(&mut chunk) {
                Ok(0) => {
                    self.stdout = None;
                    break;
                }
                Ok(count) if self.heard.len() + count > OUTPUT => {
                    let why = format!("it prints more than {} MiB", OUTPUT >> 20);
                    return Err(too_large(why));
                }
                Ok(count) => self.heard.extend(&chunk[..count]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if is_later(&e) => {
                    if self.has_exited {
                        self.stdout = None;
                    }
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn read_complaints(&mut self) -> io::Result<()> {
        let Some(end) = &mut self.stderr else { return Ok(()) };
        let mut chunk = [0; 4 << 10];
        // Whoever complains without end is heard again when the time was looked at.
        for _ in 0..CHUNKS {
            match end.read(&mut chunk) {
                Ok(0) => {
                    self.stderr = None;
                    break;
                }
                Ok(count) => {
                    let room = COMPLAINTS - self.complaints.len();
                    self.complaints.extend(&chunk[..count.min(room)]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if is_later(&e) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        let group = Pid::from_child(&self.child);
        // First so that git can remove its lock files.
        for signal in [Signal::TERM, Signal::KILL] {
            kill_process_group(group, signal)?;
            // Nobody wants to hear what it still has to say.
            (self.stdout, self.stderr) = (None, None);
            self.deadline = BootClock.now().plus(GRACE);
            while !self.has_exited && self.step(&[]).is_ok() {}
        }
        Ok(())
    }
}

impl Read for Talk {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.heard.is_empty() && self.stdout.is_some() {
            self.step(&[])?;
            if self.has_exited {
                self.read_output(CHUNKS)?;
            }
        }
        self.heard.read(buffer)
    }
}

impl Write for Talk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while !bytes.is_empty() {
            if self.stdin.is_none() || self.has_exited {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            match self.step(bytes)? {
                0 => {}
                count => return Ok(count),
            }
        }
        Ok(0)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        if !self.has_exited
            && let Err(e) = self.end()
        {
            tracing::debug!(error = %e, "a process of git was left alone");
        }
        if let Err(e) = self.child.try_wait() {
            tracing::debug!(error = %e, "a process of git was not waited for");
        }
    }
}

fn is_later(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: Duration) -> Talk {
        Talk::start(Command::new("sh").arg("-c").arg(script), timeout).unwrap()
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn more_than_a_pipe_holds_goes_both_ways() {
        let mut talk = shell("cat; echo end >&2", LONG);
        let sent: Vec<u8> = (0..500_000_u32).flat_map(u32::to_le_bytes).collect();
        talk.write_all(&sent).unwrap();
        talk.end_input();
        let mut heard = Vec::new();
        talk.read_to_end(&mut heard).unwrap();
        assert!(heard == sent);
        assert!(talk.finish().unwrap().success());
        assert_eq!(talk.complaints(), "end\n");
    }

    #[test]
    fn what_takes_too_long_is_ended_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let mut talk = shell(&script, Duration::from_millis(500));
        let error = talk.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(talk);
        let pid = std::fs::read_to_string(file).unwrap();
        let runs = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        let limit = BootClock.now().plus(LONG);
        while runs() {
            assert!(BootClock.now() < limit, "the child still runs");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_descendant_that_keeps_the_pipes_is_not_waited_for() {
        let mut talk = shell("setsid sleep 30 & echo done", LONG);
        let before = BootClock.now();
        assert!(talk.finish().unwrap().success());
        let mut heard = String::new();
        talk.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "done\n");
        assert!(BootClock.now().since(before) < Duration::from_secs(10));
    }

    #[test]
    fn a_process_that_prints_without_end_is_ended() {
        let error = shell("yes", LONG).finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        let mut talk = shell("yes >&2", Duration::from_millis(300));
        assert_eq!(talk.finish().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(talk.complaints().len(), COMPLAINTS);
    }

    #[test]
    fn a_process_that_is_gone_cannot_be_written_to() {
        let mut talk = shell("exit 3", LONG);
        let error = talk.write_all(&vec![0; 1 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(talk.finish().unwrap().code(), Some(3));
    }
}
