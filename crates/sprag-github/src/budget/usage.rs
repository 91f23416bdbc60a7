//! [`Usage`]: what was asked of GitHub lately, and when the next request may go. Pure: no clock,
//! no file, no network.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use sprag_core::clock::Moment;

use crate::call::{Cost, Facts, Urgency};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
/// GitHub allows 80 notifying requests a minute and 500 an hour; a few are left to people.
const CONTENT_PER_MINUTE: usize = 75;
const CONTENT_PER_HOUR: usize = 480;
/// GitHub allows 900 points a minute: 1 for reading, 5 for writing.
const POINTS_PER_MINUTE: u64 = 880;
/// Of those, what is left to signs of life.
const POINTS_FOR_RENEWALS: u64 = 120;
/// And what people look at leaves: enough for the signs of life of 40 workers, whenever they come.
const POINTS_FOR_ALL_BUT_SHOWING: u64 = 300;
/// What people look at stops where all changes of an hour would come to this, with the signs of life
/// that are due in it: all of them together stay below one a second.
const CHANGES_PER_HOUR: u64 = 3_400;
/// Up to this many changes in the last hour there is plenty.
const FEW_CHANGES: u64 = 1_400;
/// How far apart changes are once GitHub has asked to slow down, and for how long they stay so.
const SPACING: u64 = SECOND;
const SPACED_FOR: u64 = HOUR;
/// How long to be silent when GitHub does not say it; doubled each time.
const SILENCE: u64 = MINUTE;
const LONGEST_SILENCE: u64 = 16 * MINUTE;
/// A process that has not renewed for so long is gone.
const KEEPER_GONE: u64 = 15 * MINUTE;
/// What a sign of life takes: a commit and a ref.
pub(crate) const RENEWAL_CALLS: u64 = 2;

/// What was asked of GitHub lately, by all processes of this machine that use one token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Usage {
    /// Which boot of the machine the times are of.
    pub(crate) boot: String,
    rest: Allowance,
    graphql: Allowance,
    /// Nothing is sent before this moment.
    silent_until: u64,
    /// How many times in a row GitHub asked for silence.
    strikes: u32,
    /// Changes are apart until this moment.
    spaced_until: u64,
    last_change: u64,
    /// A sign of life waits for its turn until this moment.
    renewal_waits: u64,
    /// When something notifying was written, in the last hour.
    content: VecDeque<u64>,
    /// Changes, by minute, in the last hour.
    changes: BTreeMap<u64, u64>,
    /// Those among them that are signs of life.
    beats: BTreeMap<u64, u64>,
    /// Points, by second, in the last minute.
    points: BTreeMap<u64, u64>,
    /// Who gives signs of life: how often, and when last.
    keepers: BTreeMap<String, Beat>,
}

/// One of GitHub's primary limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Allowance {
    limit: u64,
    remaining: u64,
    /// When all of it is there again; 0 if nothing is known.
    resets: u64,
}

/// One process that gives signs of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Beat {
    every: u64,
    last: u64,
}

/// When a request may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Now.
    Go,
    /// Not before this moment.
    Wait(Moment, Limit),
}

/// Which limit is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Limit {
    /// The hourly number of requests, or of GraphQL points.
    Primary {
        /// How many are left.
        remaining: u64,
        /// Of how many.
        limit: u64,
    },
    /// GitHub asked for silence.
    Secondary,
    /// Too many comments.
    Content,
    /// Too many requests a minute.
    Pace,
}

impl Usage {
    /// Nothing was asked since this boot.
    pub(crate) fn new(boot: &str) -> Self {
        Self { boot: boot.to_owned(), ..Self::default() }
    }

    /// When a request may go that costs this much.
    #[cfg(test)]
    pub(crate) fn plan(&mut self, cost: Cost, urgency: Urgency, now: Moment) -> Plan {
        self.plan_ahead(cost, urgency, now, true)
    }

