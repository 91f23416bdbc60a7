//! Times as GitHub writes them: `2025-10-30T21:30:00Z`.

/// Days from 1970-01-01 to this date; `None` if there is none, or it was before.
pub(crate) fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March, so that the odd day comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year / 4 - year / 100 + year / 400;
    (year * 365 + leaps + (153 * month + 2) / 5 + day - 1).checked_sub(719_468)
}

/// Seconds since 1970 of a time such as `2025-10-30T21:30:00Z`.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-').map(|part| part.parse::<u64>().ok());
    let days = days_since_1970(date.next()??, date.next()??, date.next()??)?;
    let mut time = time.split(':').map(|part| part.split('.').next()?.parse::<u64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Writes seconds since 1970 as `2025-10-30T21:30:00Z`.
pub(crate) fn format(unix_seconds: u64) -> String {
    let (days, rest) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (year + era * 400, if month < 10 { month + 3 } else { month - 9 });
    let year = if month <= 2 { year + 1 } else { year };
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::{format, parse};

    #[test]
    fn times_are_read_as_they_are_written() {
        assert_eq!(format(1_761_859_800), "2025-10-30T21:30:00Z");
        for unix in (0..4_000_000_000_u64).step_by(86_399 * 7) {
            assert_eq!(parse(&format(unix)), Some(unix));
        }
        assert_eq!(parse("2025-10-30T21:30:00.123Z"), Some(1_761_859_800));
        for bad in ["", "2025-10-30", "2025-13-30T21:30:00Z", "xT1:2:3Z", "2025-10-30T21:30:00"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
