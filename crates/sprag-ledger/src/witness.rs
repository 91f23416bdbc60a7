//! [`Witness`]: who gave a sign of life, and since when nobody has seen another one.
//!
//! Kept on disk where there is a folder for it, so that a command that looks once can build on
//! what an earlier one saw.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sprag_core::clock::Moment;
use sprag_core::policy::stale::{Observation, Observations};
use sprag_core::{LeaseId, SessionId};

use crate::oid::Oid;

/// How many observations are kept on disk.
const MAX_KEPT: usize = 4096;
const KERNEL_BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Who gives signs of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Sign {
    /// A session, for all that is bound to it: the number of its last one, 0 if it is not there.
    Session(SessionId),
    /// A lease that lives by itself: when it was renewed, on its holder's clock.
    Lease(LeaseId),
}

/// A session of somebody else as it was read last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) tip: Option<Oid>,
    pub(crate) beat: u64,
    pub(crate) read_at: Moment,
}

#[derive(Debug)]
pub(crate) struct Witness {
    seen: Observations<Sign, u64>,
    sessions: HashMap<SessionId, Seen>,
    file: Option<PathBuf>,
    /// Moments mean something only until the next boot.
    boot: String,
    dirty: bool,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    boot: String,
    seen: BTreeMap<String, (u64, u64)>,
}

impl Witness {
    /// Remembers what earlier processes saw, if there is a file for it.
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        let boot = std::fs::read_to_string(KERNEL_BOOT_ID).unwrap_or_default().trim().to_owned();
        let mut witness = Self {
            seen: Observations::default(),
            sessions: HashMap::new(),
            file,
            boot,
            dirty: false,
        };
        witness.load();
        witness
    }

    /// Takes note of a session that was read.
    pub(crate) fn saw_session(
        &mut self,
        session: SessionId,
        tip: Option<Oid>,
        beat: u64,
        read_at: Moment,
    ) {
        self.note(Sign::Session(session), beat, read_at);
        self.sessions.insert(session, Seen { tip, beat, read_at });
    }

    /// Takes note of a lease that lives by itself.
    pub(crate) fn saw_lease(&mut self, lease: LeaseId, renewed_ms: u64, read_at: Moment) {
        self.note(Sign::Lease(lease), renewed_ms, read_at);
    }

    fn note(&mut self, sign: Sign, version: u64, read_at: Moment) {
        let known = self.seen.get(&sign).is_some_and(|seen| seen.version == version);
        self.seen.observe(&sign, version, read_at);
        self.dirty |= !known;
    }

    /// A session as it was read last.
    pub(crate) fn session(&self, session: SessionId) -> Option<&Seen> {
        self.sessions.get(&session)
    }

    /// The session has changed since, in a way that is not known.
    pub(crate) fn forget_session(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// Whether there was no sign of life for `ttl` and a bit.
    pub(crate) fn is_silent(&self, sign: Sign, now: Moment, ttl: Duration) -> bool {
        self.seen.is_stale(&sign, now, ttl)
    }

    /// For how long no other sign of life was seen; `None` if there was never one.
    pub(crate) fn silence(&self, sign: Sign, now: Moment) -> Option<Duration> {
        self.seen.get(&sign).map(|seen| now.since(seen.seen_since))
    }

    /// Counts everything that was seen as silent for ever: an operator says so.
    pub(crate) fn assume_dead(&mut self, sign: Sign) {
        if let Some(seen) = self.seen.get(&sign).copied() {
            let since = Observation { version: seen.version, seen_since: Moment::START };
            self.seen.restore(sign, since);
        }
    }

    fn load(&mut self) {
        let Some(kept) = self.file.as_deref().and_then(read) else { return };
        if kept.boot != self.boot || self.boot.is_empty() {
            return;
        }
        for (key, (version, since_ms)) in kept.seen {
            let seen_since = Moment::new(Duration::from_millis(since_ms));
            if let Some(sign) = parse(&key) {
                self.seen.restore(sign, Observation { version, seen_since });
            }
        }
    }

    /// Writes down what is new. It only saves time, so whoever writes last wins.
    pub(crate) fn save(&mut self) {
        let Some(file) = self.file.as_deref().filter(|_| self.dirty && !self.boot.is_empty())
        else {
            return;
        };
        self.dirty = false;
        let mut all: Vec<_> = self.seen.iter().collect();
        all.sort_by_key(|(_, seen)| std::cmp::Reverse(seen.seen_since));
        let seen = all.into_iter().take(MAX_KEPT);
        let seen =
            seen.map(|(sign, seen)| (show(*sign), (seen.version, seen.seen_since.as_millis())));
        let kept = Kept { boot: self.boot.clone(), seen: seen.collect() };
        if let Err(error) = write(file, &kept) {
            tracing::debug!(%error, file = %file.display(), "observations are not kept");
        }
    }
}

fn read(file: &Path) -> Option<Kept> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// By renaming, so that nobody reads half of it.
fn write(file: &Path, kept: &Kept) -> std::io::Result<()> {
    let draft = file.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&draft, serde_json::to_vec(kept)?)?;
    std::fs::rename(draft, file)
}

fn show(sign: Sign) -> String {
    match sign {
        Sign::Session(session) => format!("session:{session}"),
        Sign::Lease(lease) => format!("lease:{lease}"),
    }
}

fn parse(text: &str) -> Option<Sign> {
    match text.split_once(':')? {
        ("session", id) => id.parse().ok().map(Sign::Session),
        ("lease", id) => id.parse().ok().map(Sign::Lease),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(100);

    fn at(seconds: u64) -> Moment {
        Moment::new(Duration::from_secs(seconds))
    }

    #[test]
    fn what_one_command_saw_the_next_one_builds_on() {
        let folder = tempfile::tempdir().unwrap();
        let file = Some(folder.path().join("seen.json"));
        let session = SessionId::from_u128(7);
        let mut first = Witness::new(file.clone());
        first.saw_session(session, None, 3, at(0));
        first.saw_lease(LeaseId::from_u128(8), 9, at(0));
        first.save();
        let mut second = Witness::new(file.clone());
        second.saw_session(session, None, 3, at(105));
        assert!(second.is_silent(Sign::Session(session), at(105), TTL));
        second.saw_lease(LeaseId::from_u128(8), 10, at(105));
        assert!(!second.is_silent(Sign::Lease(LeaseId::from_u128(8)), at(105), TTL));
        // Another boot: its moments mean nothing here.
        let path = file.clone().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(&first.boot, "another")).unwrap();
        let mut third = Witness::new(file);
        third.saw_session(session, None, 3, at(105));
        assert!(!third.is_silent(Sign::Session(session), at(105), TTL));
    }

    #[test]
    fn what_is_damaged_is_as_good_as_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("seen.json");
        std::fs::write(&file, "{\"boot\"").unwrap();
        let mut witness = Witness::new(Some(file));
        let sign = Sign::Session(SessionId::from_u128(1));
        assert_eq!(witness.silence(sign, at(5)), None);
        witness.saw_session(SessionId::from_u128(1), None, 0, at(0));
        assert_eq!(witness.silence(sign, at(5)), Some(Duration::from_secs(5)));
        witness.assume_dead(sign);
        assert!(witness.is_silent(sign, at(1000), TTL));
    }
}