    /// As [`plan`](Self::plan); unless `ahead`, only what GitHub itself said counts.
    pub(crate) fn plan_ahead(
        &mut self,
        cost: Cost,
        urgency: Urgency,
        now: Moment,
        ahead: bool,
    ) -> Plan {
        let now = now.as_millis();
        self.forget(now);
        let (mut until, mut limit) = (0, Limit::Pace);
        let mut wait = |moment: u64, why: Limit| {
            if moment > now && moment > until {
                (until, limit) = (moment, why);
            }
        };
        wait(self.silent_until, Limit::Secondary);
        let allowance = self.allowance(cost);
        if allowance.resets > now && allowance.remaining <= self.reserve(cost, urgency, now) {
            let Allowance { remaining, limit, resets } = *allowance;
            wait(resets, Limit::Primary { remaining, limit });
        }
        if cost == Cost::Content && ahead {
            wait(self.content_frees(CONTENT_PER_MINUTE, MINUTE), Limit::Content);
            wait(self.content_frees(CONTENT_PER_HOUR, HOUR), Limit::Content);
        }
        if ahead {
            wait(self.points_free(cost, urgency), Limit::Pace);
        }
        if cost.changes() {
            wait(self.turn(urgency, now), Limit::Pace);
            if ahead && urgency == Urgency::Mirror && self.changes_of_an_hour() >= CHANGES_PER_HOUR
            {
                wait((now / MINUTE + 1) * MINUTE, Limit::Pace);
            }
        }
        if until == 0 {
            return Plan::Go;
        }
        if urgency == Urgency::Renewal && cost.changes() {
            self.renewal_waits = until + SPACING;
        }
        Plan::Wait(millis(until), limit)
    }

    /// Writes down that a request goes now.
    pub(crate) fn sent(&mut self, cost: Cost, urgency: Urgency, now: Moment) {
        let now = now.as_millis();
        let allowance = self.allowance_mut(cost);
        allowance.remaining = allowance.remaining.saturating_sub(1);
        *self.points.entry(now / SECOND).or_default() += cost.points();
        if cost.changes() {
            self.last_change = now;
            *self.changes.entry(now / MINUTE).or_default() += 1;
            if urgency == Urgency::Renewal {
                self.renewal_waits = 0;
                *self.beats.entry(now / MINUTE).or_default() += 1;
            }
        }
        if cost == Cost::Content {
            self.content.push_back(now);
        }
    }

    /// Learns from an answer.
    pub(crate) fn heard(&mut self, cost: Cost, heard: &Heard, now: Moment) {
        let now = now.as_millis();
        let facts = &heard.facts;
        if let (Some(limit), Some(remaining)) = (facts.limit, facts.remaining) {
            // How long until the reset is told by GitHub's clock, not by ours.
            let left = facts.reset.zip(facts.date).map(|(reset, date)| reset.saturating_sub(date));
            let resets = left.map_or(0, |left| now + left * SECOND);
            let of_graphql = match facts.resource.as_deref() {
                Some(resource) => resource == "graphql",
                None => cost.is_graphql(),
            };
            let allowance = if of_graphql { &mut self.graphql } else { &mut self.rest };
            // Answers overtake each other: within one hour the smallest number is the truth.
            let same = resets.abs_diff(allowance.resets) < 5 * SECOND && allowance.limit == limit;
            let remaining = if same { remaining.min(allowance.remaining) } else { remaining };
            *allowance = Allowance { limit, remaining, resets };
        }
        if cost == Cost::Read && heard.unchanged {
            // It was free after all.
            self.rest.remaining = self.rest.remaining.saturating_add(1).min(self.rest.limit);
        }
        match heard.verdict {
            Verdict::Fine => self.strikes = 0,
            Verdict::Exhausted => {
                let allowance = self.allowance_mut(cost);
                allowance.remaining = 0;
                if allowance.resets <= now {
                    allowance.resets = now + facts.retry_after.unwrap_or(60) * SECOND;
                }
            }
            Verdict::SlowDown => {
                let silence = match facts.retry_after {
                    Some(seconds) => seconds * SECOND,
                    None => (SILENCE << self.strikes.min(8)).min(LONGEST_SILENCE),
                };
                self.strikes = self.strikes.saturating_add(1);
                self.silent_until = self.silent_until.max(now + silence);
                self.spaced_until = now + silence + SPACED_FOR;
            }
        }
    }

    /// Writes down that a process gives a sign of life, and how often it does.
    pub(crate) fn beat(&mut self, keeper: &str, every: std::time::Duration, now: Moment) {
        let every = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        self.keepers.insert(keeper.to_owned(), Beat { every, last: now.as_millis() });
    }

    /// The earliest moment at which a sign of life can be given.
    pub(crate) fn next_renewal(&mut self, now: Moment) -> Moment {
        let now_ms = now.as_millis();
        self.forget(now_ms);
        let mut earliest = self.silent_until.max(now_ms);
        if self.rest.resets > now_ms && self.rest.remaining < RENEWAL_CALLS {
            earliest = earliest.max(self.rest.resets);
        }
        millis(earliest)
    }

    /// Whether there is plenty: half of the hour's requests and changes are unused, and nobody
    /// asked us to slow down.
    pub(crate) fn is_ample(&mut self, now: Moment) -> bool {
        let now = now.as_millis();
        self.forget(now);
        let known = self.rest.resets > now;
        let half = !known || self.rest.remaining * 2 >= self.rest.limit;
        half && self.spaced_until <= now && self.changes_last_hour() < FEW_CHANGES
    }

