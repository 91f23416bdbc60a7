//! [`Journal`]: what happened, in order; the end of it is shown when a rule is broken.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

/// How much of the past a failure shows.
const SHOWN: usize = 80;

/// One worker of one process; worker 0 is the process itself, process 0 the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Who {
    pub(crate) process: usize,
    /// How many times the process was started before.
    pub(crate) life: u64,
    pub(crate) worker: usize,
}

impl Who {
    pub(crate) const STORE: Self = Self { process: 0, life: 0, worker: 0 };
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.process, self.worker) {
            (0, _) => f.write_str("store"),
            (process, 0) => write!(f, "p{process}.{}", self.life),
            (process, worker) => write!(f, "p{process}.{} w{worker}", self.life),
        }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    at: Duration,
    who: Who,
    what: &'static str,
    lock: Option<usize>,
    number: u64,
}

/// Counts everything, remembers the last of it, and sums all of it up in one number.
pub(crate) struct Journal {
    last: VecDeque<Entry>,
    counts: BTreeMap<&'static str, u64>,
    entries: u64,
    hash: u64,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self {
            last: VecDeque::new(),
            counts: BTreeMap::new(),
            entries: 0,
            hash: 0xcbf2_9ce4_8422_2325,
        }
    }

    pub(crate) fn note(
        &mut self,
        at: Duration,
        who: Who,
        what: &'static str,
        lock: Option<usize>,
        number: u64,
    ) {
        let entry = Entry { at, who, what, lock, number };
        self.entries += 1;
        *self.counts.entry(what).or_default() += 1;
        let micros = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let place = (who.process * 8 + who.worker) * 64 + lock.map_or(63, |lock| lock);
        let length = u64::try_from(what.len() * 4096 + place).unwrap_or(u64::MAX);
        for word in [micros, who.life, length, number] {
            // FNV-1a by words: only equality of two runs is asked of it.
            self.hash = (self.hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
        }
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back(entry);
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.clone()
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The last entries, one per line.
    pub(crate) fn timeline(&self, names: &[String]) -> String {
        let mut text = String::new();
        for entry in &self.last {
            let lock = entry.lock.and_then(|lock| names.get(lock)).map_or("", String::as_str);
            let at = entry.at.as_secs_f64();
            let (who, what) = (entry.who.to_string(), entry.what);
            text.push_str(&format!(
                "{at:>14.3} s  {who:<10} {what:<26} {lock:<8} {}\n",
                entry.number
            ));
        }
        text
    }
}
