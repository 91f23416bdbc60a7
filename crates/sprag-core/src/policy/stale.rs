//! [`Observations`]: who gave no sign of life, on stores without a clock of their own.
//!
//! Another machine's timestamps decide nothing: its clock may be wrong by hours. What decides is
//! what this process saw itself, on its own clock: *the record has not changed for one TTL since
//! I read it*. That needs clocks that run at about the same speed, not clocks that agree.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Moment;
use crate::name::LockName;

/// A version, and since when this process has seen nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Observation<V = u64> {
    /// What was read: a number or a hash that changes with every sign of life.
    pub version: V,
    /// When the first read that gave this version *returned*.
    pub seen_since: Moment,
}

impl<V> Observation<V> {
    /// Whether the holder had its whole TTL, and 5 % for clocks of different speed, to give a
    /// sign of life since the first read returned.
    ///
    /// The read's return counts, not its send: the version may have been written at any moment
    /// while the read was under way, and the holder counts its TTL from then.
    ///
    /// The lock may then be taken, by compare-and-swap on exactly this version: a sign of life
    /// that came since the last read makes the swap fail.
    pub fn is_stale(&self, now: Moment, ttl: Duration) -> bool {
        let patience = ttl.saturating_add(ttl / 20);
        // An endless TTL never ends, also where the sum reaches the end of time.
        patience < Duration::MAX && now >= self.seen_since.plus(patience) && now < Moment::NEVER
    }
}

/// What this process has seen of many records: by default of locks, by name and version number.
///
/// # Examples
///
/// ```
/// use sprag_core::LockName;
/// use sprag_core::clock::Moment;
/// use sprag_core::policy::stale::Observations;
/// use std::time::Duration;
///
/// let (lock, ttl) = (LockName::new("deploy")?, Duration::from_secs(100));
/// let at = |seconds| Moment::new(Duration::from_secs(seconds));
/// let mut seen = Observations::default();
/// seen.observe(&lock, 7, at(0));
/// seen.observe(&lock, 7, at(60));
/// assert!(!seen.is_stale(&lock, at(104), ttl));
/// assert!(seen.is_stale(&lock, at(105), ttl));
/// seen.observe(&lock, 8, at(106)); // A sign of life.
/// assert!(!seen.is_stale(&lock, at(106), ttl));
/// # Ok::<(), sprag_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observations<K = LockName, V = u64> {
    seen: BTreeMap<K, Observation<V>>,
}

impl<K, V> Default for Observations<K, V> {
    fn default() -> Self {
        Self { seen: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, V: PartialEq> Observations<K, V> {
    /// Takes note of a read that returned at `read_returned_at`, and says since when this
    /// version is known.
    pub fn observe(&mut self, key: &K, version: V, read_returned_at: Moment) -> &Observation<V> {
        let fresh = Observation { version, seen_since: read_returned_at };
        match self.seen.get_mut(key) {
            Some(known) if known.version == fresh.version => {
                // Two reads under way at once may be noted in the wrong order; the earlier
                // return proves as much as the later.
                known.seen_since = known.seen_since.min(fresh.seen_since);
            }
            Some(known) => *known = fresh,
            None => {
                self.seen.insert(key.clone(), fresh);
            }
        }
        &self.seen[key]
    }

    /// Whether the record has not changed for `ttl` and 5 % since it was first seen as it is; see
    /// [`Observation::is_stale`]. What was never seen is not stale.
    pub fn is_stale(&self, key: &K, now: Moment, ttl: Duration) -> bool {
        self.get(key).is_some_and(|seen| seen.is_stale(now, ttl))
    }

    /// The observation of one record.
    pub fn get(&self, key: &K) -> Option<&Observation<V>> {
        self.seen.get(key)
    }

    /// Brings back an observation made earlier, such as by a command that has ended since. The
    /// caller makes sure that it was made on the same clock: since the same boot.
    pub fn restore(&mut self, key: K, observation: Observation<V>) {
        self.seen.insert(key, observation);
    }

    /// Forgets a record, such as one that is free.
    pub fn forget(&mut self, key: &K) {
        self.seen.remove(key);
    }

    /// All observations, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Observation<V>)> {
        self.seen.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{Observation, Observations};
    use crate::clock::Moment;
    use std::time::Duration;

    const TTL: Duration = Duration::from_secs(100);

    fn at(seconds: u64) -> Moment {
        Moment::new(Duration::from_secs(seconds))
    }

    #[test]
    fn a_change_starts_the_count_anew_and_a_repeat_does_not() {
        let mut seen = Observations::<&str>::default();
        seen.observe(&"a", 1, at(0));
        seen.observe(&"a", 1, at(104));
        assert!(seen.is_stale(&"a", at(105), TTL));
        seen.observe(&"a", 2, at(105));
        assert!(!seen.is_stale(&"a", at(209), TTL));
        assert!(seen.is_stale(&"a", at(210), TTL));
    }

    #[test]
    fn what_was_not_seen_is_not_stale() {
        let mut seen = Observations::<&str>::default();
        assert!(!seen.is_stale(&"a", at(1_000), TTL));
        seen.observe(&"a", 1, at(0));
        seen.forget(&"a");
        assert!(!seen.is_stale(&"a", at(1_000), TTL));
    }

    /// The holder renews while the challenger's read is under way. The slow read brings the
    /// renewed version. Counted from its send the lock would be stolen while its holder still
    /// has time by its own clock; counted from its return it is not.
    #[test]
    fn counting_from_the_send_would_rob_a_live_holder() {
        let (read_sent, renewal_sent, read_returned) = (at(0), at(20), at(25));
        let holder_believes_until = renewal_sent.plus(TTL).minus(TTL / 100);
        let patience = TTL + TTL / 20;

        let too_early = read_sent.plus(patience);
        assert!(too_early < holder_believes_until, "two holders");

        let seen = Observation { version: 2_u64, seen_since: read_returned };
        assert!(!seen.is_stale(too_early, TTL));
        assert!(!seen.is_stale(holder_believes_until, TTL));
        assert!(seen.is_stale(read_returned.plus(patience), TTL));
    }

    /// A clock that runs 4 % fast must not rob a holder whose clock is right.
    #[test]
    fn five_percent_covers_clocks_of_different_speed() {
        let fast = |true_seconds: u64| at(true_seconds * 104 / 100);
        let seen = Observation { version: 1_u64, seen_since: fast(0) };
        assert!(!seen.is_stale(fast(100), TTL));
    }

    #[test]
    fn an_endless_ttl_never_ends() {
        let seen = Observation { version: 1_u64, seen_since: at(0) };
        assert!(!seen.is_stale(Moment::NEVER, Duration::MAX));
        assert!(!seen.is_stale(at(u64::MAX), Duration::MAX));
    }

    #[test]
    fn an_observation_outlives_the_command_that_made_it() {
        let mut first = Observations::<&str, [u8; 2]>::default();
        first.observe(&"a", [1, 2], at(0));
        let mut second = Observations::default();
        for (key, seen) in first.iter() {
            second.restore(*key, *seen);
        }
        second.observe(&"a", [1, 2], at(105));
        assert!(second.is_stale(&"a", at(105), TTL));
    }
}
