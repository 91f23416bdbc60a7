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

    /// The sessions and their locks.
    pub(crate) fn all(&self) -> (Vec<String>, Vec<String>) {
        let now = BootClock.now();
        let mut watched = self.watched();
        watched.retain(|_, until| *until > now);
        watched.keys().map(|(session, lock)| (session.clone(), lock.to_string())).unzip()
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
    fn each_is_watched_until_it_is_over() {
        let watched = Watched::default();
        let lock = LockName::new("report").unwrap();
        assert!(watched.all().0.is_empty());
        for session in ["b", "a", "b"] {
            watched.add(session.into(), &lock);
        }
        let (mut sessions, locks) = watched.all();
        sessions.sort();
        assert_eq!((sessions, locks), (vec!["a".into(), "b".into()], vec!["report".into(); 2]));
        watched.forget(&["a".into()]);
        assert_eq!(watched.all().0, ["b"]);
    }
}
