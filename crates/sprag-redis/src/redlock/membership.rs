//! [`Membership`]: which nodes vote.
//!
//! A node that does not know itself any more, because it was restarted without its data or was
//! emptied, is let in again by whoever finds it. Then it rests until all leases are over that it may
//! have forgotten. How long those last, the others have to say, see [`Membership::rest`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};

use super::RedlockConfig;
use super::answer::{Blank, Said};
use super::nodes::{Failures, Nodes};
use crate::config::Quarantine;
use crate::longest::MOST;
use crate::script::Script;

/// Who is in use asks so often which nodes have forgotten something, so that they are let in while
/// the others are there to be asked.
const EVERY: Duration = Duration::from_secs(5);
/// How long to wait for the others once a majority has answered.
pub(super) const GRACE: Duration = Duration::from_millis(50);

/// Which nodes vote, as far as this process has a say in it.
#[derive(Debug)]
pub(super) struct Membership {
    quarantine: Quarantine,
    configured: Duration,
    /// How long the nodes may take to say what they know, to count as having said it at once.
    census: Duration,
    /// How long ago a node must have forgotten its locks before the others are asked about them.
    settled: Duration,
    /// The longest lease that this process has asked for, in milliseconds, up to [`MOST`].
    longest_ms: AtomicU64,
    /// When the nodes were asked last, in milliseconds since the start of the clock.
    asked_ms: AtomicU64,
}

/// What the nodes say about themselves.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// Nodes that vote.
    pub(super) votes: Vec<usize>,
    /// Nodes that have forgotten their locks and are not let in yet.
    pub(super) fresh: Vec<(usize, Blank)>,
    /// Nodes that rest, and for how many milliseconds.
    pub(super) rests: Vec<(usize, u64)>,
    pub(super) longest_ms: u64,
}

impl Membership {
    pub(super) fn new(config: &RedlockConfig) -> Self {
        let node = &config.nodes[0];
        let census = 3 * node.timeout;
        Self {
            quarantine: node.quarantine,
            configured: node.longest_ttl,
            census,
            settled: config.patience(Duration::MAX) + census,
            longest_ms: AtomicU64::new(0),
            asked_ms: AtomicU64::new(0),
        }
    }

    /// Somebody asks for a lease of this length.
    pub(super) fn uses(&self, ttl: Duration) {
        // Of those that are longer the nodes know which are not over.
        self.longest_ms.fetch_max(millis(ttl.min(MOST)), Ordering::Relaxed);
    }

