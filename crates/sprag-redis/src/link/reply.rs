//! [`Reply`]: waiting for the answers to one request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use sprag_core::clock::{BootClock, Clock, Moment};

use super::shared::Shared;
use super::slot::Slot;
use crate::error::Trouble;
use crate::resp::Value;

/// The answers to one request, some day.
///
/// A server nearby answers sooner than a thread can be put to sleep and woken up. So whoever asks
/// looks at the socket itself for a moment, over and over, letting the other tasks of its runtime
/// run in between; one at a time does so, for everybody. What comes later is left to the thread.
#[derive(Debug)]
pub(super) struct Reply {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    looks: Looks,
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
    pub(super) fn new(shared: Arc<Shared>, slot: Arc<Slot>) -> Self {
        let looks = match shared.pace.patience() {
            Some(patience) => Looks::May(slot.asked.plus(patience)),
            None => Looks::No,
        };
        let mut reply = Self { shared, slot, looks };
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

    fn stops_looking(&mut self, found: bool) {
        match std::mem::replace(&mut self.looks, Looks::No) {
            Looks::Does(_) if found => self.shared.found(),
            Looks::Does(_) => self.shared.looked_in_vain(),
            _ => {}
        }
    }
}

impl Future for Reply {
    type Output = Result<Vec<Value>, Trouble>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut answer = self.slot.poll(cx);
        if answer.is_pending() && self.starts_to_look() {
            self.shared.look();
            answer = self.slot.poll(cx);
            if answer.is_pending() {
                match self.looks {
                    Looks::Does(until) if BootClock.now() < until => cx.waker().wake_by_ref(),
                    _ => self.stops_looking(false),
                }
            }
        }
        if answer.is_ready() {
            self.shared.pace.learn(BootClock.now().since(self.slot.asked));
            self.stops_looking(true);
        }
        answer
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // The request goes on without its caller; somebody has to take the answer off the line.
        self.stops_looking(false);
    }
}
