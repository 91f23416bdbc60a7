//! [`Guardian`]: the parent of the command, which outlives `sprag run` until all is over.
//!
//! ```text
//!   sprag run (store, lease, renewals) --wire--> guardian (lifeline) --> command --> its children
//! ```
//!
//! It starts the command, hands signals on and reports the end. Beyond that it knows only until
//! when the lease is good. When nobody says that it was renewed, or `sprag run` is gone, it ends
//! the command and everything below it, and only then itself. As long as it lives its lifeline
//! keeps the session alive, so nobody else is granted the lock before. Where leases live by their
//! TTL alone, it gives them back once all is over and `sprag run` cannot do so.
//!
//! Everything below it: it is a subreaper, so whoever loses its parent becomes its child.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal as Number;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process_group, set_child_subreaper, wait,
};
use sprag::clock::{BootClock, Clock, Moment};

use super::alarm::Alarm;
use super::give_back::give_back;
use super::leader;
use super::signals::{FORWARDED, Signals, with_no_signal_blocked};
use super::tree;
use super::wire::{Message, Order, Wire};
use crate::args::OnLost;

/// How often what does not die is killed again.
const AGAIN: Duration = Duration::from_millis(10);
/// How long what the command left behind may take to end or to become a daemon.
const LINGER: Duration = Duration::from_millis(100);
/// The status that is reported where the kernel does not tell it.
pub(crate) const UNKNOWN: i32 = -1;

/// The wait status of a process that was killed.
const KILLED: i32 = 9;

/// What a guardian does; its stdin is the wire.
pub(crate) fn main() -> ExitCode {
    match guard() {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever started it sees that the wire is cut.
        Err(_) => ExitCode::FAILURE,
    }
}

fn guard() -> io::Result<()> {
    // What is meant for the command or the terminal's job does not end or stop its guardian.
    drop(Signals::block(&FORWARDED)?);
    let children = Signals::block(&[Number::SIGCHLD])?;
    set_child_subreaper(Some(getpid()))?;
    let mut wire = Wire::new(UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?));
    let Some(Message::Start(order)) = wire.wait()? else { return Ok(()) };
    let stdin = wire.descriptor();
    // Open for as long as this process lives, and in no other.
    let _lifeline = wire.descriptor();
    let stdin = stdin.map_or_else(|| File::open("/dev/null").map(OwnedFd::from), Ok)?;
    let alarm = Alarm::new()?;
    if now() >= order.valid_until.minus(order.margin) {
        // Both of us were stopped, or the machine slept: nothing is started any more.
        wire.send(&Message::Overdue)?;
        return finish(Some(wire), &Message::Ended(KILLED), &order, order.valid_until);
    }
    match start(&order, stdin) {
        Ok(leader) => {
            // From here on nothing may keep it from guarding: if nobody is there to be told, it
            // finds out by listening.
            drop(wire.send(&Message::Started(leader.as_raw_pid())));
            Guardian {
                wire: Some(wire),
                valid_until: order.valid_until,
                order: *order,
                leader,
                status: None,
                stage: Stage::Running,
                children,
                alarm,
            }
            .run()
        }
        Err(error) => {
            let message = Message::NotStarted(error.raw_os_error().unwrap_or(0));
            finish(Some(wire), &message, &order, order.valid_until)
        }
    }
}

/// Tells that all is over. What `sprag run` then does not give back, because it was killed, is given
/// back here.
fn finish(wire: Option<Wire>, last: &Message, order: &Order, until: Moment) -> io::Result<()> {
    let told = wire.map(|mut wire| wire.send(last).map(|()| wire));
    if order.leases.is_empty() {
        return told.map_or(Ok(()), |told| told.map(drop));
    }
    if let Some(Ok(mut wire)) = told {
        while let Ok(Some(message)) = wire.wait() {
            if message == Message::Done {
                return Ok(());
            }
        }
    }
    give_back(&order.store, &order.leases, until)
}

