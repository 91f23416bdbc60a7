//! [`Reply`]: waiting for the answers to one request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};

use super::shared::Shared;
use super::slot::Slot;
use crate::error::Trouble;
use crate::resp::Value;

/// So long it is looked at a time. To go through the runtime for each look would wake its other
/// threads, which takes longer than the answer.
const TURN: Duration = Duration::from_micros(100);

/// The answers to one request, some day.
///
/// A server nearby answers sooner than a thread can be put to sleep and woken up. So whoever asks
/// looks at the socket itself for a moment, over and over or asleep, and now and then lets the other
/// tasks of its runtime run; one at a time does so, for everybody. What comes later is left to the
/// thread.
#[derive(Debug)]
pub(super) struct Reply {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    looks: Looks,
    asleep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looks {
    /// May look until then, if nobody else does.
    May(Moment),
    /// Looks, until then.
    Does(Moment),
    /// Leaves it to others.
    No,
}

impl Reply {
    /// One for which somebody looks together with others, see [`Vigil`](super::Vigil), or the thread.
    pub(super) fn left_to_others(shared: Arc<Shared>, slot: Arc<Slot>) -> Self {
        if !shared.is_looked_for() {
            shared.rouse();
        }
        Self { shared, slot, looks: Looks::No, asleep: false }
    }

    pub(super) fn new(shared: Arc<Shared>, slot: Arc<Slot>) -> Self {
        let look = shared.pace.look();
        let looks = look.map_or(Looks::No, |look| Looks::May(slot.asked.plus(look.patience)));
        let asleep = look.is_some_and(|look| look.asleep);
        let mut reply = Self { shared, slot, looks, asleep };
        if !reply.starts_to_look() {
            reply.shared.rouse();
        }
        reply
    }

    /// Whether this is now the one that looks.
    fn starts_to_look(&mut self) -> bool {
        if let Looks::May(until) = self.looks
            && self.shared.may_look()
        {
            self.looks = Looks::Does(until);
        }
        matches!(self.looks, Looks::Does(_))
    }

    /// Looks for the answer, until it is there or it is time to let others run.
    fn look(&mut self, cx: &Context<'_>) -> Poll<Result<Vec<Value>, Trouble>> {
        let Looks::Does(until) = self.looks else { return Poll::Pending };
        let turn = BootClock.now().plus(TURN);
        loop {
            let for_others = self.shared.look();
            let answer = self.slot.poll(cx);
            if answer.is_ready() {
                return answer;
            }
            let now = BootClock.now();
            if now >= until {
                self.stops_looking(false);
                return answer;
            }
            // Those who got an answer may want this very thread.
            if for_others || now >= turn {
                cx.waker().wake_by_ref();
                return answer;
            }
            if self.asleep {
                self.shared.sleep(turn.min(until).since(now));
            } else {
                // The server may be waiting for this very processor.
                std::thread::yield_now();
            }
        }
    }

    fn stops_looking(&mut self, found: bool) {
        match std::mem::replace(&mut self.looks, Looks::No) {
            Looks::Does(_) if found => {
                self.shared.pace.found(BootClock.now().since(self.slot.asked));
                self.shared.found();
            }
            Looks::Does(_) => {
                self.shared.pace.in_vain();
                self.shared.looked_in_vain();
            }
            _ => {}
        }
    }
}

impl Future for Reply {
    type Output = Result<Vec<Value>, Trouble>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut answer = self.slot.poll(cx);
        if answer.is_pending() && self.starts_to_look() {
            answer = self.look(cx);
        }
        if answer.is_ready() {
            self.stops_looking(true);
        }
        answer
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.slot.abandon();
        // The request goes on without its caller; somebody has to take the answer off the line.
        self.stops_looking(false);
    }
}
