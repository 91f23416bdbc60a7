//! [`Budget`]: one queue of requests per token and machine, kept inside of GitHub's limits.
//!
//! What was asked lately is in a file that all processes share, [`Usage`] decides from it when the
//! next request may go. Nothing is sent and refused that could have been known.

mod usage;
#[cfg(test)]
mod usage_tests;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use sprag_core::clock::{Clock, Moment};
use sprag_core::{Error, ErrorKind};

pub(crate) use usage::{Heard, Limit, RENEWAL_CALLS, Verdict};
use usage::{Plan, Usage};

use crate::call::{Cost, Urgency};
use crate::error::error;

/// How long a request waits for its turn before it is told to come again.
const PATIENCE: Duration = Duration::from_secs(3);
/// A sign of life is asked for again soon anyway.
const PATIENCE_OF_RENEWALS: Duration = Duration::from_millis(1500);
/// What people look at has time.
const PATIENCE_OF_MIRROR: Duration = Duration::from_secs(60);

/// The requests that may be made with one token, by all processes of this machine.
pub(crate) struct Budget {
    file: Option<PathBuf>,
    usage: Mutex<Usage>,
    boot: String,
    clock: Arc<dyn Clock>,
    pause: Pause,
    /// Whether limits that GitHub documents are kept before it says anything.
    ahead: bool,
}

/// Lets time pass.
type Pause = Box<dyn Fn(Duration) + Send + Sync>;

impl Budget {
    /// `folder` is where it is shared; `None` keeps it to this process.
    pub(crate) fn new(folder: Option<&Path>, fingerprint: &str, clock: Arc<dyn Clock>) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim().to_owned();
        let file = folder.and_then(|folder| {
            let folder = folder.join("github");
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
            made.map(|()| folder.join(format!("{fingerprint}.json")))
                .inspect_err(|error| not_shared(&folder, error))
                .ok()
        });
        let ticking = Arc::clone(&clock);
        let pause = move |span| {
            let until = ticking.now().plus(span);
            while ticking.now() < until {
                std::thread::park_timeout(until.since(ticking.now()));
            }
        };
        let usage = Mutex::new(Usage::new(&boot));
        Self { file, usage, boot, clock, pause: Box::new(pause), ahead: true }
    }

    /// For a server without limits: only what it says counts.
    pub(crate) const fn ahead(mut self, ahead: bool) -> Self {
        self.ahead = ahead;
        self
    }

    /// Lets time pass in another way, for tests on simulated clocks.
    #[cfg(test)]
    pub(crate) fn pausing(mut self, pause: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        self.pause = Box::new(pause);
        self
    }

    /// Waits for the turn of a request, but not for long.
    ///
    /// # Errors
    ///
    /// If it would take longer; nothing was sent.
    pub(crate) fn admit(&self, cost: Cost, urgency: Urgency) -> Result<(), Limited> {
        let patience = match urgency {
            Urgency::Renewal => PATIENCE_OF_RENEWALS,
            Urgency::Normal => PATIENCE,
            Urgency::Mirror => PATIENCE_OF_MIRROR,
        };
        let begun = self.clock.now();
        loop {
            let now = self.clock.now();
            let plan = self.with(|usage| {
                let plan = usage.plan_ahead(cost, urgency, now, self.ahead);
                if plan == Plan::Go {
                    usage.sent(cost, urgency, now);
                }
                plan
            });
            match plan {
                Plan::Go => return Ok(()),
                Plan::Wait(until, limit) if until > begun.plus(patience) => {
                    return Err(Limited { limit, left: until.since(now) });
                }
                Plan::Wait(until, _) => (self.pause)(until.since(now)),
            }
        }
    }

    /// When a request that GitHub refused for being too fast may go.
    pub(crate) fn refused(&self, cost: Cost, urgency: Urgency) -> Option<Limited> {
        let now = self.clock.now();
        match self.with(|usage| usage.plan_ahead(cost, urgency, now, self.ahead)) {
            Plan::Go => None,
            Plan::Wait(until, limit) => Some(Limited { limit, left: until.since(now) }),
        }
    }

    /// Learns from an answer.
    pub(crate) fn heard(&self, cost: Cost, heard: &Heard) {
        let now = self.clock.now();
        self.with(|usage| usage.heard(cost, heard, now));
    }

    /// Writes down that a process gives signs of life.
    pub(crate) fn beat(&self, keeper: &str, every: Duration) {
        let now = self.clock.now();
        self.with(|usage| usage.beat(keeper, every, now));
    }

    /// The earliest moment at which a sign of life can be given.
    pub(crate) fn next_renewal(&self) -> Moment {
        let now = self.clock.now();
        self.with(|usage| usage.next_renewal(now))
    }

    /// Whether there is plenty.
    pub(crate) fn is_ample(&self) -> bool {
        let now = self.clock.now();
        self.with(|usage| usage.is_ample(now))
    }

    /// What is left of the hour: requests and points of GraphQL, with their limits.
    pub(crate) fn left(&self) -> [(u64, u64); 2] {
        self.with(|usage| usage.left())
    }

    /// Looks at what all processes know, and changes it.
    fn with<T>(&self, change: impl FnOnce(&mut Usage) -> T) -> T {
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = &self.file else { return change(&mut usage) };
        match Shared::open(path) {
            Ok(mut shared) => {
                *usage = shared.read(&self.boot);
                let before = usage.clone();
                let answer = change(&mut usage);
                if *usage != before
                    && let Err(error) = shared.write(&usage)
                {
                    not_shared(path, &error);
                }
                answer
            }
            Err(error) => {
                not_shared(path, &error);
                change(&mut usage)
            }
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("file", &self.file).finish_non_exhaustive()
    }
}

