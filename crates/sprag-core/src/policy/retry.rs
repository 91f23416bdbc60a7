//! [`RetryConfig`]: how often to try and how long to wait in between.

use std::time::Duration;

use crate::clock::Moment;
use crate::error::{Error, Operation};

/// How often a held lock is tried, and how long to wait between two tries.
///
/// The wait grows from [`initial_delay`](Self::initial_delay) by
/// [`backoff_multiplier`](Self::backoff_multiplier) until it reaches
/// [`max_delay`](Self::max_delay).
///
/// # Examples
///
/// ```
/// use sprag_core::RetryConfig;
/// use std::time::Duration;
///
/// let retry = RetryConfig {
///     max_attempts: 20,
///     initial_delay: Duration::from_millis(100),
///     max_delay: Duration::from_secs(5),
///     backoff_multiplier: 2.0,
/// };
/// assert_eq!(retry.delay(1), Some(Duration::from_millis(100)));
/// assert_eq!(retry.delay(3), Some(Duration::from_millis(400)));
/// assert_eq!(retry.delay(19), Some(Duration::from_secs(5)));
/// assert_eq!(retry.delay(20), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryConfig {
    /// How often to try in all, the first try included.
    pub max_attempts: u32,
    /// How long to wait after the first failed try.
    pub initial_delay: Duration,
    /// The longest wait between two tries.
    pub max_delay: Duration,
    /// How many times longer each wait is than the one before it.
    pub backoff_multiplier: f64,
}

impl Default for RetryConfig {
    /// 10 tries over at most 21.3 s: 100 ms, doubling up to 5 s.
    fn default() -> Self {
        Self {
            max_attempts: 10,
            initial_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(5),
            backoff_multiplier: 2.0,
        }
    }
}

impl RetryConfig {
    /// Summed one by one in [`total_wait`](Self::total_wait); enough for every growth worth
    /// the name to reach its cap.
    const SUMMED: u32 = 4096;

    /// One try, no waiting.
    pub fn no_retry() -> Self {
        Self { max_attempts: 1, ..Self::default() }
    }

    /// 50 tries over at most 84 s: 50 ms, half as much again each time, up to 2 s.
    ///
    /// For locks that are held briefly and wanted badly. The gentle growth keeps the first
    /// second at six tries, and the low cap bounds the time a free lock goes unnoticed.
    pub const fn aggressive() -> Self {
        Self {
            max_attempts: 50,
            initial_delay: Duration::from_millis(50),
            max_delay: Duration::from_secs(2),
            backoff_multiplier: 1.5,
        }
    }

    /// One try and 5 retries, 1, 2, 4, 8 and 16 s apart: for locks held for minutes.
    pub const fn manager() -> Self {
        Self {
            max_attempts: 6,
            initial_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(16),
            backoff_multiplier: 2.0,
        }
    }

    /// How long to wait after the `attempt`-th failed try, counted from 1, before jitter; `None`
    /// when no try is left.
    ///
    /// Never panics: values that [`validate`](Self::validate) refuses give some delay up to
    /// `max_delay`.
    pub fn delay(&self, attempt: u32) -> Option<Duration> {
        if attempt >= self.max_attempts {
            return None;
        }
        if attempt == 0 {
            return Some(Duration::ZERO);
        }
        let growths = i32::try_from(attempt - 1).unwrap_or(i32::MAX);
        if growths == 0 || self.initial_delay.is_zero() || !self.grows() {
            return Some(self.initial_delay.min(self.max_delay));
        }
        let grown = self.initial_delay.as_secs_f64() * self.backoff_multiplier.powi(growths);
        // Too large for a duration is larger than any cap.
        let grown = Duration::try_from_secs_f64(grown).unwrap_or(Duration::MAX);
        Some(grown.max(self.initial_delay).min(self.max_delay))
    }

    /// The delay after the `attempt`-th failed try with full jitter: `fraction`, drawn evenly
    /// from 0 to 1 by the caller, of [`delay`](Self::delay).
    ///
    /// Full jitter spreads clients that were refused at the same moment over the whole delay;
    /// without it they would come back together, for ever.
    pub fn jittered(&self, attempt: u32, fraction: f64) -> Option<Duration> {
        // Not a number becomes the whole delay: waiting too long is the harmless mistake.
        let fraction = if fraction.is_nan() { 1.0 } else { fraction };
        let delay = self.delay(attempt)?;
        let jittered = delay.as_secs_f64() * fraction.clamp(0.0, 1.0);
        Some(Duration::try_from_secs_f64(jittered).map_or(delay, |jittered| jittered.min(delay)))
    }

