//! [`Slot`]: where the answers to one request are put.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use sprag_core::clock::Moment;

use crate::error::Trouble;
use crate::resp::Value;

/// A request that was sent, or will be.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) asked: Moment,
    /// How many answers it gets: as many as it has commands.
    expected: usize,
    /// Whether whoever asked still waits.
    awaited: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    answers: Vec<Value>,
    ended: Option<Result<(), Trouble>>,
    waker: Option<Waker>,
}

impl Slot {
    pub(super) fn new(asked: Moment, expected: usize) -> Self {
        Self { asked, expected, awaited: AtomicBool::new(true), state: Mutex::default() }
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Acquire)
    }

    /// Nobody waits for the answers any more.
    pub(super) fn abandon(&self) {
        self.awaited.store(false, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts in one answer; whether it was the last.
    pub(super) fn put(&self, answer: Value) -> bool {
        let mut state = self.lock();
        state.answers.push(answer);
        let all = state.answers.len() == self.expected;
        if all {
            end(state, Ok(()));
        }
        all
    }

    /// No answer will come any more.
    pub(super) fn fail(&self, trouble: Trouble) {
        end(self.lock(), Err(trouble));
    }

    /// Lets whoever waits look again.
    pub(super) fn wake(&self) {
        let waker = self.lock().waker.clone();
        waker.iter().for_each(Waker::wake_by_ref);
    }

    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Result<Vec<Value>, Trouble>> {
        let mut state = self.lock();
        match state.ended.take() {
            Some(Ok(())) => Poll::Ready(Ok(std::mem::take(&mut state.answers))),
            Some(Err(trouble)) => Poll::Ready(Err(trouble)),
            None => {
                match &mut state.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

fn end(mut state: MutexGuard<'_, State>, how: Result<(), Trouble>) {
    state.ended = Some(how);
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}