    /// Whether it is time to ask again which nodes have forgotten something. True for one caller.
    pub(super) fn is_due(&self, now: Moment) -> bool {
        let asked = self.asked_ms.load(Ordering::Relaxed);
        now.as_millis().saturating_sub(asked) >= millis(EVERY)
            && self
                .asked_ms
                .compare_exchange(asked, now.as_millis(), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Asks all nodes, and lets in those that are fresh if the others say enough. Waits for the slow
    /// ones until a majority has answered, and for `grace` if that is not enough.
    pub(super) async fn admit(&self, nodes: &Nodes, grace: Duration) -> (Census, Failures) {
        let mut began = BootClock.now();
        self.asked_ms.store(began.as_millis(), Ordering::Relaxed);
        let (mut census, mut failures) = look(nodes, GRACE).await;
        if !census.fresh.is_empty() && census.heard() < nodes.count() && grace > GRACE {
            began = BootClock.now();
            (census, failures) = look(nodes, grace).await;
        }
        // What was said before this process was paused is no answer any more.
        let is_old = BootClock.now().since(began) > self.census;
        if let Some(rest) = self.rest(&census, nodes.count()).filter(|_| !is_old) {
            census.let_in(nodes, rest).await;
        }
        for (node, _) in &census.fresh {
            let address = nodes.link(*node).address();
            failures.add(*node, format!("{address} has forgotten its locks, and {NOT_YET}"));
        }
        (census, failures)
    }

    /// How long fresh nodes rest; nothing if they must not be let in yet.
    ///
    /// A lock that is held was granted, or extended the last time, by a majority, and each of these
    /// nodes noted how long it lasts. One that has forgotten that since has not voted again: the
    /// lease is part of what it rests for. As long as a majority has not forgotten at the same time,
    /// a node is left that knows. It is among any majority of *nodes that vote*, since all that have
    /// forgotten are not: with `n` nodes of which `f` have, at least `majority - f` of the `n - f`
    /// others know, and no majority fits into the rest of them. Fewer nodes may all be ignorant,
    /// whatever they say, so a fresh node is not let in by them, for however long it would rest.
    ///
    /// Only requests that are under way could be missed: done by the node before it forgot, and by
    /// the others after they were asked. They count for the time that a node may take. So the
    /// node must have forgotten before that time, and before the others were asked.
    ///
    /// Where a majority has forgotten, or was never let in, there is no promise, and it has to go on
    /// all the same: after the longest lease that anybody knows of. If all nodes are there and none
    /// was ever asked for a lock, they are new and vote at once.
    fn rest(&self, census: &Census, count: usize) -> Option<Duration> {
        let majority = count / 2 + 1;
        let longest = census.longest_ms.max(self.longest_ms.load(Ordering::Relaxed));
        let rest = Duration::from_millis(longest).max(self.configured);
        let forgot = census.fresh.len() + census.rests.len();
        if census.fresh.is_empty() {
            None
        } else if self.quarantine == Quarantine::Never {
            Some(Duration::ZERO)
        } else if census.votes.len() >= majority {
            let is_settled = |(_, blank): &(usize, Blank)| blank.age_ms >= millis(self.settled);
            census.fresh.iter().all(is_settled).then_some(rest)
        } else if forgot < majority {
            None
        } else if self.quarantine == Quarantine::Witnessed
            && longest == 0
            && census.heard() == count
        {
            Some(Duration::ZERO)
        } else {
            Some(rest)
        }
    }
}

/// What a fresh node waits for.
pub(super) const NOT_YET: &str =
    "votes when enough of the others have said for how long it must not";

/// What the nodes say: a majority, and all who answer within `grace`.
pub(super) async fn look(nodes: &Nodes, grace: Duration) -> (Census, Failures) {
    let call = about_node(nodes, &["node"]);
    let mut census = Census::default();
    let mut missing: Vec<usize> = (0..nodes.count()).collect();
    let mut failures = Failures::default();
    // First for a majority, then for the others.
    for (patience, enough) in [(nodes.timeout, nodes.majority()), (grace, nodes.count())] {
        let asks = missing.iter().map(|node| (*node, call.clone())).collect();
        failures = nodes
            .ask(asks, patience, |node, answer| {
                let Some(answer) = answer else { return false };
                missing.retain(|other| *other != node);
                census.put(node, answer.said);
                nodes.count() - missing.len() >= enough
            })
            .await;
        if missing.is_empty() {
            break;
        }
    }
    (census, failures)
}

fn about_node(nodes: &Nodes, arguments: &[&str]) -> crate::script::Call {
    let keys = [String::new(), String::new(), nodes.mark()];
    Nodes::call(Script::RedlockLook, &keys, arguments)
}

impl Census {
    fn put(&mut self, node: usize, said: Said) {
        match said {
            Said::Marked { longest_ms, rests_ms } => {
                self.longest_ms = self.longest_ms.max(longest_ms);
                if rests_ms > 0 {
                    self.rests.push((node, rests_ms));
                } else {
                    self.votes.push(node);
                }
            }
            Said::Blank(blank) => {
                self.longest_ms = self.longest_ms.max(blank.longest_ms);
                self.fresh.push((node, blank));
            }
            _ => {}
        }
    }

    fn heard(&self) -> usize {
        self.votes.len() + self.fresh.len() + self.rests.len()
    }

    /// Lets in the fresh ones, unless they have forgotten something once more.
    async fn let_in(&mut self, nodes: &Nodes, rest: Duration) {
        let fresh = std::mem::take(&mut self.fresh);
        let count = fresh.len();
        tracing::warn!(target: "sprag::redlock", count, ?rest, "nodes that know of no lock are let in");
        let rest = millis(rest).to_string();
        let ask = |(node, blank): &(usize, Blank)| {
            (*node, about_node(nodes, &["node", &rest, &blank.life]))
        };
        let asks = fresh.iter().map(ask).collect();
        let asked = nodes.ask(asks, nodes.timeout, |node, answer| {
            if let Some(answer) = answer {
                self.put(node, answer.said);
            }
            false
        });
        drop(asked.await);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Address, RedisConfig};

    const DEFAULT: Option<Duration> = Some(Duration::from_secs(30));
    const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

    fn membership(quarantine: Quarantine) -> Membership {
        let node = RedisConfig::new(Address::Tcp("a".into(), 1)).quarantine(quarantine);
        Membership::new(&RedlockConfig::new(vec![node]))
    }

    /// So many nodes vote, are fresh for a long time, and rest.
    fn census(votes: usize, fresh: usize, rests: usize, longest_ms: u64) -> Census {
        let blank = Blank { age_ms: 60_000, ..Blank::default() };
        Census {
            votes: vec![0; votes],
            fresh: vec![(0, blank); fresh],
            rests: vec![(0, 1); rests],
            longest_ms,
        }
    }

    fn rest(count: usize, census: &Census) -> Option<Duration> {
        membership(Quarantine::Witnessed).rest(census, count)
    }

    #[test]
    fn fewer_than_a_majority_that_votes_lets_nobody_in() {
        let ten_minutes = 600_000;
        for (count, votes, fresh, rests) in [(3, 1, 1, 0), (5, 2, 1, 0), (5, 2, 2, 0), (5, 2, 1, 1)]
        {
            for longest in [0, ten_minutes] {
                let census = census(votes, fresh, rests, longest);
                assert_eq!(rest(count, &census), None, "{census:?}");
            }
        }
        for (count, votes, fresh) in [(3, 2, 1), (5, 3, 1), (5, 3, 2), (5, 4, 1)] {
            let known = census(votes, fresh, 0, ten_minutes);
            assert_eq!(rest(count, &known), Some(Duration::from_millis(ten_minutes)));
            assert_eq!(rest(count, &census(votes, fresh, 0, 0)), DEFAULT);
        }
    }

    #[test]
    fn requests_that_are_under_way_are_waited_for() {
        let mut census = census(2, 1, 0, 0);
        census.fresh[0].1.age_ms = 1000;
        assert_eq!(rest(3, &census), None);
    }

    #[test]
    fn only_if_all_say_that_no_lock_was_ever_asked_for_they_vote_at_once() {
        assert_eq!(rest(3, &census(0, 3, 0, 0)), AT_ONCE);
        // Somebody else is just letting them in.
        assert_eq!(rest(3, &census(1, 2, 0, 0)), AT_ONCE);
        assert_eq!(rest(3, &census(0, 2, 0, 0)), DEFAULT, "one is silent");
        assert_eq!(rest(3, &census(0, 3, 0, 1)), DEFAULT, "one was asked");
        let used = membership(Quarantine::Witnessed);
        used.uses(Duration::from_secs(60));
        assert_eq!(used.rest(&census(0, 3, 0, 0), 3), Some(Duration::from_secs(60)));
        assert_eq!(membership(Quarantine::Always).rest(&census(0, 3, 0, 0), 3), DEFAULT);
    }

    #[test]
    fn whoever_wants_no_quarantine_gets_none() {
        let never = membership(Quarantine::Never);
        assert_eq!(never.rest(&census(1, 1, 0, 9), 3), AT_ONCE);
        assert_eq!(never.rest(&census(3, 0, 0, 9), 3), None, "nobody is fresh");
    }
}
