//! [`Lane`]: a connection, driven by its thread or by whoever waits for an answer.
//!
//! A server nearby answers sooner than a thread can be put to sleep and woken up. So whoever asks
//! drives the connection itself for a moment, one at a time; what comes later is left to the thread.
//! Where an answer takes a little longer whoever asks sleeps, but without waking up the thread.

use std::fmt;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use sprag_core::clock::{BootClock, Clock};
use sprag_core::pace::Look;
use tokio_postgres::AsyncMessage;

use super::connect::Half;
use super::ear::Hearer;
use super::rest::{Errand, Nap, Rest};
use super::wire::Grip;

/// The longest that whoever asks keeps its thread: it may be one of a runtime, with other tasks.
const LONGEST: Duration = Duration::from_micros(500);

/// A connection that several threads may drive.
pub(crate) struct Lane {
    open: Mutex<Option<Open>>,
    bell: Arc<Bell>,
    abandoned: Arc<AtomicBool>,
    /// Whether the runtime is not to watch the socket.
    looked_for: Arc<AtomicBool>,
    rest: Arc<Rest>,
    /// What is told on it unasked is for this.
    hearer: Hearer,
}

struct Open {
    half: Half,
    /// The socket as well, to wait for it without a runtime.
    socket: Arc<OwnedFd>,
}

/// Wakes the thread, unless somebody looks anyway.
#[derive(Debug, Default)]
struct Bell {
    thread: AtomicWaker,
    looking: AtomicBool,
    rung: AtomicBool,
    /// Whether the thread may have read what somebody looks for.
    served: AtomicBool,
    /// Whether whoever looks sleeps, and so has to be woken to send what others ask.
    asleep: AtomicBool,
    /// Written to in order to wake it.
    nudge: Option<OwnedFd>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, SeqCst);
        if self.looking.load(SeqCst) {
            self.rouse();
        } else {
            self.thread.wake();
        }
    }
}

impl Bell {
    fn new() -> Self {
        // Without it nobody sleeps.
        let nudge = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        Self { nudge, ..Self::default() }
    }

    /// Wakes whoever looks, if it sleeps.
    fn rouse(&self) {
        if self.asleep.load(SeqCst)
            && let Some(nudge) = &self.nudge
        {
            // It only fails when it was nudged 2^64 times before.
            rustix::io::write(nudge, &1u64.to_ne_bytes()).ok();
        }
    }

    /// The thread has read what there was, and with it perhaps what somebody looks for: the socket
    /// does not tell that one any more.
    fn serve(&self) {
        if self.looking.load(SeqCst) {
            self.served.store(true, SeqCst);
            self.rouse();
        }
    }

    /// Until there is something to read or to send, or for so long; whether it could.
    fn sleep(&self, socket: &OwnedFd, patience: Duration) -> bool {
        let (Some(nudge), Ok(patience)) = (&self.nudge, patience.try_into()) else { return false };
        self.asleep.store(true, SeqCst);
        // Who rings from here on sees that it sleeps.
        if !self.rung.load(SeqCst) && !self.served.load(SeqCst) {
            let on = |fd| PollFd::new(fd, PollFlags::IN);
            // If it fails or is interrupted, it is looked at once more.
            poll(&mut [on(socket), on(nudge)], Some(&patience)).ok();
        }
        self.asleep.store(false, SeqCst);
        rustix::io::read(nudge, &mut [0; 8]).ok();
        true
    }

    fn starts_to_look(&self) -> bool {
        !self.looking.swap(true, SeqCst)
    }
}

/// What came of a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// What could be sent and received was.
    Done,
    /// Somebody else does it.
    InOtherHands,
    /// The connection has ended.
    Ended,
}

/// What came of looking.
pub(super) enum Looked<T> {
    Found(T),
    InVain,
    /// Somebody else looks.
    Not,
}

/// Tells that the session is over, however its connection ends.
struct End<'a>(&'a Lane);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.hearer.end();
        if std::thread::panicking() {
            // Nobody would read what comes.
            self.0.abandon();
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}

impl Lane {
    pub(super) fn new(half: Half, grip: Grip, hearer: Hearer) -> Self {
        let Grip { abandoned, looked_for, socket } = grip;
        let open = Mutex::new(Some(Open { half, socket }));
        let (bell, rest) = (Arc::new(Bell::new()), Arc::default());
        Self { open, bell, abandoned, looked_for, rest, hearer }
    }

    /// Reads what the server says until the connection ends.
    pub(super) async fn drive(&self) {
        let _end = End(self);
        let mut nap = Nap::new();
        let turns = std::future::poll_fn(|context| {
            self.bell.thread.register(context.waker());
            // What somebody rings for who looks is in good hands.
            let rung = self.bell.rung.load(SeqCst) && !self.bell.looking.load(SeqCst);
            let calm = !rung && self.waiters() == 0;
            if calm && self.rest.goes_on(&mut nap, context) {
                return Poll::Pending;
            }
            self.rest.ends();
            if !self.bell.looking.load(SeqCst) {
                self.looked_for.store(false, SeqCst);
            }
            // Who has it in hand wakes the thread if anything is left to do.
            let turn = self.turn();
            self.bell.serve();
            if turn == Turn::Ended { Poll::Ready(()) } else { Poll::Pending }
        });
        turns.await;
    }

