//! [`Pace`]: how soon answers are found by looking for them, and so whether it pays to look.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// In microseconds: a server that takes longer is not looked for, but left to a thread. Whoever
/// looks keeps its own thread from other work meanwhile.
const FAR: u32 = 500;
/// An answer that takes longer is waited for asleep, as being woken is little beside it. To wake a
/// server whose processor sleeps takes about half of this.
const NEAR: u32 = 200;
/// What is believed before the first answer.
const GUESS: u32 = 60;
/// While it does not pay to look, one request in so many looks all the same: things change.
const PROBE: u32 = 32;

/// How to look for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// For how long.
    pub patience: Duration,
    /// Whether to sleep until something comes, instead of looking again and again.
    pub asleep: bool,
}

/// The usual time to an answer that was looked for, in microseconds: half of them take longer. An
/// average would say little, as an answer takes a hundred times as long now and then, whenever a
/// processor is busy with something else.
#[derive(Debug)]
pub struct Pace {
    micros: AtomicU32,
    /// Requests that did not look.
    skipped: AtomicU32,
    /// With one processor, looking awake would keep the server from answering.
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
        Self { micros: AtomicU32::new(GUESS), skipped: AtomicU32::new(0), alone }
    }

    /// Whether answers come soon enough to be looked for.
    pub fn is_quick(&self) -> bool {
        self.micros.load(Ordering::Relaxed) < FAR
    }

    /// How to look for the answer to this request, if at all.
    pub fn look(&self) -> Option<Look> {
        let usual = self.micros.load(Ordering::Relaxed);
        let asleep = self.alone || usual >= NEAR;
        if self.is_quick() {
            let patience = Duration::from_micros(u64::from(2 * usual + 30));
            return Some(Look { patience, asleep });
        }
        let probes = self.skipped.fetch_add(1, Ordering::Relaxed) % PROBE == PROBE - 1;
        probes.then_some(Look { patience: Duration::from_micros(FAR.into()), asleep })
    }

    /// An answer was found by looking, after so long.
    pub fn found(&self, took: Duration) {
        self.learn(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }

    /// Looking for an answer was in vain, which costs more than a slow answer.
    pub fn in_vain(&self) {
        self.learn(2 * FAR);
        self.learn(2 * FAR);
    }

    fn learn(&self, took: u32) {
        let before = self.micros.load(Ordering::Relaxed);
        let step = before / 8 + 1;
        // An update that is lost to another one is not missed.
        self.micros.store(
            took.min(2 * FAR).clamp(before - step.min(before), before + step),
            Ordering::Relaxed,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> Pace {
        Pace { micros: AtomicU32::new(GUESS), skipped: AtomicU32::new(0), alone: false }
    }

    fn found(pace: &Pace, micros: u64) {
        (0..64).for_each(|_| pace.found(Duration::from_micros(micros)));
    }

    #[test]
    fn a_server_far_away_is_not_looked_for() {
        let pace = pace();
        assert!(pace.look().unwrap().patience >= Duration::from_micros(GUESS.into()));
        (0..16).for_each(|_| pace.in_vain());
        let looks = (0..10 * PROBE).filter(|_| pace.look().is_some()).count();
        assert_eq!(looks, 10, "now and then it is looked whether that has changed");
        found(&pace, 40);
        assert!(pace.is_quick() && pace.look().is_some());
    }

    #[test]
    fn whoever_waits_longer_sleeps_and_with_one_processor_always() {
        let mut pace = pace();
        found(&pace, 100);
        assert!(!pace.look().unwrap().asleep);
        found(&pace, 300);
        assert!(pace.look().unwrap().asleep);
        found(&pace, 100);
        pace.alone = true;
        assert!(pace.look().unwrap().asleep);
    }

    #[test]
    fn a_few_answers_that_take_long_change_nothing() {
        let pace = pace();
        for _ in 0..100 {
            (0..7).for_each(|_| pace.found(Duration::from_micros(100)));
            (0..2).for_each(|_| pace.found(Duration::from_millis(5)));
            pace.in_vain();
        }
        assert!(pace.is_quick() && !pace.look().unwrap().asleep);
    }

    #[test]
    fn an_answer_as_slow_as_can_be_overflows_nothing() {
        let pace = pace();
        (0..100).for_each(|_| pace.found(Duration::MAX));
        assert!(!pace.is_quick());
    }
}
