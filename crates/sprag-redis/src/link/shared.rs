//! [`Shared`]: the connection, between the callers and the thread behind them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use sprag_core::ErrorKind;
use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::pace::Pace;

use super::line::Line;
use super::slot::Slot;
use super::stream::wait;
use crate::error::Trouble;

/// Requests under way; beyond that, callers are told to come back.
const MOST: usize = 16 << 10;

/// From so many requests under way on, the thread writes and reads for all of them at once.
const CROWD: usize = 8;

/// How far the thread takes care of what is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Care {
    /// Not at all: it waits for the bell.
    Asleep,
    /// It will by itself, in a moment: soon enough for answers that nobody waits for.
    Dozing,
    /// It waits for them.
    Awake,
}

/// What callers and the thread share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) pace: Pace,
    /// Whether a caller looks for answers.
    looking: AtomicBool,
    /// How far the thread takes care of what is under way.
    care: AtomicU8,
    /// How many answers were taken off the line.
    pub(super) answers: AtomicU64,
    /// Written to in order to wake the thread.
    pub(super) bell: OwnedFd,
    /// Whether it was, and the thread has not heard it yet.
    rung: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// None before the first request, and after something went wrong.
    pub(super) line: Option<Line>,
    /// The connection as well, to wait for it without keeping others from it.
    pub(super) watched: Option<Arc<OwnedFd>>,
    /// The requests under way, in the order of their answers.
    pub(super) pending: VecDeque<Arc<Slot>>,
    /// What is to be said as soon as there is a line.
    pub(super) unsaid: Vec<u8>,
    /// When the connection was made, and when something was asked last, where that matters.
    pub(super) made: Option<Moment>,
    pub(super) asked: Option<Moment>,
    /// Whether the connection leads to the wrong server.
    pub(super) suspect: bool,
    /// Nobody will ask any more.
    pub(super) ended: bool,
}

impl Shared {
    pub(super) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            state: Mutex::default(),
            pace: Pace::new(),
            looking: AtomicBool::new(false),
            care: AtomicU8::new(Care::Asleep as u8),
            answers: AtomicU64::new(0),
            bell,
            rung: AtomicBool::new(false),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, now or as soon as there is a connection; whether it is one of so many that
    /// the answer is better left to the thread.
    pub(super) fn send(&self, slot: &Arc<Slot>, bytes: &[u8]) -> Result<bool, Trouble> {
        let mut state = self.lock();
        if state.ended {
            return Err(Trouble::new(ErrorKind::Unavailable, "the store was closed"));
        }
        if state.pending.len() >= MOST {
            let message = format!("{MOST} requests are under way: try again in a moment");
            return Err(Trouble::new(ErrorKind::Busy, message));
        }
        state.pending.push_back(Arc::clone(slot));
        let crowded = state.pending.len() > CROWD;
        let said = match &mut state.line {
            Some(line) if crowded => line.keep(bytes),
            // If it fails the thread finds out as well, and tells everybody.
            Some(line) => line.say(bytes).is_ok() && !line.waits(),
            None => {
                state.unsaid.extend_from_slice(bytes);
                false
            }
        };
        drop(state);
        if !said {
            self.ring();
        }
        Ok(crowded)
    }

    /// The connection may lead to the wrong server: another one is made before anything else is asked.
    pub(super) fn leave(&self) {
        self.lock().suspect = true;
        self.ring();
    }

    /// Leaves the connection if nothing was asked for a while, or if it is old; but not while something
    /// is under way on it.
    pub(super) fn leave_if_old(&self, pause: Duration, old: Duration) {
        let now = BootClock.now();
        let mut state = self.lock();
        let is_over = |since: Option<Moment>, limit| since.is_some_and(|it| now.since(it) > limit);
        let left = is_over(state.asked, pause) || is_over(state.made, old);
        state.asked = Some(now);
        if left && state.pending.is_empty() {
            (state.line, state.watched, state.made) = (None, None, None);
        }
    }

