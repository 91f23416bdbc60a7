//! [`Bell`]: futures on a thread that waits in poll(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};

/// Becomes readable when one of the futures that were polled with it can go on.
#[derive(Clone, Debug)]
pub(crate) struct Bell(Arc<Rope>);

#[derive(Debug)]
struct Rope(OwnedFd);

impl Wake for Rope {
    fn wake(self: Arc<Self>) {
        // Fails only when it has rung more often than can be counted: it rings all the same.
        rustix::io::write(&self.0, &1_u64.to_ne_bytes()).ok();
    }
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(Rope(eventfd(0, flags)?))))
    }

    /// Lets a future go on; what it waits for rings the bell.
    pub(crate) fn poll<T>(&self, future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.0));
        future.poll(&mut Context::from_waker(&waker))
    }

    /// Makes it silent again.
    pub(crate) fn silence(&self) {
        // Nothing to read means that it is silent.
        rustix::io::read(&self.0.0, &mut [0; 8]).ok();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}