fn start(order: &Order, stdin: OwnedFd) -> io::Result<Pid> {
    if order.on_lost != OnLost::Continue {
        return leader::start(order, stdin);
    }
    // This one goes on without its lock, and so without its guardian.
    let Some(mut command) = command_of(order) else { return Err(Errno::NOENT.into()) };
    spawn(command.stdin(stdin).process_group(order.group))
}

/// The command as it was ordered; none if it has no words.
pub(super) fn command_of(order: &Order) -> Option<Command> {
    let (program, arguments) = order.command.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments);
    prepare(&mut command, order);
    Some(command)
}

fn prepare(command: &mut Command, order: &Order) {
    for name in &order.without {
        command.env_remove(name);
    }
    command.envs(order.environment.iter().map(|(name, value)| (name, value)));
    if !order.directory.is_empty() {
        command.current_dir(&order.directory);
    }
}

pub(super) fn spawn(command: &mut Command) -> io::Result<Pid> {
    let child = with_no_signal_blocked(|| command.spawn())??;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // It is reaped with everybody else; dropping the handle leaves it alone.
    pid.ok_or_else(|| Errno::SRCH.into())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The command runs and is left alone.
    Running,
    /// The lock is lost and the command may go on.
    Unprotected,
    /// The command has ended by itself and left children behind. Until this moment they may end,
    /// or become daemons: the first process of a daemon ends before the second is on its own.
    Lingering(Moment),
    /// What the command left behind was asked to end, and is killed at this moment.
    Clearing(Moment),
    /// Everybody was asked to end, and is killed at this moment.
    Ending(Moment),
    /// Everybody is being killed.
    Killing,
}

struct Guardian {
    /// `None` when `sprag run` is gone.
    wire: Option<Wire>,
    valid_until: Moment,
    order: Order,
    leader: Pid,
    status: Option<i32>,
    stage: Stage,
    children: Signals,
    alarm: Alarm,
}

