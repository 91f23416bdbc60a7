//! [`Rest`]: whether the thread leaves the socket alone for a moment.
//!
//! Where one request comes after the other, and whoever asks finds its answer by itself, to watch the
//! socket in between would wake the thread for each of them, for nothing. So it rests until nobody has
//! looked for a moment. Nothing that it has to hear at once may be on its way then.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// How long nobody has to look before the socket is watched again. What comes unasked is heard so much
/// later, at most about twice as much.
const MOMENT: Duration = Duration::from_millis(1);
/// The same where they go on looking: the thread need not wake up so often to see that they do.
const LONGEST: Duration = Duration::from_millis(8);

/// Whether the thread leaves the socket alone, and what keeps it from that.
#[derive(Debug, Default)]
pub(super) struct Rest {
    rests: AtomicBool,
    /// How often somebody has looked.
    looks: AtomicU64,
    /// Answers that are left to the thread.
    errands: AtomicUsize,
}

/// An answer that is left to the thread.
#[derive(Debug)]
pub(super) struct Errand(Arc<Rest>);

impl Drop for Errand {
    fn drop(&mut self) {
        self.0.errands.fetch_sub(1, SeqCst);
    }
}

/// What the thread remembers of its rest.
pub(super) struct Nap {
    until: Pin<Box<Sleep>>,
    looks: u64,
    length: Duration,
}

impl Nap {
    pub(super) fn new() -> Self {
        Self { until: Box::pin(sleep(Duration::ZERO)), looks: 0, length: Duration::ZERO }
    }
}

impl Rest {
    /// Somebody has looked, and nothing is left to do: the thread may rest. Whether it has to be told.
    pub(super) fn begins(&self) -> bool {
        self.looks.fetch_add(1, SeqCst);
        !self.rests.swap(true, SeqCst)
    }

    pub(super) fn ends(&self) {
        self.rests.store(false, SeqCst);
    }

    pub(super) fn rests(&self) -> bool {
        self.rests.load(SeqCst)
    }

    pub(super) fn has_errands(&self) -> bool {
        self.errands.load(SeqCst) > 0
    }

    /// From now on the thread has an answer to find.
    pub(super) fn errand(self: &Arc<Self>) -> Errand {
        self.errands.fetch_add(1, SeqCst);
        Errand(Arc::clone(self))
    }

    /// Whether the thread, which is asked, rests on; it will be asked again when that may be over.
    pub(super) fn goes_on(&self, nap: &mut Nap, context: &mut Context<'_>) -> bool {
        let looks = self.looks.load(SeqCst);
        if self.rests() && !self.has_errands() {
            if looks != nap.looks {
                nap.looks = looks;
                nap.length = (nap.length * 2).clamp(MOMENT, LONGEST);
                nap.until.as_mut().reset(Instant::now() + nap.length);
            }
            if nap.until.as_mut().poll(context) == Poll::Pending {
                return true;
            }
        }
        nap.length = Duration::ZERO;
        false
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn goes_on(rest: &Rest, nap: &mut Nap) -> bool {
        poll_fn(|context| Poll::Ready(rest.goes_on(nap, context))).await
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_on_for_as_long_as_somebody_looks_now_and_then() {
        let (rest, mut nap) = (Rest::default(), Nap::new());
        assert!(!goes_on(&rest, &mut nap).await, "nobody has looked");
        assert!(rest.begins() && !rest.begins(), "told once");
        for _ in 0..5 {
            assert!(goes_on(&rest, &mut nap).await);
            tokio::time::advance(MOMENT * 2 / 3).await;
            rest.begins();
        }
        assert!(goes_on(&rest, &mut nap).await);
        tokio::time::advance(LONGEST * 2).await;
        assert!(!goes_on(&rest, &mut nap).await, "nobody looks any more");
        rest.begins();
        assert!(goes_on(&rest, &mut nap).await);
        tokio::time::advance(MOMENT * 2).await;
        assert!(!goes_on(&rest, &mut nap).await, "one look is soon forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_rests_who_has_something_to_do() {
        let (rest, mut nap) = (Arc::new(Rest::default()), Nap::new());
        rest.begins();
        let errand = rest.errand();
        assert!(!goes_on(&rest, &mut nap).await);
        drop(errand);
        assert!(goes_on(&rest, &mut nap).await);
        rest.ends();
        assert!(!goes_on(&rest, &mut nap).await);
    }
}
