//! What `sprag run --once-per` leaves behind: a lease that says "done" until the next period.
//!
//! It is a lock of its own, beside the one that the command ran under. Whoever gets the lock looks
//! at the mark before it starts anything, so it does not matter who waited when it was made.

use std::time::Duration;

use sprag::{HolderView, LockName, LockView};

use crate::output::view::millis;

/// What is added to the name of the lock, behind `#`.
pub(crate) const SUFFIX: &str = "done";

/// The name of the mark beside a lock.
pub(crate) fn mark(lock: &LockName) -> Result<LockName, sprag::Error> {
    LockName::new(format!("{lock}#{SUFFIX}"))
}

/// The lock that a mark belongs to, if it is one that says "done".
pub(crate) fn marked(view: &LockView) -> Option<&str> {
    let lock = view.name.as_str().strip_suffix(SUFFIX)?.strip_suffix('#')?;
    view.holders.iter().any(|holder| holder.detached).then_some(lock)
}

/// Whether the mark says that the work of the period that `unix_ms` is in is done. A store that
/// cannot tell when a lease ends may show it for longer than its period.
pub(crate) fn is_done(view: &LockView, period: Duration, unix_ms: u64) -> bool {
    marked(view).is_some() && !view.holders.iter().any(|mark| is_old(mark, period, unix_ms))
}

fn is_old(mark: &HolderView, period: Duration, unix_ms: u64) -> bool {
    let end = unix_ms.saturating_add(millis(rest_of_period(unix_ms, period)));
    let begun = end.saturating_sub(millis(period).max(1));
    mark.remaining.is_none() && mark.holder.since_unix_ms.is_some_and(|since| since < begun)
}

/// How long the period that `unix_ms` is in goes on.
pub(crate) fn rest_of_period(unix_ms: u64, period: Duration) -> Duration {
    let period = millis(period).max(1);
    Duration::from_millis(period - unix_ms % period)
}

#[cfg(test)]
mod tests {
    use super::{mark, rest_of_period};
    use sprag::LockName;
    use std::time::Duration;

    #[test]
    fn periods_begin_with_1970() {
        let hour = Duration::from_secs(3600);
        assert_eq!(rest_of_period(0, hour), hour);
        assert_eq!(rest_of_period(3_599_999, hour), Duration::from_millis(1));
        assert_eq!(rest_of_period(3_600_000, hour), hour);
        assert_eq!(rest_of_period(7, Duration::ZERO), Duration::from_millis(1));
    }

    #[test]
    fn the_mark_stands_beside_the_lock() {
        assert_eq!(mark(&LockName::new("report").unwrap()).unwrap().as_str(), "report#done");
        assert!(mark(&LockName::new("x".repeat(255)).unwrap()).is_err());
    }
}