    /// Sends `work`, and looks for its outcome; only one does so at a time.
    pub(super) fn look<F: Future>(
        &self,
        mut work: Pin<&mut F>,
        context: &mut Context<'_>,
        how: Option<Look>,
    ) -> Looked<F::Output> {
        if !self.bell.starts_to_look() {
            // It is sent in its turn all the same: what clears up after a caller that is gone must not
            // overtake what that one has asked for.
            return match work.as_mut().poll(context) {
                Poll::Ready(outcome) => Looked::Found(outcome),
                Poll::Pending => Looked::Not,
            };
        }
        self.looked_for.store(how.is_some(), SeqCst);
        let began = BootClock.now();
        let until = began.plus(how.map_or(Duration::ZERO, |_| LONGEST));
        let awake = how.filter(|how| !how.asleep).map_or(Duration::ZERO, |how| how.patience);
        let awake_until = began.plus(awake);
        // Asking puts the request where the next turn finds it.
        let mut outcome = work.as_mut().poll(context);
        let found = loop {
            if let Poll::Ready(outcome) = outcome {
                break Looked::Found(outcome);
            }
            self.bell.served.store(false, SeqCst);
            let over = self.turn() == Turn::Ended;
            // What was just read may be the answer, of which the socket tells nothing any more.
            outcome = work.as_mut().poll(context);
            if outcome.is_ready() {
                continue;
            }
            let now = BootClock.now();
            let left = until.since(now);
            if over || left.is_zero() {
                break Looked::InVain;
            }
            let slept = now >= awake_until
                && self.socket().is_some_and(|socket| self.bell.sleep(&socket, left));
            if !slept {
                // The server may be waiting for this very processor.
                std::thread::yield_now();
            }
        };
        self.stop_looking(matches!(found, Looked::Found(_)));
        found
    }

    /// The thread is to find an answer that was asked for here.
    pub(super) fn errand(&self) -> Errand {
        let errand = self.rest.errand();
        if self.rest.rests() {
            self.bell.thread.wake();
        }
        errand
    }

    /// How many of this process may be told something on this connection that they wait for.
    fn waiters(&self) -> usize {
        self.hearer.waiters()
    }

    /// What is told on it unasked.
    pub(super) const fn hearer(&self) -> &Hearer {
        &self.hearer
    }

    fn socket(&self) -> Option<Arc<OwnedFd>> {
        // Whoever has it in hand is soon done.
        Some(Arc::clone(&self.open.try_lock().ok()?.as_ref()?.socket))
    }

    /// From now on the thread takes care of what is under way. The runtime watches the socket, at once
    /// if anything may come that was not found.
    fn stop_looking(&self, found: bool) {
        // One of those who wait may be who has just looked.
        let done = found && !self.rest.has_errands() && self.waiters() <= 1;
        let mut left = false;
        if self.looked_for.load(SeqCst) {
            if done {
                left = self.rest.begins();
            } else {
                self.looked_for.store(false, SeqCst);
                // To be watched it has to be read in vain. Who has it in hand may have done so too
                // early.
                left = self.turn() == Turn::InOtherHands;
            }
        }
        self.bell.looking.store(false, SeqCst);
        // The thread may have ended its rest just now and left the socket to whoever looked.
        left |= self.looked_for.load(SeqCst) && !self.rest.rests();
        left |= self.bell.rung.load(SeqCst);
        if left {
            self.bell.thread.wake();
        }
    }

    /// Sends and receives what can be.
    fn turn(&self) -> Turn {
        let mut open = match self.open.try_lock() {
            Ok(open) => open,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Turn::InOtherHands,
        };
        self.bell.rung.store(false, SeqCst);
        let waker = Waker::from(Arc::clone(&self.bell));
        let mut context = Context::from_waker(&waker);
        while let Some(connection) = open.as_mut() {
            match connection.half.poll_message(&mut context) {
                Poll::Pending => return Turn::Done,
                Poll::Ready(Some(Ok(message))) => self.hear(&message),
                Poll::Ready(ended) => {
                    let error = ended.and_then(Result::err);
                    tracing::debug!(target: "sprag::postgres", ?error, "the connection ended");
                    *open = None;
                }
            }
        }
        drop(open);
        // The thread has to know, whoever found out.
        self.rest.ends();
        self.bell.thread.wake();
        Turn::Ended
    }

    fn hear(&self, message: &AsyncMessage) {
        if let AsyncMessage::Notification(note) = message {
            self.hearer.hear(note.payload());
        }
    }

    /// Ends the connection: what was not sent yet never is.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, SeqCst);
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.rest.ends();
        self.bell.thread.wake();
    }
}
