//! [`Weather`]: which faults happen, how often and when.

use std::time::Duration;

use tokio::time::Instant;

use super::dice::Dice;

/// How often each fault happens, in thousandths of the occasions.
///
/// Each run has its own: some faults not at all, some often. A bug that needs many of one kind
/// and none of another is found sooner than with the same mixture every time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) lost_request: u64,
    pub(crate) lost_reply: u64,
    pub(crate) slow_request: u64,
    pub(crate) slow_reply: u64,
    pub(crate) duplicate: u64,
    pub(crate) lost_hint: u64,
    pub(crate) late_hint: u64,
    pub(crate) needless_hint: u64,
    pub(crate) stale_read: u64,
}

impl Rates {
    fn draw(dice: &mut Dice) -> Self {
        let mut rate = |often: u64| if dice.chance(750) { dice.number(1, often) } else { 0 };
        Self {
            lost_request: rate(30),
            lost_reply: rate(30),
            slow_request: rate(30),
            slow_reply: rate(30),
            duplicate: rate(100),
            lost_hint: rate(500),
            late_hint: rate(500),
            needless_hint: rate(30),
            stale_read: rate(800),
        }
    }
}

/// What one request meets on its way.
#[derive(Debug, Default)]
pub(crate) struct Passage {
    pub(crate) before: Duration,
    pub(crate) after: Duration,
    pub(crate) request_lost: bool,
    pub(crate) reply_lost: bool,
    pub(crate) slow: bool,
    /// Whether a loss is noticed only by a timeout; otherwise the connection breaks.
    pub(crate) silent: bool,
    /// When a copy arrives, after the request itself.
    pub(crate) duplicate: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct Weather {
    dice: Dice,
    rates: Rates,
    calm: bool,
    /// Until then everything that arrives at the store is lost.
    outage_until: Instant,
    /// Until then the store does nothing, and then everything.
    stall_until: Instant,
}

impl Weather {
    pub(crate) fn new(mut dice: Dice) -> Self {
        let rates = Rates::draw(&mut dice);
        let now = Instant::now();
        Self { dice, rates, calm: false, outage_until: now, stall_until: now }
    }

    /// No more faults: what is broken has to heal by itself.
    pub(crate) fn calm_down(&mut self) {
        self.calm = true;
        self.rates = Rates::default();
        self.outage_until = Instant::now();
        self.stall_until = Instant::now();
    }

    /// What the next request meets.
    pub(crate) fn passage(&mut self) -> Passage {
        let (dice, rates) = (&mut self.dice, &self.rates);
        let mut passage = Passage {
            before: Duration::from_millis(dice.number(1, 8)),
            after: Duration::from_millis(dice.number(1, 8)),
            ..Passage::default()
        };
        if self.calm {
            return passage;
        }
        if dice.chance(rates.slow_request) {
            passage.before = dice.time(100, 12_000);
            passage.slow = true;
        }
        if dice.chance(rates.slow_reply) {
            passage.after = dice.time(100, 6_000);
            passage.slow = true;
        }
        passage.request_lost = dice.chance(rates.lost_request);
        passage.reply_lost = dice.chance(rates.lost_reply);
        passage.silent = dice.chance(500);
        passage.duplicate = dice.chance(rates.duplicate).then(|| dice.time(1, 15_000));
        passage
    }

    pub(crate) fn is_out(&self) -> bool {
        Instant::now() < self.outage_until
    }

    pub(crate) fn stall_until(&self) -> Instant {
        self.stall_until
    }

    /// What becomes of a hint: nothing, or when it arrives.
    pub(crate) fn hint(&mut self) -> Option<Duration> {
        if self.dice.chance(self.rates.lost_hint) {
            None
        } else if self.dice.chance(self.rates.late_hint) {
            Some(self.dice.time(5, 5_000))
        } else {
            Some(Duration::ZERO)
        }
    }

    pub(crate) fn needless_hint(&mut self) -> bool {
        self.dice.chance(self.rates.needless_hint)
    }

    pub(crate) fn stale_read(&mut self) -> bool {
        self.dice.chance(self.rates.stale_read)
    }

    /// When the next bad time for the whole store begins.
    pub(crate) fn next_front(&mut self) -> Duration {
        self.dice.time(5_000, 1_500_000)
    }

    /// Begins a bad time; tells which.
    pub(crate) fn front(&mut self) -> (&'static str, Duration) {
        let length = self.dice.time(100, 60_000);
        let until = Instant::now() + length;
        if self.dice.chance(600) {
            self.outage_until = until;
            ("store out of reach", length)
        } else {
            self.stall_until = until;
            ("store stalls", length)
        }
    }
}
