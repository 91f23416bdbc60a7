//! [`block_on`]: runs a future on this thread, which it lends to a store while it has to wait.
//!
//! A store hears on some thread that a lock was handed to a waiter, and that thread has to wake the
//! one of the waiter, which costs as much as the message itself. A thread that waits in [`block_on`]
//! has nothing else to do: it listens itself.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use rustix::event::{EventfdFlags, eventfd};

/// Something that a waiting thread can listen to.
pub trait Lookout: Send + Sync {
    /// Sleeps until `bell` can be read or something has come, and deals with the latter. It may
    /// return early.
    fn look_out(&self, bell: BorrowedFd<'_>);
}

thread_local! {
    /// Whether a future runs in [`block_on`] on this thread.
    static RUNS: Cell<bool> = const { Cell::new(false) };
    /// Who wants the thread when the future has to wait.
    static WANTED: RefCell<Option<Arc<dyn Lookout>>> = const { RefCell::new(None) };
    /// A bell that is not in use.
    static SPARE: Cell<Option<Arc<Bell>>> = const { Cell::new(None) };
}

/// Asks for this thread, in case that the future that is polled now has to wait: it is lent whenever
/// it has to, until somebody else asks for it. Returns whether it can be: only a thread in
/// [`block_on`].
pub fn borrow(lookout: impl FnOnce() -> Arc<dyn Lookout>) -> bool {
    let can = RUNS.get();
    if can {
        WANTED.replace(Some(lookout()));
    }
    can
}

/// Runs a future on this thread to its end, for programs without an async runtime.
///
/// Any other executor will do, too. This one lets a waiting thread listen for its lock itself, so
/// that a lock of this machine changes hands faster.
///
/// # Examples
///
/// ```
/// # use std::sync::Arc;
/// # use sprag_core::{Client, MemoryStore, block_on};
/// let client = Client::new(Arc::new(MemoryStore::new()));
/// let guard = block_on(client.lock("report").acquire())?;
/// block_on(guard.release())?;
/// # Ok::<(), sprag_core::Error>(())
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = SPARE.take().unwrap_or_else(|| Arc::new(Bell::new()));
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    let mut borrower = None;
    loop {
        let outer = (RUNS.replace(true), WANTED.take());
        // Also after a panic: the thread may go on to do something else.
        let restore = Restore(Some(outer));
        let polled = future.as_mut().poll(&mut context);
        // A part of the future that waits need not be polled each time.
        borrower = WANTED.take().or(borrower);
        drop(restore);
        if let Poll::Ready(output) = polled {
            SPARE.set(Some(bell));
            return output;
        }
        bell.wait(borrower.as_deref());
    }
}

/// What was there before a future was polled, put back when dropped.
struct Restore(Option<(bool, Option<Arc<dyn Lookout>>)>);

impl Drop for Restore {
    fn drop(&mut self) {
        if let Some((ran, wanted)) = self.0.take() {
            RUNS.set(ran);
            WANTED.replace(wanted);
        }
    }
}

/// Wakes one thread, whether it is parked or lent.
#[derive(Debug)]
struct Bell {
    thread: Thread,
    rung: AtomicBool,
    lent: AtomicBool,
    /// Rung for a thread that is lent; made when it first is. `None` inside if there are no more.
    file: OnceLock<Option<OwnedFd>>,
}

impl Bell {
    fn new() -> Self {
        Self {
            thread: std::thread::current(),
            rung: AtomicBool::new(false),
            lent: AtomicBool::new(false),
            file: OnceLock::new(),
        }
    }

    /// Sleeps until it is rung, or until the one who borrows the thread gives it back.
    fn wait(&self, borrower: Option<&dyn Lookout>) {
        let make = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        let file = borrower.and_then(|_| self.file.get_or_init(make).as_ref());
        match (borrower, file) {
            (Some(borrower), Some(file)) => {
                // First this, then the look: who rings does it the other way round.
                self.lent.store(true, Ordering::SeqCst);
                if !self.rung.swap(false, Ordering::SeqCst) {
                    borrower.look_out(file.as_fd());
                }
                self.lent.store(false, Ordering::SeqCst);
                if self.rung.swap(false, Ordering::SeqCst)
                    && let Err(error) = rustix::io::read(file, &mut [0; 8])
                {
                    // It is read the next time, and the future is polled once too often.
                    tracing::trace!(%error, "who rang has not written yet");
                }
            }
            _ => {
                while !self.rung.swap(false, Ordering::SeqCst) {
                    std::thread::park();
                }
            }
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.rung.swap(true, Ordering::SeqCst) {
            return;
        }
        match self.file.get() {
            Some(Some(file)) if self.lent.load(Ordering::SeqCst) => {
                if let Err(error) = rustix::io::write(file, &1_u64.to_ne_bytes()) {
                    tracing::error!(%error, "a waiting thread cannot be woken");
                }
            }
            _ => self.thread.unpark(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::task::{Poll, Waker};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::{Lookout, block_on, borrow};

    /// Counts how often it got the thread.
    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Lookout for Counter {
        fn look_out(&self, bell: BorrowedFd<'_>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            poll(&mut [PollFd::from_borrowed_fd(bell, PollFlags::IN)], None).unwrap();
        }
    }

    /// A future that another thread lets go on so many times, and that asks for a lookout at first.
    fn ring(times: usize, lookout: Option<Arc<Counter>>) -> impl Future<Output = bool> {
        let (sender, receiver) = mpsc::channel::<Waker>();
        std::thread::spawn(move || receiver.into_iter().for_each(|waker| waker.wake()));
        let mut polls = 0;
        poll_fn(move |context| {
            polls += 1;
            if polls > times {
                return Poll::Ready(true);
            }
            if polls == 1
                && let Some(lookout) = &lookout
            {
                assert!(borrow(|| Arc::clone(lookout) as Arc<dyn Lookout>));
            }
            sender.send(context.waker().clone()).unwrap();
            Poll::Pending
        })
    }

    #[test]
    fn a_parked_thread_is_woken() {
        assert!(block_on(ring(100, None)));
        assert_eq!(block_on(async { 7 }), 7);
    }

    #[test]
    fn a_lent_thread_is_woken() {
        let counter = Arc::new(Counter::default());
        assert!(block_on(ring(1000, Some(Arc::clone(&counter)))));
        assert!((2..=1000).contains(&counter.0.load(Ordering::SeqCst)));
        // The next future does not get what this one borrowed.
        let before = counter.0.load(Ordering::SeqCst);
        assert!(block_on(ring(10, None)));
        assert_eq!(counter.0.load(Ordering::SeqCst), before);
    }

    #[test]
    fn one_may_run_within_another() {
        let counter = Arc::new(Counter::default());
        block_on(async {
            assert!(ring(3, Some(Arc::clone(&counter))).await);
            assert!(block_on(ring(3, None)));
            assert!(ring(3, Some(Arc::clone(&counter))).await);
        });
    }

    #[test]
    fn no_thread_is_lent_outside() {
        assert!(!borrow(|| Arc::new(Counter::default())));
        drop(std::panic::catch_unwind(|| block_on(async { panic!("as planned") })));
        assert!(!borrow(|| Arc::new(Counter::default())));
    }
}
