//! Waiting for the locks, and leaving when asked to.

use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;
use std::time::Duration;

use nix::sys::signal::Signal as Number;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getpid, kill_process};
use sprag::{Client, Result};

use super::alarm::Alarm;
use super::bell::Bell;
use super::plan::Plan;
use super::progress::Progress;
use super::signals::{Received, Signals};
use super::taken::{Taking, take};

/// How long leaving the queue may take.
const LEAVING: Duration = Duration::from_millis(600);

/// What came of waiting.
pub(crate) enum Waited {
    /// The store has answered.
    Answered(Result<Taking>),
    /// A signal came first.
    Stopped(Received),
}

/// Waits until the locks are taken or a signal says to stop.
pub(crate) fn wait(
    plan: &Plan,
    client: &Client,
    asking: &AtomicUsize,
    progress: &mut Progress<'_>,
    signals: &Signals,
) -> std::io::Result<Waited> {
    let (bell, alarm) = (Bell::new()?, Alarm::new()?);
    let mut taking = pin!(take(plan, client, asking));
    loop {
        bell.silence();
        // Signals first: who was asked to stop starts nothing, granted or not.
        while let Some(signal) = signals.next() {
            if signal.is(Number::SIGTSTP) {
                progress.erase();
                stop_here();
            } else if signal.ends() && !signal.is_ignored() {
                progress.erase();
                return Ok(Waited::Stopped(signal));
            }
        }
        if let Poll::Ready(answer) = bell.poll(taking.as_mut()) {
            progress.erase();
            return Ok(Waited::Answered(answer));
        }
        progress.go_on(&bell);
        alarm.set(progress.next())?;
        sleep(&mut [
            PollFd::new(&bell, PollFlags::IN),
            PollFd::new(signals, PollFlags::IN),
            PollFd::new(&alarm, PollFlags::IN),
        ])?;
    }
}

/// Gives everything back that may have been taken, and says whether that could be done in time; a
/// second signal ends it at once.
pub(crate) fn leave(client: &Client, signals: &Signals) -> std::io::Result<bool> {
    let bell = Bell::new()?;
    let mut leaving = pin!(client.shutdown(LEAVING));
    loop {
        bell.silence();
        if let Poll::Ready(left) = bell.poll(leaving.as_mut()) {
            return Ok(left.is_empty());
        }
        if signals.next().is_some_and(Received::ends) {
            return Ok(false);
        }
        sleep(&mut [PollFd::new(&bell, PollFlags::IN), PollFd::new(signals, PollFlags::IN)])?;
    }
}

/// Stops this process, as the terminal asked for; goes on when the shell says so.
pub(crate) fn stop_here() {
    kill_process(getpid(), Signal::STOP).ok();
}

/// Waits until one of the sources has something.
pub(crate) fn sleep(sources: &mut [PollFd<'_>]) -> std::io::Result<()> {
    match poll(sources, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
