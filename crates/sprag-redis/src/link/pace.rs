//! [`Pace`]: how long answers take, and so whether it pays to look for them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A server that takes longer is not looked for: sleeping costs less.
const FAR: u32 = 80;
/// What is believed before the first answer.
const GUESS: u32 = 30;

/// A moving average of the time to an answer, in microseconds.
#[derive(Debug)]
pub(super) struct Pace {
    micros: AtomicU32,
    /// With one processor, looking would keep the server from answering.
    alone: bool,
}

impl Pace {
    pub(super) fn new() -> Self {
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        Self { micros: AtomicU32::new(GUESS), alone }
    }

    /// How long to look for an answer, if at all.
    pub(super) fn patience(&self) -> Option<Duration> {
        let usual = self.micros.load(Ordering::Relaxed);
        (usual < FAR && !self.alone)
            .then(|| Duration::from_micros(u64::from(usual + usual / 4 + 10)))
    }

    pub(super) fn learn(&self, took: Duration) {
        let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX).min(10 * FAR);
        let before = self.micros.load(Ordering::Relaxed);
        // An update that is lost to another one is not missed.
        self.micros.store(before - before / 8 + took / 8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_far_away_is_not_looked_for() {
        let pace = Pace { micros: AtomicU32::new(GUESS), alone: false };
        assert!(pace.patience().unwrap() >= Duration::from_micros(GUESS.into()));
        for _ in 0..16 {
            pace.learn(Duration::from_secs(5));
        }
        assert_eq!(pace.patience(), None);
        for _ in 0..64 {
            pace.learn(Duration::from_micros(40));
        }
        assert!(pace.patience().is_some());
    }
}
