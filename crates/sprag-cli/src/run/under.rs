//! [`Under`]: a command under a lock that somebody else takes and releases.

use std::cell::Cell;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};

use sprag::LockGuard;
use sprag::clock::{BootClock, Clock};

use super::hold::{End, Hold};
use super::holding::Holding;
use super::plan::Plan;
use super::signals::{FORWARDED, Received, Signals, with_no_signal_blocked};
use super::socket::Desk;
use super::ward::Ward;
use super::{bug, exit_of, not_started};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// What git hands to its hooks about the repository that they run in: as `git rev-parse
/// --local-env-vars` says, but for settings.
const GIT_LOCAL: [&str; 13] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
];

/// A command that is to be run under a lock.
pub(crate) struct Under<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) guard: &'a LockGuard,
    pub(crate) holder: &'a str,
    /// Where it runs.
    pub(crate) directory: &'a Path,
    /// What it learns beside what is about the lock.
    pub(crate) variables: Vec<(String, OsString)>,
    /// Open for as long as anything of the command may run.
    pub(crate) lifeline: Option<OwnedFd>,
}

/// How it ended.
pub(crate) enum Ran {
    /// By itself, with this status.
    Ended(Exit),
    /// The lock was lost, and it was stopped.
    Lost,
    /// It was not started, because a signal came before.
    Interrupted(Exit),
}

/// The signals of this process, for all that it will run. Called before there are threads.
pub(crate) struct Reins {
    signals: Signals,
    /// Handed on to a command that ran, and meant for us as well.
    stopped: Cell<Option<Received>>,
}

impl Reins {
    pub(crate) fn take() -> Result<Self, Failure> {
        let signals = Signals::block(&FORWARDED).map_err(bug)?;
        Ok(Self { signals, stopped: Cell::new(None) })
    }

    /// Starts a process that has its own.
    pub(crate) fn free(&self, command: &mut Command) -> std::io::Result<Child> {
        with_no_signal_blocked(|| command.spawn())?
    }

    /// A signal that came while nothing ran, or before that to a command, and ends this process.
    pub(crate) fn pulled(&self) -> Option<Exit> {
        let signal = self.stopped.get().or_else(|| self.signals.next_that_ends());
        signal.map(|signal| Exit::signal(signal.number))
    }
}

impl Under<'_> {
    /// Runs the command until it and all that it started are gone.
    pub(crate) fn run(self, reins: &Reins, context: &Context) -> Result<Ran, Failure> {
        let (plan, taken) = (self.plan, &self.guard as &dyn Holding);
        let desk = Desk::open()?;
        let mut ward = Ward::start(self.guard.name().as_str()).map_err(bug)?;
        let mut order = plan.order(taken, self.holder, desk.as_ref().map(Desk::path));
        order.directory = self.directory.into();
        order.environment.extend(self.variables);
        // In a hook of git they name another repository than the one in its directory.
        order.without.extend(GIT_LOCAL.map(str::to_owned));
        let (told, shared_group) = (order.valid_until, order.group != 0);
        // The last moment at which nothing has been started.
        if let Some(exit) = reins.pulled() {
            ward.end();
            return Ok(Ran::Interrupted(exit));
        }
        ward.command(order, self.lifeline).map_err(bug)?;
        let mut hold = Hold {
            plan,
            output: &context.output,
            signals: &reins.signals,
            taken,
            ward: &mut ward,
            desk: desk.as_ref(),
            shared_group,
            since: BootClock.now(),
            told,
            process: 0,
            lost: false,
            stopped: None,
        };
        let end = hold.stay().unwrap_or(End::Orphaned);
        let (lost, stopped) = (hold.lost, hold.stopped);
        if stopped.is_some() {
            reins.stopped.set(stopped);
        }
        if end == End::Orphaned {
            ward.end_all();
        } else {
            ward.end();
        }
        match end {
            _ if lost => Ok(Ran::Lost),
            End::NotStarted(errno) => Err(not_started(plan, errno)),
            End::Orphaned => Ok(Ran::Lost),
            End::Status(status) => exit_of(status).map(|(_, exit)| Ran::Ended(exit)),
        }
    }
}
