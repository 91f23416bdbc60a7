//! [`LockManagerConfig`] and what is asked of a manager and answered by it.

use std::time::Duration;

use sprag_core::policy::RetryConfig;
use sprag_core::{ErrorKind, Fence, Result, TaskInfo};

use crate::error::error;
use crate::mirror::LockMetadata;
use crate::token::Token;

/// How a [`LockManager`](crate::LockManager) behaves.
///
/// # Examples
///
/// ```
/// use sprag_github::LockManagerConfig;
///
/// let config = LockManagerConfig { github_repo: "owner/repo".into(), ..Default::default() };
/// assert_eq!((config.max_retries, config.initial_backoff_ms), (5, 1000));
/// assert_eq!((config.heartbeat_interval_ms, config.lock_timeout_ms), (30_000, 300_000));
/// ```
#[derive(Clone, Debug)]
pub struct LockManagerConfig {
    /// The repository whose issues are locked: `owner/repo`, or `host/owner/repo`.
    pub github_repo: String,
    /// How often an issue that is locked is tried again; 5.
    pub max_retries: u32,
    /// How long to wait before the first retry, doubled for each one after; 1 s.
    pub initial_backoff_ms: u64,
    /// The longest wait before a retry; 16 s.
    pub max_backoff_ms: u64,
    /// How often this process gives a sign of life while there is plenty of requests; 30 s. With
    /// less to spare it is every third of `lock_timeout_ms`.
    pub heartbeat_interval_ms: u64,
    /// After how long without a sign of life a lock is stale; 5 min.
    pub lock_timeout_ms: u64,
    /// Whether [`ConflictStrategy::ForceAcquire`] is allowed. Off: it breaks exclusion.
    pub admin: bool,
    /// Whether taking the assignee off an issue means to release its lock. Off: it is put back.
    pub human_override: bool,
    /// For how long what was seen of a lock is good enough for
    /// [`get_lock_status`](crate::LockManager::get_lock_status); 1 s.
    pub status_cache_ms: u64,
    /// The token; by default it is looked for, see [`Token::find`](crate::Token::find).
    pub token: Option<Token>,
    /// Another address of the API, such as `http://127.0.0.1:14001`.
    pub api: Option<String>,
}

impl Default for LockManagerConfig {
    fn default() -> Self {
        Self {
            github_repo: String::new(),
            max_retries: 5,
            initial_backoff_ms: 1_000,
            max_backoff_ms: 16_000,
            heartbeat_interval_ms: 30_000,
            lock_timeout_ms: 300_000,
            admin: false,
            human_override: false,
            status_cache_ms: 1_000,
            token: None,
            api: None,
        }
    }
}

impl LockManagerConfig {
    /// After how long a lock is stale.
    pub(super) const fn timeout(&self) -> Duration {
        Duration::from_millis(self.lock_timeout_ms)
    }

    /// The waits between tries.
    pub(super) fn retries(&self) -> Result<RetryConfig> {
        let retries = RetryConfig {
            max_attempts: self.max_retries.saturating_add(1),
            initial_delay: Duration::from_millis(self.initial_backoff_ms),
            max_delay: Duration::from_millis(self.max_backoff_ms),
            backoff_multiplier: 2.0,
        };
        retries.validate()?;
        if self.heartbeat_interval_ms.saturating_mul(2) > self.lock_timeout_ms {
            let message = format!(
                "a heartbeat_interval_ms of {} leaves no room for a lost one in a lock_timeout_ms \
                 of {}: make it half of that or less",
                self.heartbeat_interval_ms, self.lock_timeout_ms
            );
            return Err(error(ErrorKind::BadInput, message));
        }
        Ok(retries)
    }
}

/// What to do when an issue is locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConflictStrategy {
    /// Try again, with growing pauses: best for conflicts that pass.
    #[default]
    Retry,
    /// Give up at once: best for work that somebody else may do as well.
    FailFast,
    /// Take it from a worker that gave no sign of life for the lock timeout, as seen by this
    /// machine; try again while it is alive: best for recovery after a crash.
    StealStale,
    /// Take it from whoever has it. Only if the configuration says `admin`.
    ForceAcquire,
}

/// Who wants an issue, and what for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcquireOptions {
    /// The worker, unique among all.
    pub worker_id: String,
    /// The machine, or whatever tells workers of the same name apart. Everybody who can read the
    /// issue sees both.
    pub node_id: String,
    /// What the worker is going to do.
    pub task_info: Option<TaskInfo>,
    /// What to do if the issue is locked.
    pub conflict_strategy: ConflictStrategy,
}

/// What became of [`acquire_lock`](crate::LockManager::acquire_lock).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AcquireResult {
    /// Whether the issue is locked by us now.
    pub success: bool,
    /// The number of the issue, if it is.
    pub lock_id: Option<u64>,
    /// How many retries it took.
    pub retries: u32,
    /// Why it is not: has `already locked` or `rate limit` in it.
    pub error: Option<String>,
    /// The fence of the lock: larger than that of every holder before.
    pub fence: Option<Fence>,
    /// Why the issue does not show the lock, which is held all the same.
    pub warning: Option<String>,
}

/// Who has the lock of an issue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStatus {
    /// The issue.
    pub issue: u64,
    /// Whether anybody has it.
    pub is_locked: bool,
    /// The account that the issue is assigned to, as people see it. Workers may share one.
    pub assignee: Option<String>,
    /// Who has it, since when and what for.
    pub metadata: Option<LockMetadata>,
    /// For how long this machine has seen no sign of life of the holder.
    pub silent_for: Option<Duration>,
    /// Whether that is longer than its lock timeout.
    pub(super) stale: bool,
}

/// What a manager did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LockMetrics {
    /// Locks taken.
    pub total_acquisitions: u64,
    /// Locks given back.
    pub total_releases: u64,
    /// How often an issue was found locked.
    pub total_conflicts: u64,
    /// How often it was tried again.
    pub total_retries: u64,
    /// How often it was given up.
    pub failed_acquisitions: u64,
    /// How long it took on average to take a lock.
    pub average_acquisition_time_ms: f64,
    /// Locks taken from workers that gave no sign of life.
    pub stale_locks_claimed: u64,
}