    /// Whether nobody looked for answers, and the caller does from now on.
    pub(super) fn may_look(&self) -> bool {
        !self.looking.load(Ordering::Relaxed) && !self.looking.swap(true, Ordering::AcqRel)
    }

    /// Takes off the line what is there; whether anybody waited for it. Problems are left to the
    /// thread.
    pub(super) fn look(&self) -> bool {
        // Somebody else has it in hand: no need to stand in line.
        let Ok(mut state) = self.state.try_lock() else { return false };
        self.take(&mut state).unwrap_or_else(|_| {
            self.ring();
            true
        })
    }

    /// The caller that looked has its answer: let the next one look.
    pub(super) fn found(&self) {
        self.looking.store(false, Ordering::Release);
        let state = self.lock();
        let (next, crowded) = (state.pending.front().cloned(), state.pending.len() > CROWD);
        drop(state);
        if let Some(next) = next {
            if !crowded {
                next.wake();
            }
            self.rouse();
        }
    }

    /// The caller that looked gives up: let the thread wait for the answer.
    pub(super) fn looked_in_vain(&self) {
        self.looking.store(false, Ordering::Release);
        self.care.store(Care::Awake as u8, Ordering::Release);
        self.ring();
    }

    /// The caller that looked has enough: let the next one look. What nobody waits for any more may
    /// be taken off the line by whoever asks next.
    pub(super) fn looked_enough(&self) {
        self.looking.store(false, Ordering::Release);
        let state = self.lock();
        let next = state.pending.iter().find(|slot| slot.is_awaited()).cloned();
        let left = !state.pending.is_empty();
        drop(state);
        match next {
            Some(next) => {
                next.wake();
                self.rouse();
            }
            None if left => self.care_for_at_least(Care::Dozing),
            None => {}
        }
    }

    /// The connection, if there is one.
    pub(super) fn watched(&self) -> Option<Arc<OwnedFd>> {
        self.lock().watched.clone()
    }

    /// Until there is something to read, or for so long.
    pub(super) fn sleep(&self, patience: Duration) {
        if let Some(line) = self.watched() {
            // It only fails for want of memory; then it is looked at once more.
            drop(wait(&mut [PollFd::new(&line, PollFlags::IN)], Some(patience)));
        }
    }

    pub(super) fn is_looked_for(&self) -> bool {
        self.looking.load(Ordering::Acquire)
    }

    /// Takes off the line what is there, and gives it to whom it belongs; whether anybody waited
    /// for it.
    pub(super) fn take(&self, state: &mut State) -> io::Result<bool> {
        let State { line: Some(line), pending, .. } = state else { return Ok(false) };
        if line.waits() {
            line.flush()?;
        }
        let heard = line.hear();
        let mut any = false;
        while let Some(value) = line.next()? {
            self.answers.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = pending.front() else {
                let what = "it answers what was not asked";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            };
            any |= slot.is_awaited();
            if slot.put(value) {
                pending.pop_front();
            }
        }
        heard.map(|_| any)
    }

    /// Makes sure that the thread takes care of what is under way.
    pub(super) fn rouse(&self) {
        self.care_for_at_least(Care::Awake);
    }

    fn care_for_at_least(&self, care: Care) {
        if self.care.load(Ordering::Acquire) < care as u8
            && self.care.swap(Care::Awake as u8, Ordering::AcqRel) < care as u8
        {
            self.ring();
        }
    }

    /// The thread says what it does from now on; under the lock, so that whoever needs more rings.
    pub(super) fn cares(&self, care: Care) {
        self.care.store(care as u8, Ordering::Release);
    }

    /// Wakes the thread.
    pub(super) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // It only fails when it was rung 2^64 times before the thread heard it.
            rustix::io::write(&self.bell, &1u64.to_ne_bytes()).ok();
        }
    }

    /// The thread has heard the bell; what was rung for is seen after this.
    pub(super) fn heard_bell(&self) {
        let mut count = [0; 8];
        // It has just been found to be there.
        rustix::io::read(&self.bell, &mut count).ok();
        self.rung.store(false, Ordering::Release);
    }
}
