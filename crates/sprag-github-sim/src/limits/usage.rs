//! [`Usage`]: what one account has used up.

use std::collections::VecDeque;
use std::time::Duration;

use super::Limits;
use crate::stamp::Stamp;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Which purse pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Core,
    Anonymous,
    Graphql,
    Search,
}

impl Resource {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Core | Self::Anonymous => "core",
            Self::Graphql => "graphql",
            Self::Search => "search",
        }
    }

    pub(crate) const fn limit(self, limits: &Limits) -> u64 {
        match self {
            Self::Core => limits.primary,
            Self::Anonymous => limits.anonymous,
            Self::Graphql => limits.graphql,
            Self::Search => limits.search,
        }
    }

    const fn window(self) -> Duration {
        match self {
            Self::Core | Self::Anonymous | Self::Graphql => HOUR,
            Self::Search => MINUTE,
        }
    }
}

/// What a request costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Price {
    pub(crate) resource: Resource,
    /// Nothing for `GET /rate_limit`, which is free.
    pub(crate) primary: u64,
    /// Points of the limit per minute.
    pub(crate) points: u64,
    /// Whether it notifies people.
    pub(crate) content: bool,
}

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The hourly purse is empty.
    Primary,
    /// Too fast, until then.
    Secondary(Stamp),
}

/// A fixed window, as the hourly purse has.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    used: u64,
    reset: Stamp,
}

impl Window {
    /// Begins a new one if this is over.
    fn renew(&mut self, now: Stamp, length: Duration) {
        if now >= self.reset {
            *self = Self { used: 0, reset: now.plus(length) };
        }
    }
}

/// What was used in the last minute or hour, whenever that began.
#[derive(Debug, Default)]
struct Rolling {
    entries: VecDeque<(Stamp, u64)>,
    sum: u64,
}

impl Rolling {
    fn within(&mut self, now: Stamp, length: Duration) -> u64 {
        while let Some((at, amount)) = self.entries.front()
            && now.since(*at) >= length
        {
            self.sum -= amount;
            self.entries.pop_front();
        }
        self.sum
    }

    fn add(&mut self, now: Stamp, amount: u64) {
        self.entries.push_back((now, amount));
        self.sum += amount;
    }
}

/// What one account has used up.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    core: Window,
    graphql: Window,
    search: Window,
    points: Rolling,
    graphql_points: Rolling,
    content_minute: Rolling,
    content_hour: Rolling,
    blocked: Option<Stamp>,
    pub(crate) in_flight: usize,
}

impl Usage {
    /// Pays for a request, or says why it cannot.
    pub(crate) fn pay(&mut self, now: Stamp, price: Price, limits: &Limits) -> Result<(), Denial> {
        if let Some(until) = self.blocked.filter(|until| now < *until) {
            return Err(Denial::Secondary(until));
        }
        let (allowed, points) = match price.resource {
            Resource::Graphql => (limits.graphql_points, &mut self.graphql_points),
            _ => (limits.points, &mut self.points),
        };
        let too_fast = points.within(now, MINUTE) + price.points > allowed;
        let too_much_content = price.content
            && (self.content_minute.within(now, MINUTE) >= limits.content_per_minute
                || self.content_hour.within(now, HOUR) >= limits.content_per_hour);
        if too_fast || too_much_content || self.in_flight >= limits.concurrent {
            let until = now.plus(limits.penalty);
            self.blocked = Some(until);
            return Err(Denial::Secondary(until));
        }
        let window = self.window(price.resource);
        window.renew(now, price.resource.window());
        if price.primary > 0 && window.used + price.primary > price.resource.limit(limits) {
            return Err(Denial::Primary);
        }
        window.used += price.primary;
        let points = match price.resource {
            Resource::Graphql => &mut self.graphql_points,
            _ => &mut self.points,
        };
        points.add(now, price.points);
        if price.content {
            self.content_minute.add(now, 1);
            self.content_hour.add(now, 1);
        }
        Ok(())
    }

    /// Gives back what an answer did not cost: 304 is free of the hourly limit.
    pub(crate) fn refund(&mut self, price: Price) {
        let window = self.window(price.resource);
        window.used = window.used.saturating_sub(price.primary);
    }

    /// What is used, and when that is forgotten.
    pub(crate) fn report(&mut self, now: Stamp, resource: Resource) -> (u64, Stamp) {
        let window = self.window(resource);
        window.renew(now, resource.window());
        (window.used, window.reset)
    }

    const fn window(&mut self, resource: Resource) -> &mut Window {
        match resource {
            Resource::Core | Resource::Anonymous => &mut self.core,
            Resource::Graphql => &mut self.graphql,
            Resource::Search => &mut self.search,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Price = Price { resource: Resource::Core, primary: 1, points: 1, content: false };
    const COMMENT: Price = Price { points: 5, content: true, ..READ };

    fn second(seconds: u64) -> Stamp {
        Stamp::from_micros((1_000 + seconds) * 1_000_000)
    }

    #[test]
    fn the_hourly_purse_is_filled_again_after_an_hour() {
        let (mut usage, limits) = (Usage::default(), Limits::GITHUB);
        for request in 0..5_000 {
            assert_eq!(usage.pay(second(request / 2), READ, &limits), Ok(()), "{request}");
        }
        assert_eq!(usage.pay(second(3_599), READ, &limits), Err(Denial::Primary));
        assert_eq!(usage.report(second(3_599), Resource::Core), (5_000, second(3_600)));
        usage.refund(READ);
        assert_eq!(usage.pay(second(3_599), READ, &limits), Ok(()));
        assert_eq!(usage.pay(second(3_600), READ, &limits), Ok(()));
        assert_eq!(usage.report(second(3_600), Resource::Core).0, 1);
    }

    #[test]
    fn comments_are_limited_per_minute_and_per_hour() {
        let (mut usage, limits) = (Usage::default(), Limits::GITHUB);
        for _ in 0..80 {
            assert_eq!(usage.pay(second(0), COMMENT, &limits), Ok(()));
        }
        let blocked = Err(Denial::Secondary(second(60)));
        assert_eq!(usage.pay(second(0), COMMENT, &limits), blocked);
        // Whoever was turned away is turned away with everything.
        assert_eq!(usage.pay(second(59), READ, &limits), blocked);
        for request in 0..420 {
            assert_eq!(usage.pay(second(60 + request * 2), COMMENT, &limits), Ok(()));
        }
        assert!(usage.pay(second(2_000), COMMENT, &limits).is_err());
        assert_eq!(usage.pay(second(3_600), COMMENT, &limits), Ok(()));
    }

    #[test]
    fn writes_are_five_times_as_dear_per_minute() {
        let (mut usage, limits) = (Usage::default(), Limits::GITHUB);
        let write = Price { points: 5, ..READ };
        for _ in 0..180 {
            assert_eq!(usage.pay(second(0), write, &limits), Ok(()));
        }
        assert_eq!(usage.pay(second(0), READ, &limits), Err(Denial::Secondary(second(60))));
    }
}
