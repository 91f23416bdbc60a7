//! [`Mirror`]: shows on an issue who holds its lock: the account as assignee, and one comment.
//!
//! It works on a thread of its own, with what the budget leaves, and never decides anything. What
//! people change is put right again, with a warning.

mod note;
mod shown;
mod work;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::clock::Clock;
use sprag_core::{Error, ErrorKind, LeaseId, Result};
use tokio::sync::Notify;

pub(crate) use note::public_worker;
pub use note::{LockMetadata, LockNote, public_holder};
pub(crate) use shown::Hints;
use shown::{Board, Shown, Stage};

use crate::client::GitHubClient;
use crate::error::error;

/// No more is remembered to be done than this.
const MAX_TASKS: usize = 1024;

/// Shows locks on issues.
pub(crate) struct Mirror {
    shared: Arc<Shared>,
}

/// How a mirror behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Whether taking the assignee away means to release the lock.
    pub(crate) human_override: bool,
    /// How often the comment is refreshed, while there is plenty and while there is not.
    pub(crate) refresh: [Duration; 2],
    /// From when on a missing assignee was taken away by somebody, and not by a late request of
    /// the holder before.
    pub(crate) settled: Duration,
    /// How late GitHub's lists may be.
    pub(crate) lag: Duration,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            human_override: false,
            refresh: [Duration::from_secs(5 * 60), Duration::from_secs(28 * 60)],
            settled: Duration::from_secs(60),
            lag: Duration::from_secs(10),
        }
    }
}

struct Shared {
    client: Arc<dyn GitHubClient>,
    clock: Arc<dyn Clock>,
    manner: Manner,
    hints: Arc<Hints>,
    ample: Box<dyn Fn() -> bool + Send + Sync>,
    board: Mutex<Board>,
    woken: Condvar,
    /// Told whenever something was shown or cleared.
    news: Notify,
}

/// What the thread is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Show(LeaseId),
    Beat(LeaseId),
    Clear(LeaseId),
}

impl Mirror {
    pub(crate) fn start(
        client: Arc<dyn GitHubClient>,
        clock: Arc<dyn Clock>,
        manner: Manner,
        hints: Arc<Hints>,
        ample: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            client,
            clock,
            manner,
            hints,
            ample: Box::new(ample),
            board: Mutex::default(),
            woken: Condvar::new(),
            news: Notify::new(),
        });
        let worker = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("sprag-mirror".into());
        thread.spawn(move || worker.work()).map_err(|cause| {
            error(ErrorKind::Unavailable, "the operating system refuses another thread")
                .caused_by(cause)
        })?;
        Ok(Self { shared })
    }

    /// Shows a lock that was granted just now.
    pub(crate) fn show(&self, lease: LeaseId, issue: u64, note: LockNote) {
        let shown = Shown::new(issue, note, self.shared.clock.now());
        self.shared.board().shown.entry(lease).or_insert(shown);
        self.shared.push(Task::Show(lease));
    }

    /// Goes on showing a lock that another process has shown before.
    pub(crate) fn take_up(&self, lease: LeaseId, issue: u64, note: LockNote) {
        let now = self.shared.clock.now();
        let shown = Shown { assigned: true, unsure: true, ..Shown::new(issue, note, now) };
        self.shared.board().shown.entry(lease).or_insert(shown);
    }

    /// Whether this lease is shown.
    pub(crate) fn is_showing(&self, lease: LeaseId) -> bool {
        self.shared.board().shown.contains_key(&lease)
    }

    /// A lock was renewed: time to look after what is shown.
    pub(crate) fn beat(&self, lease: LeaseId) {
        if self.is_showing(lease) {
            self.shared.push(Task::Beat(lease));
        }
    }

    /// Shows that a lock is going to be released, but waits no longer than `limit` for it.
    pub(crate) async fn clear(&self, lease: LeaseId, limit: Duration) {
        if !self.is_showing(lease) {
            return;
        }
        self.shared.push(Task::Clear(lease));
        let cleared = self.shared.until(|board| (!board.shown.contains_key(&lease)).then_some(()));
        // Without timers there is no limit, and then nobody waits.
        if tokio::runtime::Handle::try_current().is_ok()
            && tokio::time::timeout(limit, cleared).await.is_err()
        {
            self.forget(lease);
        }
    }

    /// What came of the work under a lease, for its last words.
    pub(crate) fn result(&self, lease: LeaseId, result: &str) {
        if self.is_showing(lease) {
            self.shared.board().results.insert(lease, note::shorten(result));
        }
    }

    /// Shows nothing about a lease any more, because it is lost.
    pub(crate) fn forget(&self, lease: LeaseId) {
        let mut board = self.shared.board();
        board.shown.remove(&lease);
        board.results.remove(&lease);
        board.tasks.retain(|task| task.lease() != lease);
        drop(board);
        self.shared.news.notify_waiters();
    }

    /// Waits until a lock is shown.
    ///
    /// # Errors
    ///
    /// Why it cannot be.
    pub(crate) async fn shown(&self, lease: LeaseId) -> Result<()> {
        let look = |board: &Board| match board.shown.get(&lease).map(|shown| &shown.stage) {
            Some(Stage::New) => None,
            Some(Stage::Broken(why)) => Some(Err(why.to_error())),
            Some(Stage::Shown) | None => Some(Ok(())),
        };
        self.shared.until(look).await
    }

    /// The issue from which a person took the assignee, meaning to release the lock.
    pub(crate) fn revoked(&self, lease: LeaseId) -> Option<u64> {
        self.shared.board().shown.get(&lease).filter(|shown| shown.revoked).map(|shown| shown.issue)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.shared.board().over = true;
        self.shared.woken.notify_all();
    }
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, task: Task) {
        let mut board = self.board();
        let waits = board.tasks.contains(&task);
        if !waits && board.tasks.len() < MAX_TASKS {
            board.tasks.push_back(task);
        }
        drop(board);
        self.woken.notify_all();
    }

    /// The next task; `None` when it is time to stop.
    fn next(&self) -> Option<Task> {
        let mut board = self.board();
        loop {
            if let Some(task) = board.tasks.pop_front() {
                return Some(task);
            }
            if board.over {
                return None;
            }
            board = self.woken.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
    }

    async fn until<T>(&self, look: impl Fn(&Board) -> Option<T> + Send) -> T {
        loop {
            let told = self.news.notified();
            let mut told = std::pin::pin!(told);
            told.as_mut().enable();
            if let Some(found) = look(&self.board()) {
                return found;
            }
            told.await;
        }
    }
}

impl Task {
    const fn lease(self) -> LeaseId {
        match self {
            Self::Show(lease) | Self::Beat(lease) | Self::Clear(lease) => lease,
        }
    }
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror").field("client", &self.shared.client).finish_non_exhaustive()
    }
}

/// The tasks in their order; kept apart so that the board can be made empty.
type Tasks = VecDeque<Task>;

/// Why something is not shown; it is told to several.
#[derive(Clone, Debug)]
struct Why {
    kind: ErrorKind,
    message: String,
}

impl Why {
    fn new(error: &Error) -> Self {
        Self { kind: error.kind().clone(), message: error.message().to_owned() }
    }

    fn to_error(&self) -> Error {
        error(self.kind.clone(), self.message.clone())
    }
}
