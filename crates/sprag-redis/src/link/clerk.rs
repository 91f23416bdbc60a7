//! [`Clerk`]: the thread behind the callers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use sprag_core::clock::{BootClock, Clock};

use super::line::Line;
use super::shared::{Care, Shared, State};
use super::stream::wait;
use crate::error::Trouble;

/// So long a caller that looks for answers may find none before the thread does it.
const TRUST: Duration = Duration::from_millis(1);
/// How long it stays awake for the next request, where callers do not look for answers: so many
/// naps.
const NAP: Duration = Duration::from_millis(100);
const WAKEFUL: u32 = 10;

/// Connects, waits for the answers that callers do not look for, and ends what takes too long.
pub(super) struct Clerk<C> {
    pub(super) shared: Arc<Shared>,
    /// What errors call the server.
    pub(super) address: String,
    /// How long an answer may take.
    pub(super) patience: Duration,
    pub(super) connect: C,
}

impl<C: FnMut() -> Result<Line, Trouble>> Clerk<C> {
    /// Works until nobody can ask any more.
    pub(super) fn work(mut self) {
        let mut answers_before = u64::MAX;
        let mut idle = 0;
        loop {
            let shared = Arc::clone(&self.shared);
            let mut state = shared.lock();
            if state.ended {
                let trouble = self.trouble("was left by its client");
                return fail_all(&mut state, &trouble);
            }
            // Also when nothing is under way: the next request must not go there.
            if std::mem::take(&mut state.suspect) {
                self.hang_up(&mut state, &self.trouble("is not the master any more"));
                continue;
            }
            let Some(front) = state.pending.front() else {
                let wakeful = !shared.pace.is_quick() && idle < WAKEFUL;
                // Under the lock, so that whoever asks from now on rings.
                shared.cares(if wakeful { Care::Awake } else { Care::Asleep });
                drop(state);
                idle = if self.rest(wakeful) { idle + 1 } else { 0 };
                continue;
            };
            idle = 0;
            let (overdue, due) = (front.asked.plus(self.patience), front.asked.plus(TRUST));
            if state.line.is_none() {
                shared.cares(Care::Awake);
                drop(state);
                self.reconnect();
                continue;
            }
            let now = BootClock.now();
            if now < due && !state.pending.iter().any(|slot| slot.is_awaited()) {
                // Whoever asks next finds these answers too.
                shared.cares(Care::Dozing);
                drop(state);
                self.wait(PollFlags::empty(), Some(due.since(now)));
                continue;
            }
            shared.cares(Care::Awake);
            if overdue <= BootClock.now() {
                let what = format!("did not answer within {:?}", self.patience);
                self.hang_up(&mut state, &self.trouble(&what));
                continue;
            }
            let answers = shared.answers.load(Ordering::Relaxed);
            let busy = state.line.as_ref().is_some_and(Line::waits);
            if shared.is_looked_for() && answers != answers_before && !busy {
                // A caller looks, and finds something.
                answers_before = answers;
                drop(state);
                self.wait(PollFlags::empty(), Some(TRUST));
                continue;
            }
            match shared.take(&mut state) {
                Err(e) => self.hang_up(&mut state, &Trouble::io(&self.address, &e)),
                Ok(_) if state.pending.is_empty() => {}
                Ok(_) => {
                    let writes = state.line.as_ref().is_some_and(Line::waits);
                    drop(state);
                    let out = if writes { PollFlags::OUT } else { PollFlags::empty() };
                    self.wait(PollFlags::IN | out, Some(overdue.since(BootClock.now())));
                }
            }
        }
    }

    /// Takes over the first connection.
    pub(super) fn begin(&self, line: Line) {
        // Without a second descriptor, a server that hangs up is only noticed when it is asked.
        let watched = rustix::io::dup(&line).ok().map(Arc::new);
        let mut state = self.shared.lock();
        (state.watched, state.line) = (watched, Some(line));
        state.made = Some(BootClock.now());
    }

    fn trouble(&self, what: &str) -> Trouble {
        Trouble::no_answer(&self.address, what)
    }

    /// Waits for the bell, and for the connection to be ready for `what`.
    fn wait(&self, what: PollFlags, patience: Option<Duration>) -> PollFlags {
        let bell = PollFd::new(&self.shared.bell, PollFlags::IN);
        let watched = self.shared.watched();
        let (rung, ready) = match watched.as_deref() {
            Some(line) if !what.is_empty() => {
                let mut on = [bell, PollFd::new(line, what)];
                // It only fails for want of memory; then the next turn decides.
                drop(wait(&mut on, patience));
                (on[0].revents(), on[1].revents())
            }
            _ => {
                let mut on = [bell];
                drop(wait(&mut on, patience));
                (on[0].revents(), PollFlags::empty())
            }
        };
        if !rung.is_empty() {
            self.shared.heard_bell();
        }
        ready
    }

    /// Nothing is under way: waits until something is, or the server hangs up. While wakeful, it
    /// looks for answers to what is asked meanwhile, for a while; whether nothing happened then.
    fn rest(&self, wakeful: bool) -> bool {
        let (what, patience) =
            if wakeful { (PollFlags::IN, Some(NAP)) } else { (PollFlags::RDHUP, None) };
        let ready = self.wait(what | PollFlags::RDHUP, patience);
        if ready.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
            let shared = Arc::clone(&self.shared);
            let mut state = shared.lock();
            // What it said before is still good.
            let gone = shared.take(&mut state).err();
            let trouble = gone.map_or_else(
                || self.trouble("closed the connection"),
                |e| Trouble::io(&self.address, &e),
            );
            self.hang_up(&mut state, &trouble);
        }
        ready.is_empty()
    }

    fn reconnect(&mut self) {
        let connected = (self.connect)();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let unsaid = std::mem::take(&mut state.unsaid);
        let ready = connected.and_then(|mut line| {
            let watched = rustix::io::dup(&line).map_err(io::Error::from);
            let said = watched.and_then(|watched| line.say(&unsaid).map(|()| watched));
            Ok((said.map_err(|e| Trouble::io(&self.address, &e))?, line))
        });
        match ready {
            Ok((watched, line)) => {
                (state.watched, state.line) = (Some(Arc::new(watched)), Some(line));
                state.made = Some(BootClock.now());
            }
            Err(trouble) => self.hang_up(&mut state, &trouble),
        }
    }

    /// Ends the connection. What was asked on it may be done or not, but not later: what the network
    /// has not taken yet is thrown away, or it would arrive when the network heals, after what is
    /// asked on the next connection.
    fn hang_up(&self, state: &mut State, trouble: &Trouble) {
        if let Some(line) = &state.line {
            line.abandon();
        }
        tracing::debug!(target: "sprag::redis", address = self.address, ?trouble, "hung up");
        fail_all(state, trouble);
    }
}

fn fail_all(state: &mut State, trouble: &Trouble) {
    (state.line, state.watched) = (None, None);
    state.unsaid.clear();
    state.pending.drain(..).for_each(|slot| slot.fail(trouble.clone()));
}

/// The thread cannot be started, or not be woken.
pub(super) fn no_thread(e: &io::Error) -> Trouble {
    let message = format!("no thread can be started ({e}): raise the limits of this process");
    Trouble::new(sprag_core::ErrorKind::Unavailable, message)
}