    /// What is left of the hour: requests and points of GraphQL, with their limits.
    pub(crate) fn left(&self) -> [(u64, u64); 2] {
        [&self.rest, &self.graphql].map(|allowance| (allowance.remaining, allowance.limit))
    }

    /// How many of the hour's requests have to be left to others.
    fn reserve(&self, cost: Cost, urgency: Urgency, now: u64) -> u64 {
        if urgency == Urgency::Renewal || cost.is_graphql() {
            return 0;
        }
        let until = self.rest.resets.saturating_sub(now);
        let beats = self.keepers.values().map(|beat| until / beat.every.max(SECOND) + 1);
        let needed = beats.sum::<u64>().saturating_mul(RENEWAL_CALLS).min(self.rest.limit / 2);
        match urgency {
            Urgency::Mirror => needed + self.rest.limit / 10,
            _ => needed,
        }
    }

    const fn allowance(&self, cost: Cost) -> &Allowance {
        if cost.is_graphql() { &self.graphql } else { &self.rest }
    }

    const fn allowance_mut(&mut self, cost: Cost) -> &mut Allowance {
        if cost.is_graphql() { &mut self.graphql } else { &mut self.rest }
    }

    /// When one more notifying request fits into the window.
    fn content_frees(&self, most: usize, window: u64) -> u64 {
        let over = self.content.len().checked_sub(most);
        over.and_then(|index| self.content.get(index)).map_or(0, |oldest| oldest + window)
    }

    /// When the points of one more request fit into the minute.
    fn points_free(&self, cost: Cost, urgency: Urgency) -> u64 {
        let most = POINTS_PER_MINUTE - Self::points_left_to_others(urgency);
        let mut used = self.points.values().sum::<u64>() + cost.points();
        for (second, points) in &self.points {
            if used <= most {
                return 0;
            }
            used -= points;
            if used <= most {
                return (second + 1) * SECOND + MINUTE;
            }
        }
        0
    }

    /// How many of a minute's points are for who goes first.
    const fn points_left_to_others(urgency: Urgency) -> u64 {
        match urgency {
            Urgency::Renewal => 0,
            Urgency::Normal => POINTS_FOR_RENEWALS,
            Urgency::Mirror => POINTS_FOR_ALL_BUT_SHOWING,
        }
    }

    /// When it is the turn of a change, where they are apart.
    const fn turn(&self, urgency: Urgency, now: u64) -> u64 {
        if self.spaced_until <= now || self.last_change == 0 {
            return 0;
        }
        let turn = self.last_change + SPACING;
        let yields = !matches!(urgency, Urgency::Renewal) && self.renewal_waits > now;
        if yields && self.renewal_waits > turn { self.renewal_waits } else { turn }
    }

    fn changes_last_hour(&self) -> u64 {
        self.changes.values().sum()
    }

    /// What the last hour would have been if everybody had given signs of life all the time who does
    /// so now.
    fn changes_of_an_hour(&self) -> u64 {
        let given = self.beats.values().sum::<u64>();
        let each = |beat: &Beat| HOUR / beat.every.max(SECOND) * RENEWAL_CALLS;
        let due = self.keepers.values().map(each).sum::<u64>();
        self.changes_last_hour() - given + given.max(due)
    }

    fn forget(&mut self, now: u64) {
        while self.content.front().is_some_and(|sent| sent + HOUR <= now) {
            self.content.pop_front();
        }
        self.changes.retain(|minute, _| (minute + 1) * MINUTE + HOUR > now);
        self.beats.retain(|minute, _| (minute + 1) * MINUTE + HOUR > now);
        self.points.retain(|second, _| (second + 1) * SECOND + MINUTE > now);
        self.keepers.retain(|_, beat| beat.last + KEEPER_GONE.max(3 * beat.every) > now);
        for allowance in [&mut self.rest, &mut self.graphql] {
            if allowance.resets <= now {
                allowance.remaining = allowance.limit;
            }
        }
    }
}

/// What an answer says about limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) facts: Facts,
    /// Whether nothing had changed, so that it was free.
    pub(crate) unchanged: bool,
    pub(crate) verdict: Verdict,
}

/// Whether we were too fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No.
    #[default]
    Fine,
    /// The hour's requests are used up.
    Exhausted,
    /// GitHub asks to slow down.
    SlowDown,
}

impl Cost {
    const fn is_graphql(self) -> bool {
        matches!(self, Self::Query | Self::Mutation)
    }

    const fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Content | Self::Mutation)
    }

    const fn points(self) -> u64 {
        if self.changes() { 5 } else { 1 }
    }
}

const fn millis(since_start: u64) -> Moment {
    Moment::new(std::time::Duration::from_millis(since_start))
}
