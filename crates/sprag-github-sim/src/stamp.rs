//! [`Stamp`]: a point in the simulator's time, and how GitHub writes it.

use std::time::Duration;

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400;
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Microseconds since 1970 on the simulator's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// Before everything that ever happens; what is there from then on is seen by every replica.
    pub const BEGINNING: Self = Self(0);

    /// So many microseconds after 1970.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Whole seconds since 1970.
    pub const fn seconds(self) -> u64 {
        self.0 / SECOND
    }

    /// This and `duration` more.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }

    /// This less `duration`, but not before the beginning.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }

    /// The time from `earlier` to this; nothing if that is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// `2026-01-01T00:00:00Z`, as in GitHub's JSON.
    pub fn iso(self) -> String {
        let (year, month, day) = civil(self.seconds() / DAY);
        let (hour, minute, second) = self.time();
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    /// `Thu, 01 Jan 2026 00:00:00 GMT`, as in HTTP headers.
    pub fn http(self) -> String {
        let days = self.seconds() / DAY;
        let (year, month, day) = civil(days);
        let (hour, minute, second) = self.time();
        let weekday = WEEKDAYS[usize::try_from(days % 7).unwrap_or_default()];
        let month = MONTHS[usize::try_from(month - 1).unwrap_or_default()];
        format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
    }

    /// Reads what [`iso`](Self::iso) writes; also with a fraction, which is left out.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
        let (year, month, day) = (date.next()??, date.next()??, date.next()??);
        let time = time.split('.').next()?;
        let mut time = time.splitn(3, ':').map(|part| part.parse::<u64>().ok());
        let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
        let fits = (1970..10_000).contains(&year) && (1..=12).contains(&month);
        if !fits || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let seconds = days(year, month, day) * DAY + hour * 3600 + minute * 60 + second;
        Some(Self(seconds * SECOND))
    }

    const fn time(self) -> (u64, u64, u64) {
        let seconds = self.seconds() % DAY;
        (seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The date so many days after 1970. Years are counted from March, so that the odd day is the last.
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// The reverse of [`civil`].
const fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let from_march = (month + 9) % 12;
    let of_era = year % 400 * 365 + year % 400 / 4 - year % 400 / 100;
    year / 400 * 146_097 + of_era + (153 * from_march + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read_as_github_does() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2026-01-01T00:00:00Z", 1_767_225_600),
        ] {
            let stamp = Stamp::from_micros(seconds * SECOND);
            assert_eq!(stamp.iso(), text);
            assert_eq!(Stamp::parse(text), Some(stamp));
        }
        assert_eq!(Stamp::from_micros(951_868_799_000_000).http(), "Tue, 29 Feb 2000 23:59:59 GMT");
        for bad in ["", "2026-01-01", "2026-13-01T00:00:00Z", "x-01-01T00:00:00Z"] {
            assert_eq!(Stamp::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn every_day_is_read_as_it_is_written() {
        for day in (0..80_000).step_by(7) {
            let stamp = Stamp::from_micros(day * DAY * SECOND);
            assert_eq!(Stamp::parse(&stamp.iso()), Some(stamp));
        }
    }
}
