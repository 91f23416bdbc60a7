//! [`Lane`]: a connection, driven by its thread or by whoever waits for an answer.
//!
//! A server nearby answers sooner than a thread can be put to sleep and woken up. So whoever asks
//! drives the connection itself for a moment, one at a time; what comes later is left to the thread.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use sprag_core::clock::{BootClock, Clock};
use tokio_postgres::AsyncMessage;

use super::connect::Half;
use crate::advisory::Life;

/// A connection that several threads may drive.
pub(crate) struct Lane {
    half: Mutex<Option<Half>>,
    bell: Arc<Bell>,
    abandoned: Arc<AtomicBool>,
    /// The session on it, if it has locks.
    life: Option<Life>,
}

/// Wakes the thread, unless somebody looks anyway.
#[derive(Debug, Default)]
struct Bell {
    thread: AtomicWaker,
    looking: AtomicBool,
    rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, SeqCst);
        if !self.looking.load(SeqCst) {
            self.thread.wake();
        }
    }
}

impl Bell {
    fn starts_to_look(&self) -> bool {
        !self.looking.swap(true, SeqCst)
    }

    fn stops_looking(&self) {
        self.looking.store(false, SeqCst);
        if self.rung.load(SeqCst) {
            self.thread.wake();
        }
    }
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
        if let Some(life) = &self.0.life {
            life.end();
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}

impl Lane {
    pub(super) fn new(half: Half, abandoned: Arc<AtomicBool>, life: Option<Life>) -> Self {
        Self { half: Mutex::new(Some(half)), bell: Arc::default(), abandoned, life }
    }

    /// Reads what the server says until the connection ends.
    pub(super) async fn drive(&self) {
        let _end = End(self);
        let turns = std::future::poll_fn(|context| {
            self.bell.thread.register(context.waker());
            self.turn()
        });
        turns.await;
    }

    /// Looks for the outcome of `work` for so long; only one does so at a time.
    pub(super) fn look<F: Future>(
        &self,
        mut work: Pin<&mut F>,
        context: &mut Context<'_>,
        patience: Duration,
    ) -> Looked<F::Output> {
        if !self.bell.starts_to_look() {
            return Looked::Not;
        }
        let until = BootClock.now().plus(patience);
        let found = loop {
            if let Poll::Ready(outcome) = work.as_mut().poll(context) {
                break Looked::Found(outcome);
            }
            if self.turn().is_ready() || BootClock.now() >= until {
                break Looked::InVain;
            }
            std::hint::spin_loop();
        };
        self.bell.stops_looking();
        found
    }

    /// Sends and receives what can be; ready when the connection has ended.
    fn turn(&self) -> Poll<()> {
        let mut half = match self.half.try_lock() {
            Ok(half) => half,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Somebody else does it.
            Err(TryLockError::WouldBlock) => return Poll::Pending,
        };
        self.bell.rung.store(false, SeqCst);
        let waker = Waker::from(Arc::clone(&self.bell));
        let mut context = Context::from_waker(&waker);
        while let Some(connection) = half.as_mut() {
            match connection.poll_message(&mut context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(message))) => self.hear(&message),
                Poll::Ready(ended) => {
                    let error = ended.and_then(Result::err);
                    tracing::debug!(target: "sprag::postgres", ?error, "the connection ended");
                    *half = None;
                }
            }
        }
        drop(half);
        // The thread has to know, whoever found out.
        self.bell.thread.wake();
        Poll::Ready(())
    }

    fn hear(&self, message: &AsyncMessage) {
        if let (Some(life), AsyncMessage::Notification(note)) = (&self.life, message) {
            life.hear(note.payload());
        }
    }

    /// Ends the connection: what was not sent yet never is.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, SeqCst);
        *self.half.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.bell.thread.wake();
    }
}
