//! Times and spans of time, as people read and write them.

use std::time::Duration;

use sprag::clock::{BootClock, Clock};

/// The longest span that can be written: 100 years.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// Reads a span: `30` and `1.5` are seconds; `30s`, `5m`, `1h30m`, `250ms`, `2d`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let bad = || {
        format!("{text:?} is no duration; write seconds, or numbers with ms, s, m, h or d: 1h30m")
    };
    let long = || format!("{text:?} is too long; at most 100 years");
    let seconds = |number: f64| {
        Duration::try_from_secs_f64(number).ok().filter(|span| *span <= LONGEST).ok_or_else(long)
    };
    let number = |digits: &str| {
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        digits.parse::<f64>().ok().filter(|_| plain).ok_or_else(bad)
    };
    if text.bytes().last().is_some_and(|byte| byte.is_ascii_digit() || byte == b'.') {
        return seconds(number(text)?);
    }
    let (mut rest, mut total, mut last) = (text, 0.0, f64::INFINITY);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?;
        let (value, behind) = rest.split_at(digits);
        let letters = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(letters);
        let unit = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return Err(bad()),
        };
        // 1m1h is a slip of the hand.
        if unit >= last {
            return Err(bad());
        }
        (rest, total, last) = (next, total + number(value)? * unit, unit);
    }
    if last.is_infinite() { Err(bad()) } else { seconds(total) }
}

/// A span with at most two units: `0.4s`, `12s`, `4m12s`, `2h11m`, `3d4h`.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let two = |large: u64, unit: char, small: u64, lesser: char| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{lesser}") }
    };
    match seconds {
        0 if span.is_zero() => "0s".to_owned(),
        0 if span < Duration::from_millis(50) => format!("{}ms", span.as_millis().max(1)),
        0..10 if span.subsec_millis() >= 50 => format!("{:.1}s", span.as_secs_f64()),
        0..60 => format!("{seconds}s"),
        60..3600 => two(seconds / 60, 'm', seconds % 60, 's'),
        3600..86400 => two(seconds / 3600, 'h', seconds % 3600 / 60, 'm'),
        _ => two(seconds / 86400, 'd', seconds % 86400 / 3600, 'h'),
    }
}

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    BootClock.unix_micros() / 1000
}

/// How long ago a time is; zero for the future.
pub(crate) fn ago(unix_ms: u64) -> Duration {
    Duration::from_millis(now().saturating_sub(unix_ms))
}

/// `2026-11-15 14:02:11 UTC`.
pub(crate) fn full(unix_ms: u64) -> String {
    let (date, clock) = parts(unix_ms);
    format!("{date} {clock} UTC")
}

/// `2026-11-15T14:02:11Z`, for programs.
pub(crate) fn rfc3339(unix_ms: u64) -> String {
    let (date, clock) = parts(unix_ms);
    format!("{date}T{clock}Z")
}

/// `14:02:11Z`, with the date in front if it is not today.
pub(crate) fn short(unix_ms: u64) -> String {
    let (date, clock) = parts(unix_ms);
    if date == parts(now()).0 { format!("{clock}Z") } else { format!("{date} {clock}Z") }
}

/// `14:02`, with the date in front if it is not today.
pub(crate) fn minute(unix_ms: u64) -> String {
    let mut text = short(unix_ms);
    text.truncate(text.len() - ":11Z".len());
    text
}

fn parts(unix_ms: u64) -> (String, String) {
    let seconds = unix_ms / 1000;
    let (year, month, day) = date(seconds / 86400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    (format!("{year:04}-{month:02}-{day:02}"), format!("{hour:02}:{minute:02}:{second:02}"))
}

/// Year, month and day of a day since 1970, counted in eras of 400 years that begin in March.
const fn date(day: u64) -> (u64, u64, u64) {
    let days = day + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::{full, parse, rfc3339, span};
    use std::time::Duration;

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, millis) in [
            ("30", 30_000),
            ("0", 0),
            ("1.5", 1500),
            (".5", 500),
            ("30s", 30_000),
            ("250ms", 250),
            ("1.5m", 90_000),
            ("1h30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_and_repeated() {
        for text in [
            "", "s", "1x", "1m1h", "1m1m", "-1", "+1", "1e3", "1 m", "5m3", "inf", "1..5",
            "9999999d",
        ] {
            assert!(parse(text).unwrap_err().contains(&format!("{text:?}")), "{text}");
        }
    }

    #[test]
    fn spans_are_shown_with_two_units() {
        for (millis, text) in [
            (0, "0s"),
            (3, "3ms"),
            (400, "0.4s"),
            (2120, "2.1s"),
            (12_900, "12s"),
            (252_000, "4m12s"),
            (3_600_000, "1h"),
            (7_860_000, "2h11m"),
            (273_600_000, "3d4h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(full(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_763_215_331_999), "2025-11-15T14:02:11Z");
        assert_eq!(rfc3339(4_107_542_399_000), "2100-02-28T23:59:59Z");
    }
}
