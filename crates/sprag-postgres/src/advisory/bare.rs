//! What a process keeps about its bare locks, which is little: what they are and the races they survive
//! stand in `bare.sql`, as the server has the note of them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};

use crate::link::Link;

/// Tells bare visits to the audit trail.
pub(crate) const TELL: &str = "SELECT sprag.tell_visits_v1($1)::text";
/// Of so many that were not told yet the newest are kept. They are told each second; more would cost as
/// much as to write down each.
const KEPT: usize = 200;
/// One that comes so long after the last that was told is told at once.
const ALONE: Duration = Duration::from_millis(10);
/// How long it takes a process at most that lives to write down what others want.
const LONGEST: Duration = Duration::from_millis(250);

/// The bare visits that are not in the trail yet, each as the server wrote it.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    visits: VecDeque<String>,
    told: Moment,
}

impl Visits {
    /// Whether the next visit that ends is to be told at once: where they are few, nothing of them is
    /// late or lost.
    pub(super) fn tell_at_once(&self) -> bool {
        let now = BootClock.now();
        let mut kept = self.kept();
        let at_once = now.since(kept.told) >= ALONE;
        if at_once {
            kept.told = now;
        }
        at_once
    }

    /// A visit that has ended then.
    pub(super) fn add(&self, ended_us: u64, line: &str) {
        let mut kept = self.kept();
        if kept.visits.len() == KEPT {
            kept.visits.pop_front();
        }
        kept.visits.push_back(format!("{ended_us}\t{line}"));
    }

    /// All of them, if there are any; they are not kept any longer.
    pub(crate) fn take(&self) -> Option<Vec<String>> {
        let visits = std::mem::take(&mut self.kept().visits);
        (!visits.is_empty()).then(|| visits.into())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pauses while somebody else writes down what it has: longer each time, and not for ever, as it may
/// hang.
pub(super) struct Pause<'a> {
    link: &'a Link,
    began: Moment,
    next: Duration,
}

impl<'a> Pause<'a> {
    pub(super) fn new(link: &'a Link) -> Self {
        Self { link, began: BootClock.now(), next: Duration::from_millis(1) }
    }

    /// Waits, unless it was waited for long enough.
    pub(super) async fn has_waited(&mut self) -> bool {
        if BootClock.now().since(self.began) >= LONGEST {
            return false;
        }
        self.link.sleep(self.next).await;
        self.next *= 2;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_visits_are_told_at_once_and_of_many_the_newest_are_kept() {
        let visits = Visits::default();
        assert!(visits.tell_at_once());
        assert!(!visits.tell_at_once(), "it was told a moment ago");
        assert_eq!(visits.take(), None);
        for number in 0..=KEPT {
            visits.add(number as u64, "a line");
        }
        let kept = visits.take().unwrap();
        assert_eq!((kept.len(), kept[0].as_str()), (KEPT, "1\ta line"));
        assert_eq!(visits.take(), None);
    }
}