impl Guardian {
    fn run(mut self) -> io::Result<()> {
        while !self.is_over()? {
            self.act();
            self.alarm.set(self.next_look())?;
            let mut sources = vec![
                PollFd::new(&self.children, PollFlags::IN),
                PollFd::new(&self.alarm, PollFlags::IN),
            ];
            let wire = self.wire.as_ref().map(Wire::as_fd);
            sources.extend(wire.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            match poll(&mut sources, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let spoken = sources.get(2).is_some_and(|source| !source.revents().is_empty());
            drop(sources);
            while self.children.next().is_some() {}
            if spoken && self.listen().is_err() {
                self.hang_up();
            }
        }
        if self.wire.is_none() && !self.order.socket.is_empty() {
            // Gone already is as good.
            drop(std::fs::remove_file(&self.order.socket));
        }
        let last = Message::Ended(self.status.unwrap_or(UNKNOWN));
        finish(self.wire, &last, &self.order, self.valid_until)
    }

    /// Reaps who has ended; whether nobody is left who matters.
    fn is_over(&mut self) -> io::Result<bool> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.leader => {
                    self.status = Some(status.as_raw());
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(Errno::CHILD) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        if self.status.is_none() || matches!(self.stage, Stage::Ending(_) | Stage::Killing) {
            return Ok(false);
        }
        let left = self.left_behind();
        if left.is_empty() {
            return Ok(true);
        }
        match self.stage {
            Stage::Lingering(until) if now() >= until => {
                self.stage = Stage::Clearing(now().plus(self.order.kill_after).min(self.kill_at()));
                ask(&left, Signal::TERM);
            }
            Stage::Lingering(_) | Stage::Clearing(_) => {}
            _ => self.stage = Stage::Lingering(now().plus(LINGER)),
        }
        Ok(false)
    }

    /// What the command left running. Who made a session of its own has become a daemon, and
    /// stays.
    fn left_behind(&self) -> Vec<tree::Process> {
        // 0 if its leader is outside of our pid namespace, for our children as for us.
        let session = nix::unistd::getsid(None).map_or(0, nix::unistd::Pid::as_raw);
        let mut left = tree::below(getpid());
        left.retain(|process| process.session == session);
        left
    }

    fn kill_at(&self) -> Moment {
        self.valid_until.minus(self.order.margin)
    }

    fn end_at(&self) -> Moment {
        match self.order.on_lost {
            OnLost::Kill => self.kill_at(),
            _ => self.kill_at().minus(self.order.kill_after),
        }
    }

    fn next_look(&self) -> Moment {
        match self.stage {
            Stage::Running => self.end_at(),
            Stage::Unprotected => Moment::NEVER,
            Stage::Ending(kill_at) => kill_at,
            // A leftover may be somebody else's child, whose end is not told to us.
            Stage::Lingering(_) => now().plus(AGAIN),
            Stage::Clearing(kill_at) => kill_at.min(now().plus(AGAIN)),
            Stage::Killing => now().plus(AGAIN),
        }
    }

    /// Does what it is time for.
    fn act(&mut self) {
        let now = now();
        match self.stage {
            Stage::Running if now >= self.end_at() => {
                if let Some(wire) = &mut self.wire {
                    // If nobody reads it, that is why we are here.
                    drop(wire.try_send(&Message::Overdue));
                }
                self.end();
            }
            Stage::Ending(kill_at) if now >= kill_at => self.stage = Stage::Killing,
            Stage::Clearing(kill_at) if now >= kill_at => {
                tree::send(&self.left_behind(), Signal::KILL);
            }
            _ => {}
        }
        if self.stage == Stage::Killing {
            if self.order.group == 0 {
                kill_process_group(self.leader, Signal::KILL).ok();
            }
            tree::send(&tree::below(getpid()), Signal::KILL);
        }
    }

    /// Begins to end everything.
    fn end(&mut self) {
        if matches!(self.stage, Stage::Ending(_) | Stage::Killing | Stage::Unprotected) {
            return;
        }
        let kill_at = now().plus(self.order.kill_after).min(self.kill_at());
        self.stage = match &self.order.on_lost {
            OnLost::Continue => Stage::Unprotected,
            OnLost::Kill => Stage::Killing,
            OnLost::Term => {
                tree::ask_below(self.own_group(), Signal::TERM);
                Stage::Ending(kill_at)
            }
            OnLost::Hook(hook) => {
                let mut command = Command::new("/bin/sh");
                command.arg("-c").arg(hook).stdin(Stdio::null());
                prepare(&mut command, &self.order);
                command.env("SPRAG_PID", self.leader.as_raw_pid().to_string());
                match spawn(command.process_group(0)) {
                    Ok(_) => {}
                    Err(_) => tree::ask_below(self.own_group(), Signal::TERM),
                }
                Stage::Ending(kill_at)
            }
        };
    }

    /// The group that has nobody in it but the command's processes.
    fn own_group(&self) -> Option<Pid> {
        (self.order.group == 0).then_some(self.leader)
    }

    fn listen(&mut self) -> io::Result<()> {
        let Some(wire) = &mut self.wire else { return Ok(()) };
        let open = wire.fill()?;
        while let Some(message) = self.wire.as_mut().map_or(Ok(None), Wire::next)? {
            match message {
                Message::Renewed(until) => self.valid_until = self.valid_until.max(until),
                Message::Signal(number) => self.hand_on(number),
                Message::Lost => self.end(),
                _ => {}
            }
        }
        if !open {
            self.hang_up();
        }
        Ok(())
    }

    /// `sprag run` is gone.
    fn hang_up(&mut self) {
        self.wire = None;
        self.end();
    }

    /// Sends a signal to the command's group. Where that is also the group of others, only to
    /// those in it that are the command's.
    fn hand_on(&self, number: u8) {
        let Some(signal) = Signal::from_named_raw(i32::from(number)) else { return };
        if self.order.group == 0 {
            kill_process_group(self.leader, signal).ok();
            return;
        }
        let mut members = tree::below(getpid());
        members.retain(|process| process.group == self.order.group);
        tree::send(&members, signal);
    }
}

/// Asks processes to end; who is stopped has to go on to hear it.
fn ask(processes: &[tree::Process], signal: Signal) {
    tree::send(processes, signal);
    tree::send(processes, Signal::CONT);
}

fn now() -> Moment {
    BootClock.now()
}
