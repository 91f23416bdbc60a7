//! [`Counters`]: what was asked, for proofs about budgets.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::stamp::Stamp;

/// One request that reached the simulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// When.
    pub at: Stamp,
    /// The account; nothing if there was no token.
    pub login: String,
    /// What was asked, such as `GET /repos/{owner}/{repo}`, or `graphql query`.
    pub kind: String,
    /// What was answered. 0 if the connection was closed instead.
    pub status: u16,
    /// What it cost of the hourly limit of REST.
    pub primary: u64,
    /// What it cost of the hourly limit of GraphQL.
    pub graphql: u64,
    /// Whether it changes something, or would if it could.
    pub mutation: bool,
    /// Whether it notifies people.
    pub content: bool,
}

/// All requests since the beginning, or since the counters were cleared.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    calls: Vec<Call>,
}

impl Counters {
    pub(crate) fn add(&mut self, call: Call) {
        self.calls.push(call);
    }

    /// Every call, in the order in which they came.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Only the calls of one account.
    #[must_use]
    pub fn of(&self, login: &str) -> Self {
        self.only(|call| call.login == login)
    }

    /// Only some of the calls.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(&Call) -> bool) -> Self {
        Self { calls: self.calls.iter().filter(|call| wanted(call)).cloned().collect() }
    }

    /// How many calls there were of each kind.
    pub fn by_kind(&self) -> BTreeMap<&str, usize> {
        let mut kinds = BTreeMap::new();
        for call in &self.calls {
            *kinds.entry(call.kind.as_str()).or_default() += 1;
        }
        kinds
    }

    /// How many calls there were.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// What all of them cost of REST's hourly limit.
    pub fn primary(&self) -> u64 {
        self.calls.iter().map(|call| call.primary).sum()
    }

    /// What all of them cost of GraphQL's hourly limit.
    pub fn graphql(&self) -> u64 {
        self.calls.iter().map(|call| call.graphql).sum()
    }

    /// How many notified people.
    pub fn content(&self) -> u64 {
        self.calls.iter().map(|call| u64::from(call.content)).sum()
    }

    /// How many changed something.
    pub fn mutations(&self) -> u64 {
        self.calls.iter().map(|call| u64::from(call.mutation)).sum()
    }

    /// How many were turned away because of a limit: 403 or 429.
    pub fn denied(&self) -> usize {
        self.calls.iter().filter(|call| matches!(call.status, 403 | 429)).count()
    }

    /// The most that any stretch of time of this length cost, wherever it begins.
    pub fn peak(&self, length: Duration, cost: impl Fn(&Call) -> u64) -> u64 {
        let (mut first, mut sum, mut most) = (0, 0, 0);
        for call in &self.calls {
            sum += cost(call);
            while call.at.since(self.calls[first].at) >= length {
                sum -= cost(&self.calls[first]);
                first += 1;
            }
            most = most.max(sum);
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dearest_hour_is_found_wherever_it_begins() {
        let mut counters = Counters::default();
        for minute in [0, 50, 55, 61, 300] {
            counters.add(Call {
                at: Stamp::from_micros(minute * 60_000_000),
                login: "a".into(),
                kind: "GET /".into(),
                status: 200,
                primary: 1,
                graphql: 0,
                mutation: false,
                content: false,
            });
        }
        assert_eq!(counters.peak(Duration::from_secs(3600), |call| call.primary), 3);
        assert_eq!(counters.primary(), 5);
        assert_eq!(counters.of("b").len(), 0);
    }
}
