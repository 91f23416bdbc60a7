//! What a process keeps about its bare locks, which is little: what they are and the races they survive
//! stand in `bare.sql`, as the server has the note of them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::{Fence, LeaseId, LockName};

use crate::link::Link;

/// Tells bare visits to the audit trail.
pub(crate) const TELL: &str = "SELECT sprag.tell_visits_v1($1)::text";
/// Of so many that were not told yet the newest are kept. They are told each second; more would cost as
/// much as to write down each.
const KEPT: usize = 200;
/// One that comes so long after the last that was told is told at once.
const ALONE: Duration = Duration::from_millis(10);
/// How long it takes a process at most that lives to write down what others want.
pub(super) const LONGEST: Duration = Duration::from_millis(250);
/// The longest pause between two looks.
const PAUSE: Duration = Duration::from_millis(128);
/// No lock with a shorter time is bare: who does not write it down for so long is disconnected before.
const LEAST: Duration = Duration::from_secs(7);
/// In microseconds: what is bare for longer is not given back that way, as its time may be over.
const OLDEST: u64 = 5_000_000;

/// A bare lock, as the server has noted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(super) text: String,
    since_us: u64,
}

impl Line {
    /// What the server notes after the time.
    pub(super) fn rest(ttl_ms: i64, namespace: &str, name: &LockName, command: &str) -> String {
        format!("\t{ttl_ms}\t{namespace}\t{name}\t{command}\n")
    }

    /// The line that the server has noted for a lease, and its fence; nothing if it says something else.
    pub(super) fn read(text: &str, lease: LeaseId) -> Option<(Self, Fence)> {
        let mut words = text.strip_prefix(&lease.to_string())?.split('\t').skip(2);
        let fence = words.next()?.parse().ok().and_then(Fence::new)?;
        let since_us = words.next()?.parse().ok()?;
        Some((Self { text: text.to_owned(), since_us }, fence))
    }

    pub(super) const fn since_us(&self) -> u64 {
        self.since_us
    }

    /// Until when, by the server's clock, it may be given back as it is noted.
    pub(super) fn until_us(&self) -> i64 {
        i64::try_from(self.since_us + OLDEST).unwrap_or(i64::MAX)
    }

    /// As it is told to the trail.
    pub(super) fn visit(&self) -> &str {
        self.text.trim_end()
    }
}

/// Which records a session of this process has seen empty, and at which number of changes: as long as the
/// server has no later one, they are. See "what was seen" in `again.sql`.
///
/// The server tells no more of them than its session remembers.
#[derive(Debug, Default)]
pub(crate) struct Sights {
    kept: Mutex<Sight>,
}

#[derive(Debug, Default)]
struct Sight {
    session: String,
    number: i64,
    /// The leases that were gone by then, of each lock.
    gone: HashMap<LockName, String>,
}

impl Sights {
    /// The record of a lock was seen in a session.
    pub(super) fn learn(&self, session: &str, number: i64, name: &LockName, gone: &str) {
        let mut kept = self.kept();
        if kept.number != number || kept.session != session {
            *kept = Sight { session: session.to_owned(), number, gone: HashMap::new() };
        }
        if !kept.gone.contains_key(name) {
            kept.gone.insert(name.clone(), gone.to_owned());
        }
    }

    /// In which session and at which number the record of a lock was seen, for a lease that had not
    /// ended by then and that may be bare.
    pub(super) fn recall(
        &self,
        name: &LockName,
        lease: LeaseId,
        ttl: Duration,
    ) -> Option<(String, i64)> {
        let kept = self.kept();
        let gone = kept.gone.get(name).filter(|_| ttl >= LEAST)?;
        let ended = !gone.is_empty() && gone.contains(&lease.to_string());
        (!ended).then(|| (kept.session.clone(), kept.number))
    }

    /// What was seen at a number did not help.
    pub(super) fn forget(&self, number: i64) {
        let mut kept = self.kept();
        if kept.number == number {
            kept.gone.clear();
        }
    }

    fn kept(&self) -> MutexGuard<'_, Sight> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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

/// Pauses while somebody else writes down what it has, or lets go: longer each time, and not for ever, as
/// it may hang.
pub(super) struct Pause<'a> {
    link: &'a Link,
    until: Moment,
    next: Duration,
}

impl<'a> Pause<'a> {
    /// For as long as who lives needs at most to write it down.
    pub(super) fn short(link: &'a Link) -> Self {
        Self::until(link, BootClock.now().plus(LONGEST))
    }

    pub(super) const fn until(link: &'a Link, until: Moment) -> Self {
        Self { link, until, next: Duration::from_millis(1) }
    }

    /// Waits, unless it was waited for long enough.
    pub(super) async fn has_waited(&mut self) -> bool {
        if BootClock.now() >= self.until {
            return false;
        }
        self.link.sleep(self.next).await;
        self.next = PAUSE.min(self.next * 2);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_noted() {
        let (lease, fence) = (LeaseId::from_u128(7), Fence::new(12).unwrap());
        let name = LockName::new("report").unwrap();
        let rest = Line::rest(30_000, "default", &name, r#"{"do":"acquire"}"#);
        let text = format!("{lease}\t-5\t{fence}\t1000{rest}");
        let (line, its_fence) = Line::read(&text, lease).unwrap();
        assert_eq!((line.text.as_str(), its_fence), (text.as_str(), fence));
        assert_eq!((line.since_us(), line.until_us()), (1_000, 5_001_000));
        assert_eq!(line.visit().split('\t').count(), 8);
        for other in ["", "1000 12 session", r#"{"now_us":7}"#, &format!("{lease}\t-5\tx\t1\t")] {
            assert_eq!(Line::read(other, lease), None, "{other}");
        }
        assert_eq!(Line::read(&line.text, LeaseId::from_u128(8)), None);
    }

    #[test]
    fn what_was_seen_counts_in_its_session_until_the_number_changes() {
        let (sights, lease) = (Sights::default(), LeaseId::from_u128(7));
        let [one, two] = ["one", "two"].map(|name| LockName::new(name).unwrap());
        let recall = |name, ttl| sights.recall(name, lease, ttl);
        assert_eq!(recall(&one, LEAST), None);
        sights.learn("here", 5, &one, "");
        sights.learn("here", 5, &two, &format!("{} {lease} ", LeaseId::from_u128(8)));
        assert_eq!(recall(&one, LEAST), Some(("here".into(), 5)));
        assert_eq!(recall(&one, LEAST / 2), None, "it is not bare");
        assert_eq!(recall(&two, LEAST), None, "it has ended");
        sights.forget(4);
        assert_eq!(recall(&one, LEAST), Some(("here".into(), 5)));
        sights.learn("there", 5, &two, "");
        assert_eq!(recall(&one, LEAST), None, "of another session");
        assert_eq!(recall(&two, LEAST), Some(("there".into(), 5)));
        sights.forget(5);
        assert_eq!(recall(&two, LEAST), None);
    }

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