fn not_shared(path: &Path, error: &io::Error) {
    let path = path.display();
    tracing::warn!(target: "sprag::github", %path, %error, "the budget is not shared with other processes");
}

/// The file while it is locked.
struct Shared(File);

impl Shared {
    fn open(path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(Self(file))
    }

    /// What is in it; nothing if that is of another boot, or cannot be read.
    fn read(&mut self, boot: &str) -> Usage {
        let mut text = String::new();
        let read = self.0.read_to_string(&mut text);
        let known = read.ok().and_then(|_| serde_json::from_str::<Usage>(&text).ok());
        let known = known.filter(|usage| usage.boot == boot);
        known.unwrap_or_else(|| Usage::new(boot))
    }

    fn write(&mut self, usage: &Usage) -> io::Result<()> {
        let text = serde_json::to_vec(usage)?;
        self.0.rewind()?;
        self.0.write_all(&text)?;
        self.0.set_len(text.len().try_into().unwrap_or(u64::MAX))
    }
}

/// A request that has to wait; it was not sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limited {
    pub(crate) limit: Limit,
    pub(crate) left: Duration,
}

impl From<Limited> for Error {
    fn from(limited: Limited) -> Self {
        let left = limited.left.as_secs() + 1;
        let left = if left >= 120 {
            format!("{}m{:02}s", left / 60, left % 60)
        } else {
            format!("{left}s")
        };
        let what = match limited.limit {
            Limit::Primary { remaining, limit } => {
                format!("{remaining} of {limit} left, and they are for renewals; resets in {left}")
            }
            Limit::Secondary => format!("it asked us to slow down; silent for {left}"),
            Limit::Content => format!("too many comments; the next one in {left}"),
            Limit::Pace => format!("too many requests a minute; the next one in {left}"),
        };
        let message = format!(
            "GitHub rate limit: {what}. Nothing was sent: try again then, or see `sprag doctor`"
        );
        error(ErrorKind::RateLimited, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sprag_core::clock::ManualClock;

    fn budget(folder: Option<&Path>) -> (Budget, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new());
        clock.advance(Duration::from_secs(1000));
        let ticking = Arc::clone(&clock);
        let budget = Budget::new(folder, "x", Arc::clone(&clock) as _);
        (budget.pausing(move |span| ticking.advance(span)), clock)
    }

    fn slow_down(seconds: u64) -> Heard {
        let facts = crate::call::Facts { retry_after: Some(seconds), ..Default::default() };
        Heard { facts, verdict: Verdict::SlowDown, ..Heard::default() }
    }

    #[test]
    fn processes_share_what_they_were_told() {
        let folder = tempfile::tempdir().unwrap();
        let (first, _) = budget(Some(folder.path()));
        let (second, clock) = budget(Some(folder.path()));
        first.heard(Cost::Write, &slow_down(30));
        let limited = second.admit(Cost::Read, Urgency::Renewal).unwrap_err();
        assert_eq!(limited.limit, Limit::Secondary);
        assert_eq!(limited.left, Duration::from_secs(30));
        let error = Error::from(limited);
        assert!(error.is_retryable() && error.is_rate_limited(), "{error:?}");
        assert!(error.message().contains("rate limit"), "{error}");
        clock.advance(Duration::from_secs(30));
        second.admit(Cost::Read, Urgency::Renewal).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_read_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (budget, _) = budget(Some(folder.path()));
        budget.admit(Cost::Write, Urgency::Normal).unwrap();
        let file = folder.path().join("github/x.json");
        for text in ["", "{", r#"{"boot":"another","silent_until":99999999999}"#] {
            fs::write(&file, text).unwrap();
            budget.admit(Cost::Write, Urgency::Normal).unwrap();
        }
        assert!(fs::read_to_string(&file).unwrap().contains("last_change"));
    }

    #[test]
    fn short_waits_are_waited_and_long_ones_are_told() {
        let (budget, clock) = budget(None);
        budget.heard(Cost::Write, &slow_down(2));
        let begun = clock.now();
        budget.admit(Cost::Write, Urgency::Normal).unwrap();
        assert_eq!(clock.now().since(begun), Duration::from_secs(2));
        // From now on changes are a second apart.
        budget.admit(Cost::Write, Urgency::Normal).unwrap();
        assert_eq!(clock.now().since(begun), Duration::from_secs(3));
    }
}
