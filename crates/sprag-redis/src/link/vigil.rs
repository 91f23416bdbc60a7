//! [`Vigil`]: looking for the answers of several servers at once.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::pace::Pace;

use super::Link;
use super::shared::Shared;
use super::stream::wait;

/// Several servers may take so many times as long as one before they count as far away: they share
/// processors, here or elsewhere.
const SLOWNESS: u32 = 2;

/// Where fewer than most have answered, whoever looks gives way to the others so often before it reads what
/// there is: one may be waiting for this very processor, and to go to sleep for each costs more.
const YIELDS: usize = 2;

/// Whoever asks several servers waits for their answers itself, for a moment: to be woken by a
/// thread for each of them would take longer than they do. It sleeps meanwhile, because servers on
/// this machine want its processors.
#[derive(Debug)]
pub(crate) struct Vigil<'a> {
    pace: &'a Pace,
    begun: Moment,
    until: Moment,
    /// The connections that nobody else looks at; none once it is left to the threads.
    posts: Vec<&'a Shared>,
    /// Whether nobody waits for the rest.
    enough: bool,
}

impl<'a> Vigil<'a> {
    /// Begins before anything is asked. Servers that are too far away are left to their threads.
    pub(crate) fn begin(links: impl Iterator<Item = &'a Link>, pace: &'a Pace) -> Self {
        let begun = BootClock.now();
        let patience = pace.look().map(|look| look.patience * SLOWNESS);
        let links = links.filter(|_| patience.is_some()).map(|link| &*link.shared);
        let posts = links.filter(|shared| shared.may_look()).collect();
        let until = begun.plus(patience.unwrap_or_default());
        Self { pace, begun, until, posts, enough: false }
    }

    /// Waits until something has come; false if it is left to the threads from now on.
    pub(crate) fn look(&mut self) -> bool {
        while !self.posts.is_empty() {
            let left = self.until.since(BootClock.now());
            let watched = |shared: &&'a Shared| Some((*shared, shared.watched()?));
            let lines: Vec<_> = self.posts.iter().filter_map(watched).collect();
            if left.is_zero() || lines.is_empty() {
                self.pace.in_vain();
                self.leave();
            } else if look_when_ready(&lines, left) {
                return true;
            }
        }
        false
    }

    /// Enough has come.
    pub(crate) fn found(&mut self) {
        self.leaves_the_rest();
        if !self.posts.is_empty() {
            self.pace.found(BootClock.now().since(self.begun) / SLOWNESS);
        }
    }

    /// Nobody waits for what has not come.
    pub(crate) fn leaves_the_rest(&mut self) {
        self.enough = true;
    }

    fn leave(&mut self) {
        self.posts.drain(..).for_each(Shared::looked_in_vain);
    }
}

/// Waits until one of them has something to read, and takes it; whether anybody waited for it.
fn look_when_ready(lines: &[(&Shared, Arc<OwnedFd>)], patience: Duration) -> bool {
    let mut on: Vec<_> = lines.iter().map(|(_, line)| PollFd::new(line, PollFlags::IN)).collect();
    // It only fails for want of memory; then it is looked at once more.
    drop(wait(&mut on, Some(patience)));
    for _ in 0..YIELDS {
        if on.iter().filter(|on| !on.revents().is_empty()).count() * 2 > lines.len() {
            break;
        }
        std::thread::yield_now();
        drop(wait(&mut on, Some(Duration::ZERO)));
    }
    let ready = lines.iter().zip(&on).filter(|(_, on)| !on.revents().is_empty());
    ready.filter(|((shared, _), _)| shared.look()).count() > 0
}

impl Drop for Vigil<'_> {
    fn drop(&mut self) {
        if self.enough {
            self.posts.drain(..).for_each(Shared::looked_enough);
        }
        self.leave();
    }
}