    /// The sum of all delays before jitter: how long the whole schedule may wait.
    ///
    /// Exact for the first 4,096 tries and for every try once the cap is reached; a delay that
    /// still grows after so many counts as `max_delay`.
    pub fn total_wait(&self) -> Duration {
        let mut total = Duration::ZERO;
        for attempt in 1..self.max_attempts {
            let Some(delay) = self.delay(attempt) else {
                break;
            };
            let settled = delay == self.max_delay || !self.grows();
            if settled || attempt == Self::SUMMED {
                let last = if settled { delay } else { self.max_delay };
                let rest = last.checked_mul(self.max_attempts - attempt);
                return total.saturating_add(rest.unwrap_or(Duration::MAX));
            }
            total = total.saturating_add(delay);
        }
        total
    }

    /// Checks that the values make a schedule.
    ///
    /// # Errors
    ///
    /// A bad-input error that names the value and the fix.
    pub fn validate(&self) -> Result<(), Error> {
        let bad = |what: String| Err(Error::bad_input(Operation::Acquire, what));
        let multiplier = self.backoff_multiplier;
        if self.max_attempts == 0 {
            return bad("max_attempts is 0; use 1 to try once".into());
        }
        if !multiplier.is_finite() || multiplier < 1.0 {
            return bad(format!(
                "backoff_multiplier is {multiplier}; use 1.0 for even delays, 2.0 to double them"
            ));
        }
        if self.max_delay < self.initial_delay {
            return bad(format!(
                "max_delay {:?} is shorter than initial_delay {:?}; raise the one or lower the other",
                self.max_delay, self.initial_delay
            ));
        }
        Ok(())
    }

    fn grows(&self) -> bool {
        self.backoff_multiplier > 1.0
    }
}

/// The walk through a [`RetryConfig`], bounded by a deadline.
///
/// # Examples
///
/// ```
/// use sprag_core::RetryConfig;
/// use sprag_core::clock::Moment;
/// use sprag_core::policy::Backoff;
/// use std::time::Duration;
///
/// let (start, second) = (Moment::START, Duration::from_secs(1));
/// let mut backoff = Backoff::new(RetryConfig::manager(), Some(start.plus(second * 2)));
/// assert_eq!(backoff.next(start, 1.0), Some(second));
/// // Two seconds would be due, one is left: the last try is made at the deadline.
/// assert_eq!(backoff.next(start.plus(second), 1.0), Some(second));
/// assert_eq!(backoff.next(start.plus(second * 2), 1.0), None);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    config: RetryConfig,
    deadline: Option<Moment>,
    failed: u32,
}

impl Backoff {
    /// Starts before the first try.
    pub const fn new(config: RetryConfig, deadline: Option<Moment>) -> Self {
        Self { config, deadline, failed: 0 }
    }

    /// How long to wait after one more failed try; `None` when no try or no time is left.
    ///
    /// The wait never ends after the deadline. `fraction` is the jitter, from 0 to 1.
    pub fn next(&mut self, now: Moment, fraction: f64) -> Option<Duration> {
        let left = match self.deadline {
            Some(deadline) if deadline <= now => return None,
            Some(deadline) => deadline.since(now),
            None => Duration::MAX,
        };
        self.failed = self.failed.saturating_add(1);
        let delay = self.config.jittered(self.failed, fraction)?;
        Some(delay.min(left))
    }

    /// How many tries have failed so far.
    pub const fn failed(&self) -> u32 {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, RetryConfig};
    use crate::clock::Moment;
    use proptest::prelude::*;
    use std::time::Duration;

    fn delays(config: RetryConfig) -> Vec<u128> {
        let delay = |attempt| config.delay(attempt).map(|delay| delay.as_millis());
        (1..).map_while(delay).collect()
    }

    #[test]
    fn the_presets_wait_as_documented() {
        let default = [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000];
        assert_eq!(delays(RetryConfig::default()), default);
        assert_eq!(delays(RetryConfig::no_retry()), [0_u128; 0]);
        assert_eq!(delays(RetryConfig::manager()), [1000, 2000, 4000, 8000, 16000]);
        let aggressive = delays(RetryConfig::aggressive());
        assert_eq!(aggressive.len(), 49);
        assert_eq!(aggressive[..4], [50, 75, 112, 168]);
        assert_eq!(aggressive[48], 2000);
    }

    #[test]
    fn the_presets_are_valid_and_last_as_long_as_documented() {
        let cases = [
            (RetryConfig::default(), 21_300),
            (RetryConfig::no_retry(), 0),
            (RetryConfig::manager(), 31_000),
            (RetryConfig::aggressive(), 83_666),
        ];
        for (config, total) in cases {
            config.validate().unwrap();
            assert_eq!(config.total_wait().as_millis(), total, "{config:?}");
        }
    }

