//! [`Pace`]: how soon answers are found by looking for them, and so whether it pays to look.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// In microseconds: a server that takes longer is not looked for, as sleeping costs less. Waking a
/// server whose processor sleeps takes about half of it.
const FAR: u32 = 200;
/// The same where whoever waits sleeps meanwhile, and only keeps its thread from other work.
const FAR_ASLEEP: u32 = 500;
/// What is believed before the first answer.
const GUESS: u32 = 60;
/// While it does not pay to look, one request in so many looks all the same: things change.
const PROBE: u32 = 32;

/// A moving average of the time to an answer that was looked for, in microseconds.
#[derive(Debug)]
pub struct Pace {
    micros: AtomicU32,
    /// Requests that did not look.
    skipped: AtomicU32,
    far: u32,
    /// With one processor, looking would keep the server from answering.
    alone: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

impl Pace {
    /// Of a server that is not known yet.
    #[must_use]
    pub fn new() -> Self {
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        Self { micros: AtomicU32::new(GUESS), skipped: AtomicU32::new(0), far: FAR, alone }
    }

    /// Of several that are asked together, by somebody who sleeps until they answer.
    #[must_use]
    pub fn of_several() -> Self {
        let micros = AtomicU32::new(FAR);
        Self { micros, skipped: AtomicU32::new(0), far: FAR_ASLEEP, alone: false }
    }

    /// Whether answers come soon enough to be looked for.
    pub fn is_quick(&self) -> bool {
        !self.alone && self.micros.load(Ordering::Relaxed) < self.far
    }

    /// How long to look for the answer to this request, if at all.
    pub fn patience(&self) -> Option<Duration> {
        let usual = self.micros.load(Ordering::Relaxed);
        if self.is_quick() {
            return Some(Duration::from_micros(u64::from(usual + usual / 4 + 30)));
        }
        let probes = self.skipped.fetch_add(1, Ordering::Relaxed) % PROBE == PROBE - 1;
        (probes && !self.alone).then_some(Duration::from_micros(self.far.into()))
    }

    /// An answer was found by looking, after so long.
    pub fn found(&self, took: Duration) {
        self.learn(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }

    /// Looking for an answer was in vain.
    pub fn in_vain(&self) {
        self.learn(2 * self.far);
    }

    fn learn(&self, took: u32) {
        let before = self.micros.load(Ordering::Relaxed);
        // An update that is lost to another one is not missed.
        self.micros.store(before - before / 8 + took.min(2 * self.far) / 8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> Pace {
        Pace { micros: AtomicU32::new(GUESS), skipped: AtomicU32::new(0), far: FAR, alone: false }
    }

    #[test]
    fn a_server_far_away_is_not_looked_for() {
        let pace = pace();
        assert!(pace.patience().unwrap() >= Duration::from_micros(GUESS.into()));
        (0..16).for_each(|_| pace.in_vain());
        let looks = (0..10 * PROBE).filter(|_| pace.patience().is_some()).count();
        assert_eq!(looks, 10, "now and then it is looked whether that has changed");
        (0..32).for_each(|_| pace.found(Duration::from_micros(40)));
        assert!(pace.is_quick() && pace.patience().is_some());
    }

    #[test]
    fn an_answer_as_slow_as_can_be_overflows_nothing() {
        let pace = pace();
        (0..100).for_each(|_| pace.found(Duration::MAX));
        assert!(!pace.is_quick());
    }
}
