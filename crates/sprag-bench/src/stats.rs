//! Medians with their range, and percentiles.

use std::fmt;

/// The median of several measurements, and how far they were apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of at least one measurement.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.get(middle) {
            None => f64::NAN,
            Some(&upper) if sorted.len() % 2 == 1 => upper,
            Some(&upper) => f64::midpoint(sorted[middle - 1], upper),
        };
        Self {
            median,
            min: sorted.first().copied().unwrap_or(f64::NAN),
            max: sorted.last().copied().unwrap_or(f64::NAN),
        }
    }

    /// Of the ratio of each pair. A pair was measured back to back, so what the rest of the
    /// machine did at the time weighs on both of its sides.
    pub(crate) fn of_ratios(ours: &[f64], theirs: &[f64]) -> Self {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
        Self::of(&ratios)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            return f.write_str(&short(self.median));
        }
        write!(f, "{} ({}–{})", short(self.median), short(self.min), short(self.max))
    }
}

/// About three digits that mean something, with commas between thousands.
pub(crate) fn short(value: f64) -> String {
    if value.is_infinite() {
        return "∞".to_owned();
    }
    if value.abs() < 10.0 {
        return format!("{value:.2}");
    }
    if value.abs() < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The smallest value that at least `percent` of the sorted values do not exceed.
pub(crate) fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Spread, percentile, short};

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of(&[4.0, 1.0]).median, 2.5);
        assert!(Spread::of(&[]).median.is_nan());
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        let spread = Spread::of_ratios(&[1.0, 4.0, 9.0], &[2.0, 4.0, 3.0]);
        assert_eq!(spread, Spread { median: 1.0, min: 0.5, max: 3.0 });
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&values, 50), 50);
        assert_eq!(percentile(&values, 99), 99);
        assert_eq!(percentile(&values, 100), 100);
        assert_eq!(percentile(&[7], 99), 7);
        assert_eq!(percentile(&[], 50), 0);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(short(1.234), "1.23");
        assert_eq!(short(82.51), "82.5");
        assert_eq!(short(927.4), "927");
        assert_eq!(short(1_234_567.0), "1,234,567");
        assert_eq!(short(f64::INFINITY), "∞");
    }
}
