//! [`Hold`]: while the command runs. Renews the guardian's deadline, hands signals on, answers the
//! command's questions, and learns of a loss.

use std::io;
use std::task::Poll;
use std::time::Duration;

use nix::sys::signal::Signal as Number;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sprag::clock::{BootClock, Clock, Moment};
use sprag::{Fence, LockName, Loss};

use super::alarm::Alarm;
use super::bell::Bell;
use super::holding::Holding;
use super::plan::Plan;
use super::signals::{Received, Signals};
use super::socket::Desk;
use super::wait::{sleep, stop_here};
use super::ward::Ward;
use super::wire::Message;
use crate::args::OnLost;
use crate::code::Code;
use crate::failure::Failure;
use crate::output::{Output, time};

/// How often the guardian is told of renewals, at the least.
const TICK: Duration = Duration::from_secs(1);

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself; its wait status.
    Status(i32),
    /// It could not be started, for this reason.
    NotStarted(i32),
    /// The guardian was killed, and the command with it.
    Orphaned,
}

pub(crate) struct Hold<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) output: &'a Output,
    pub(crate) signals: &'a Signals,
    pub(crate) taken: &'a dyn Holding,
    pub(crate) ward: &'a mut Ward,
    pub(crate) desk: Option<&'a Desk>,
    /// Whether the command is in our process group, because there is a terminal.
    pub(crate) shared_group: bool,
    pub(crate) since: Moment,
    /// The guardian knows of this.
    pub(crate) told: Moment,
    pub(crate) process: i32,
    pub(crate) lost: bool,
    /// The last signal that asked to end.
    pub(crate) stopped: Option<Received>,
}

impl Hold<'_> {
    /// Stays until the command and all that it started are gone.
    pub(crate) fn stay(&mut self) -> io::Result<End> {
        let (bell, alarm) = (Bell::new()?, Alarm::new()?);
        let mut losses = self.taken.losses();
        loop {
            bell.silence();
            if let Some(end) = self.catch_up()? {
                return Ok(end);
            }
            for loss in &mut losses {
                if !self.lost
                    && let Poll::Ready((name, fence, loss)) = bell.poll(loss.as_mut())
                {
                    // The guardian first: what ended before its deadline was not lost, although we
                    // may have been stopped since.
                    if let Some(end) = self.catch_up()? {
                        return Ok(end);
                    }
                    drop(self.ward.wire.try_send(&Message::Lost));
                    self.lose(&name, fence, Some(&loss));
                }
            }
            self.tell_renewal();
            while let Some(signal) = self.signals.next() {
                if signal.says_stop() {
                    self.stopped = Some(signal);
                }
                self.hand_on(signal);
            }
            if let Some(desk) = self.desk {
                desk.serve(|| self.plan.told(self.taken));
            }
            alarm.set(self.next_look())?;
            let mut sources = vec![
                PollFd::new(&self.ward.wire, PollFlags::IN),
                PollFd::new(&bell, PollFlags::IN),
                PollFd::new(&alarm, PollFlags::IN),
                PollFd::new(self.signals, PollFlags::IN),
            ];
            sources.extend(self.desk.map(|desk| PollFd::new(desk, PollFlags::IN)));
            sleep(&mut sources)?;
        }
    }

    /// Takes in what the guardian has said so far.
    fn catch_up(&mut self) -> io::Result<Option<End>> {
        let mut sources = [PollFd::new(&self.ward.wire, PollFlags::IN)];
        let spoken = poll(&mut sources, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
        let open = !spoken || self.ward.wire.fill()?;
        while let Some(message) = self.ward.wire.next()? {
            if let Some(end) = self.hear(&message) {
                return Ok(Some(end));
            }
        }
        Ok((!open).then_some(End::Orphaned))
    }

    /// When everything has to be over, or it is ours to end it.
    fn last_moment(&self) -> Moment {
        self.told.minus(self.plan.margin() / 2)
    }

    fn next_look(&self) -> Moment {
        let now = BootClock.now();
        let tick = now.plus(TICK.min(self.plan.ttl / 12));
        match self.plan.on_lost {
            OnLost::Continue => tick,
            _ => tick.min(self.last_moment().max(now.plus(Duration::from_millis(10)))),
        }
    }

    fn tell_renewal(&mut self) {
        let until = self.taken.valid_until();
        if until > self.told && !self.lost {
            self.told = until;
            drop(self.ward.wire.try_send(&Message::Renewed(until)));
        }
        if BootClock.now() >= self.last_moment() && self.plan.on_lost != OnLost::Continue {
            // The guardian should have done it: it may be stopped.
            self.ward.kill_below();
        }
    }

    fn hear(&mut self, message: &Message) -> Option<End> {
        match *message {
            Message::Started(process) => self.process = process,
            Message::NotStarted(errno) => return Some(End::NotStarted(errno)),
            Message::Ended(status) => return Some(End::Status(status)),
            Message::Overdue if !self.lost => {
                let guards = self.taken.all();
                let first = guards.into_iter().min_by_key(|guard| guard.valid_until());
                if let Some(guard) = first {
                    self.lose(&guard.name().clone(), guard.fence(), None);
                }
            }
            _ => {}
        }
        None
    }

    /// Hands a signal on, unless the terminal has given it to the whole group already.
    fn hand_on(&mut self, signal: Received) {
        let delivered = self.shared_group && signal.from_kernel;
        if !delivered {
            drop(self.ward.wire.try_send(&Message::Signal(signal.number)));
        }
        // The shell waits for us to stop with the rest of its job.
        if signal.is(Number::SIGTSTP) && self.shared_group {
            stop_here();
        }
    }

    /// Says that the lock is lost, and what happens now.
    fn lose(&mut self, name: &LockName, fence: Fence, loss: Option<&Loss>) {
        self.lost = true;
        let now = BootClock.now();
        let held = time::span(now.since(self.since));
        // The lease began when the last renewal that was confirmed had been sent.
        let ttl = self.plan.ttl;
        let silent = time::span(now.since(self.told.minus(ttl)));
        let cause = match loss {
            None | Some(Loss::Expired | Loss::Unreachable) => {
                format!("no confirmed renewal for {silent}")
            }
            Some(loss) => loss.to_string(),
        };
        let group = if self.shared_group {
            format!("process {} and all below it", self.process)
        } else {
            format!("process group {}", self.process)
        };
        let end = self.told.minus(self.plan.margin());
        let kill_in = end.since(now).min(self.plan.kill_after);
        let grace = match loss {
            None | Some(Loss::Expired | Loss::Unreachable) => {
                let left = self.told.since(now.plus(kill_in));
                format!(", {} before anyone else can acquire", time::span(left))
            }
            Some(_) => String::new(),
        };
        let kill_in = time::span(kill_in);
        let action = match &self.plan.on_lost {
            OnLost::Term => format!("SIGTERM sent to {group}; SIGKILL in {kill_in}{grace}"),
            OnLost::Kill => format!("SIGKILL sent to {group}"),
            OnLost::Continue => "none: the command runs on without the lock".to_owned(),
            OnLost::Hook(hook) => {
                format!("{:?} was started; SIGKILL to {group} in {kill_in}{grace}", hook)
            }
        };
        let failure =
            Failure::new(Code::Lost, format!("lost lock {name:?} (token {fence}) after {held}"));
        let failure = failure.fact("cause", cause).fact("action", action);
        let failure = match loss {
            None | Some(Loss::Unreachable) => {
                failure.fact("now", "unknown (the store did not answer)")
            }
            _ => failure,
        };
        failure.detail("lock", name.as_str()).detail("token", fence.get()).print(self.output);
    }
}
