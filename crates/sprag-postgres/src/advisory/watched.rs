//! [`Watched`]: whose end the waiters of this process wait for.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::LockName;
use sprag_core::clock::{BootClock, Clock, Moment};
use tokio::sync::Notify;

/// Who waits asks again within this time, or waits no longer.
const FRESH: Duration = Duration::from_secs(1);

/// Sessions of other processes, and the locks of theirs that are waited for here.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    until: Mutex<HashMap<(String, LockName), Moment>>,
    wanted: Notify,
}

impl Watched {
    /// From now on, for a while, the end of this session matters for this lock.
    pub(super) fn add(&self, session: String, lock: &LockName) {
        let until = BootClock.now().plus(FRESH);
        let mut watched = self.watched();
        let is_new = watched.insert((session, lock.clone()), until).is_none();
        drop(watched);
        if is_new {
            self.wanted.notify_one();
        }
    }

    /// The sessions and their locks, each time beginning with another one.
    pub(crate) fn turn(&self, number: usize) -> (Vec<String>, Vec<String>) {
        let now = BootClock.now();
        let mut watched = self.watched();
        watched.retain(|_, until| *until > now);
        let mut all: Vec<_> = watched.keys().cloned().collect();
        drop(watched);
        all.sort();
        if !all.is_empty() {
            let first = number % all.len();
            all.rotate_left(first);
        }
        all.into_iter().map(|(session, lock)| (session, lock.to_string())).unzip()
    }

    /// These are over.
    pub(crate) fn forget(&self, over: &[String]) {
        self.watched().retain(|(session, _), _| !over.contains(session));
    }

    /// Waits until there is somebody to watch who was not there before.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<(String, LockName), Moment>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_the_first_in_turn() {
        let watched = Watched::default();
        let lock = LockName::new("report").unwrap();
        assert!(watched.turn(0).0.is_empty());
        for session in ["b", "a", "b"] {
            watched.add(session.into(), &lock);
        }
        assert_eq!(watched.turn(0).0, ["a", "b"]);
        assert_eq!(watched.turn(1).0, ["b", "a"]);
        assert_eq!(watched.turn(2).1, ["report", "report"]);
        watched.forget(&["a".into()]);
        assert_eq!(watched.turn(1).0, ["b"]);
    }
}