    #[test]
    fn a_schedule_that_cannot_be_is_refused_with_its_value_and_the_fix() {
        let good = RetryConfig::default();
        let multiplied = |backoff_multiplier| RetryConfig { backoff_multiplier, ..good };
        let no_attempts = RetryConfig { max_attempts: 0, ..good };
        let low_cap = RetryConfig { max_delay: Duration::from_millis(7), ..good };
        let cases = [
            (no_attempts, "max_attempts is 0; use 1"),
            (multiplied(f64::NAN), "is NaN; use 1.0"),
            (multiplied(f64::INFINITY), "is inf; use 1.0"),
            (multiplied(0.5), "is 0.5; use 1.0"),
            (multiplied(-2.0), "is -2; use 1.0"),
            (low_cap, "max_delay 7ms is shorter than initial_delay 100ms; raise"),
        ];
        for (config, why) in cases {
            let error = config.validate().unwrap_err();
            assert!(error.is_bad_input(), "{error}");
            assert!(error.to_string().contains(why), "{error} does not say {why}");
        }
    }

    #[test]
    fn jitter_takes_a_fraction_of_the_delay() {
        let config = RetryConfig::manager();
        let jittered = |fraction| config.jittered(2, fraction).unwrap().as_millis();
        assert_eq!(jittered(0.0), 0);
        assert_eq!(jittered(0.5), 1000);
        assert_eq!(jittered(1.0), 2000);
        assert_eq!((jittered(-3.0), jittered(9.0)), (0, 2000));
        assert_eq!(jittered(f64::NAN), 2000);
    }

    #[test]
    fn an_endless_schedule_is_summed_at_once() {
        let creeping = RetryConfig {
            max_attempts: u32::MAX,
            backoff_multiplier: 1.0 + 1e-12,
            ..RetryConfig::default()
        };
        assert!(creeping.total_wait() > Duration::from_secs(1 << 30));
        let even = RetryConfig {
            max_attempts: u32::MAX,
            backoff_multiplier: 1.0,
            ..RetryConfig::default()
        };
        assert_eq!(even.total_wait(), Duration::from_millis(100) * (u32::MAX - 1));
    }

    #[test]
    fn a_backoff_without_deadline_ends_with_its_schedule() {
        let mut backoff = Backoff::new(RetryConfig::manager(), None);
        let waits: Vec<_> = std::iter::from_fn(|| backoff.next(Moment::START, 1.0)).collect();
        assert_eq!(waits.len(), 5);
        assert_eq!(waits.iter().sum::<Duration>(), Duration::from_secs(31));
        assert_eq!(backoff.failed(), 6);
    }

    fn any_duration() -> impl Strategy<Value = Duration> {
        prop_oneof![
            Just(Duration::ZERO),
            Just(Duration::MAX),
            (any::<u64>(), 0_u32..1_000_000_000).prop_map(|(s, ns)| Duration::new(s, ns)),
            (0_u64..100_000).prop_map(Duration::from_micros),
        ]
    }

    fn any_multiplier() -> impl Strategy<Value = f64> {
        prop_oneof![any::<f64>(), Just(f64::NAN), Just(f64::INFINITY), 0.9..4.0]
    }

    prop_compose! {
        fn any_config()(
            max_attempts in prop_oneof![any::<u32>(), 0_u32..20],
            initial_delay in any_duration(),
            max_delay in any_duration(),
            backoff_multiplier in any_multiplier(),
        ) -> RetryConfig {
            RetryConfig { max_attempts, initial_delay, max_delay, backoff_multiplier }
        }
    }

    proptest! {
        #[test]
        fn no_values_make_it_panic_or_exceed_the_cap(
            config in any_config(),
            attempt in any::<u32>(),
            fraction in prop_oneof![any::<f64>(), 0.0..1.0],
        ) {
            let delay = config.delay(attempt);
            prop_assert_eq!(delay.is_some(), attempt < config.max_attempts);
            prop_assert!(delay.unwrap_or_default() <= config.max_delay);
            prop_assert!(config.jittered(attempt, fraction) <= delay);
            prop_assert!(config.total_wait() >= delay.unwrap_or_default());
            let _verdict = config.validate().is_ok();
        }

        #[test]
        fn delays_never_shrink(config in any_config(), attempt in 1_u32..100) {
            if let (Some(this), Some(next)) = (config.delay(attempt), config.delay(attempt + 1)) {
                prop_assert!(this <= next, "{:?} then {:?}", this, next);
            }
        }

        #[test]
        fn the_total_is_the_sum_of_the_delays(config in any_config()) {
            let config = RetryConfig { max_attempts: config.max_attempts % 200, ..config };
            let sum = (1..).map_while(|attempt| config.delay(attempt));
            prop_assert_eq!(config.total_wait(), sum.fold(Duration::ZERO, Duration::saturating_add));
        }

        #[test]
        fn a_backoff_never_sleeps_past_its_deadline(
            config in any_config(),
            now in any_duration(),
            left in any_duration(),
            fraction in any::<f64>(),
        ) {
            let now = Moment::new(now);
            let deadline = now.plus(left);
            let mut backoff = Backoff::new(config, Some(deadline));
            if let Some(delay) = backoff.next(now, fraction) {
                prop_assert!(now.plus(delay) <= deadline);
            }
            prop_assert_eq!(backoff.next(deadline, fraction), None);
        }
    }
}
