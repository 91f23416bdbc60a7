//! [`Versions`]: a value with its recent past, for replicas that are behind.

use std::time::Duration;

use crate::stamp::Stamp;

/// No replica is further behind than this.
const KEPT: Duration = Duration::from_secs(120);

/// A value, and what it was shortly before.
#[derive(Clone, Debug)]
pub(crate) struct Versions<T> {
    /// From the oldest to the newest; never empty.
    all: Vec<(Stamp, T)>,
}

impl<T: Clone> Versions<T> {
    /// A value that exists from `at` on.
    pub(crate) fn new(at: Stamp, value: T) -> Self {
        Self { all: vec![(at, value)] }
    }

    /// What it is.
    pub(crate) fn now(&self) -> &T {
        let (_, value) = self.all.last().expect("there is always a version");
        value
    }

    /// What somebody sees who is behind; `None` if it was not there yet.
    pub(crate) fn at(&self, seen: Stamp) -> Option<&T> {
        let newest = self.all.iter().rev().find(|(from, _)| *from <= seen);
        newest.map(|(_, value)| value)
    }

    /// Changes it.
    pub(crate) fn set(&mut self, now: Stamp, value: T) {
        let edge = now.minus(KEPT);
        // The newest of those before the edge is what is seen at the edge.
        let old = self.all.iter().rposition(|(from, _)| *from <= edge).unwrap_or(0);
        self.all.drain(..old);
        if let Some(last) = self.all.last_mut()
            && last.0 == now
        {
            last.1 = value;
            return;
        }
        self.all.push((now, value));
    }

    /// Changes a part of it.
    pub(crate) fn edit(&mut self, now: Stamp, change: impl FnOnce(&mut T)) {
        let mut value = self.now().clone();
        change(&mut value);
        self.set(now, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(seconds: u64) -> Stamp {
        Stamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn the_past_is_seen_as_it_was() {
        let mut versions = Versions::new(second(10), 'a');
        versions.set(second(20), 'b');
        versions.edit(second(30), |value| *value = 'c');
        let seen = |at| versions.at(second(at)).copied();
        assert_eq!(
            [seen(9), seen(10), seen(20), seen(29), seen(99)],
            [None, Some('a'), Some('b'), Some('b'), Some('c')]
        );
        assert_eq!(*versions.now(), 'c');
    }

    #[test]
    fn the_past_is_forgotten_when_no_replica_can_be_that_old() {
        let mut versions = Versions::new(Stamp::BEGINNING, 0);
        for at in 1..10_000 {
            versions.set(second(at), at);
        }
        assert!(versions.all.len() < 130, "{}", versions.all.len());
        assert_eq!(versions.at(second(9_990)), Some(&9_990));
    }
}
