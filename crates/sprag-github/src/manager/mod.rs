//! [`LockManager`]: locks on the issues of a repository, for workers that share a queue of them.

mod config;
mod heart;
mod tally;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::clock::{Clock, Moment};
use sprag_core::entropy::{Entropy, OsEntropy};
use sprag_core::policy::RetryConfig;
use sprag_core::{
    Client, Error, ErrorKind, Holder, HolderView, LockGuard, LockName, Operation, Result, Store,
    Strategy,
};

pub use config::{
    AcquireOptions, AcquireResult, ConflictStrategy, LockManagerConfig, LockMetrics, LockStatus,
};
use heart::Heart;
use tally::Tally;

use crate::client::GitHubClient;
use crate::config::GitHubConfig;
use crate::error::{STORE, error};
use crate::mirror::{LockMetadata, LockNote};
use crate::store::GitHubStore;
use crate::time;

/// How long to wait for the issue to show a lock that was taken.
const SHOWN_WITHIN: Duration = Duration::from_secs(20);

/// Locks on the issues of a repository.
///
/// One worker at a time has an issue, also if all workers share one account. The issue shows who
/// it is; a ref decides. While a lock is held, this process gives signs of life, one for all its
/// locks.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> sprag_core::Result<()> {
/// use sprag_core::TaskInfo;
/// use sprag_github::{AcquireOptions, LockManager, LockManagerConfig};
///
/// let manager = LockManager::new(LockManagerConfig {
///     github_repo: "owner/repo".into(),
///     ..Default::default()
/// })?;
/// let result = manager
///     .acquire_lock(123, AcquireOptions {
///         worker_id: "worker-local-1".into(),
///         node_id: "node-abc123".into(),
///         task_info: Some(TaskInfo { complexity: Some(5), ..TaskInfo::default() }),
///         ..Default::default()
///     })
///     .await?;
/// if result.success {
///     // Execute the task.
///     manager.release_lock(123, "worker-local-1").await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct LockManager {
    config: LockManagerConfig,
    retries: RetryConfig,
    store: GitHubStore,
    client: Client,
    clock: Arc<dyn Clock>,
    held: Arc<Held>,
    seen: Mutex<HashMap<u64, (Moment, LockStatus)>>,
    tally: Mutex<Tally>,
    /// Beats until it is dropped.
    #[expect(dead_code, reason = "it is there to be dropped")]
    heart: Heart,
}

/// The locks of this manager, by issue.
type Held = Mutex<HashMap<u64, Taken>>;

#[derive(Debug)]
struct Taken {
    worker: String,
    guard: LockGuard,
}

impl LockManager {
    /// Opens the repository.
    ///
    /// # Errors
    ///
    /// If the configuration makes no sense, or there is no token.
    pub fn new(config: LockManagerConfig) -> Result<Self> {
        let github = github(&config)?;
        let store = GitHubStore::open(&github)?;
        Self::over(config, &github, store)
    }

    /// Locks of any store, shown on the issues of any client: for tests without GitHub.
    ///
    /// # Errors
    ///
    /// If the configuration makes no sense.
    ///
    /// # Examples
    ///
    /// See [`GitHubClient`].
    pub fn with_client(
        config: LockManagerConfig,
        store: Arc<dyn Store>,
        client: Arc<dyn GitHubClient>,
    ) -> Result<Self> {
        let github = github(&config)?;
        let store = GitHubStore::showing(&github, store, client)?;
        Self::over(config, &github, store)
    }

    /// As [`new`](Self::new), with more to be said about the repository.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_config(config: LockManagerConfig, github: &GitHubConfig) -> Result<Self> {
        let github = github.clone().show_node(true).human_override(config.human_override);
        let store = GitHubStore::open(&github)?;
        Self::over(config, &github, store)
    }

    fn over(config: LockManagerConfig, github: &GitHubConfig, store: GitHubStore) -> Result<Self> {
        let retries = config.retries()?;
        let client = Client::builder(Arc::new(store.clone())).allow_force(config.admin).build()?;
        let (held, clock) = (Arc::<Held>::default(), Arc::clone(&github.clock));
        let every = Duration::from_millis(config.heartbeat_interval_ms);
        let heart = Heart::start(every, config.timeout(), store.clone(), Arc::clone(&held))?;
        let (seen, tally) = (Mutex::default(), Mutex::default());
        Ok(Self { config, retries, store, client, clock, held, seen, tally, heart })
    }

    /// Locks an issue for a worker.
    ///
    /// An issue that is locked, and a rate limit, are answers: `success` is `false` then, and
    /// `error` says why.
    ///
    /// # Errors
    ///
    /// If the issue is not there, the token is refused, or GitHub cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way it leaves no lock behind.
    pub async fn acquire_lock(&self, issue: u64, options: AcquireOptions) -> Result<AcquireResult> {
        let begun = self.clock.now();
        let mut result = AcquireResult::default();
        loop {
            let guard = match self.try_once(issue, &options).await {
                Ok(guard) => guard,
                Err(error) if error.is_held() => {
                    self.tally().conflicts += 1;
                    let more = match options.conflict_strategy {
                        ConflictStrategy::Retry | ConflictStrategy::StealStale => {
                            self.retries.delay(result.retries + 1)
                        }
                        ConflictStrategy::FailFast | ConflictStrategy::ForceAcquire => None,
                    };
                    let Some(pause) = more else {
                        return Ok(self.give_up(result, already_locked(issue, &error)));
                    };
                    // Not all workers at once.
                    let jitter = 0.9 + 0.2 * OsEntropy.next_fraction();
                    tokio::time::sleep(pause.mul_f64(jitter)).await;
                    result.retries += 1;
                    self.tally().retries += 1;
                    continue;
                }
                Err(error) if error.is_rate_limited() => {
                    return Ok(self.give_up(result, error.message().to_owned()));
                }
                Err(error) => {
                    self.tally().failures += 1;
                    return Err(error);
                }
            };
            return self.take(issue, options, guard, result, begun).await;
        }
    }

    async fn try_once(&self, issue: u64, options: &AcquireOptions) -> Result<LockGuard> {
        let strategy = match options.conflict_strategy {
            ConflictStrategy::Retry | ConflictStrategy::FailFast => Strategy::FailFast,
            ConflictStrategy::StealStale => Strategy::StealStale { after: self.config.timeout() },
            ConflictStrategy::ForceAcquire => Strategy::ForceAcquire,
        };
        let AcquireOptions { worker_id, node_id, task_info, .. } = options.clone();
        let holder = Holder { task_info, ..Holder::new(worker_id, node_id) };
        let request = self.client.lock(name(issue)?.as_str()).holder(holder);
        request.ttl(self.config.timeout()).strategy(strategy).no_wait().own_party().acquire().await
    }

    /// Waits until the issue shows it, and takes it down.
    async fn take(
        &self,
        issue: u64,
        options: AcquireOptions,
        guard: LockGuard,
        mut result: AcquireResult,
        begun: Moment,
    ) -> Result<AcquireResult> {
        let shown = tokio::time::timeout(SHOWN_WITHIN, self.store.shown(guard.lease())).await;
        if let Ok(Err(error)) = shown {
            if error.is_bad_input() {
                // There is no such issue: nothing to work on.
                self.tally().failures += 1;
                guard.release().await?;
                return Err(error.during(Operation::Acquire));
            }
            result.warning = Some(error.message().to_owned());
        }
        let mut tally = self.tally();
        tally.acquisitions += 1;
        tally.waited += self.clock.now().since(begun);
        let stole = options.conflict_strategy == ConflictStrategy::StealStale;
        tally.stolen += u64::from(guard.took_over() && stole);
        drop(tally);
        result.success = true;
        result.lock_id = Some(issue);
        result.fence = Some(guard.fence());
        self.seen().remove(&issue);
        let taken = Taken { worker: options.worker_id, guard };
        drop(self.held().insert(issue, taken));
        Ok(result)
    }

    /// Gives an issue back.
    ///
    /// # Errors
    ///
    /// Not the owner, if this manager does not hold it for that worker, or has lost it.
    ///
    /// # Cancel safety
    ///
    /// Once asked for, it is released.
    pub async fn release_lock(&self, issue: u64, worker_id: &str) -> Result<()> {
        let taken = {
            let mut held = self.held();
            let owner = held.get(&issue).is_some_and(|taken| taken.worker == worker_id);
            if owner { held.remove(&issue) } else { None }
        };
        self.seen().remove(&issue);
        let name = name(issue)?;
        let Some(Taken { guard, .. }) = taken else {
            let status = self.store.inspect(&name).await?;
            let by = status.holders.first().map(|holder| holder.holder.worker_id.clone());
            let by = by.map_or_else(|| "nobody does".into(), |by| format!("{by:?} does"));
            let message = format!("not owner: {worker_id:?} does not hold issue {issue}, {by}");
            return Err(not_owner(message).on(&name));
        };
        guard.release().await?;
        self.tally().releases += 1;
        Ok(())
    }

    /// Whether a lock taken here is still good. Ask before anything that must not be done twice.
    ///
    /// # Errors
    ///
    /// Lost, and why; not the owner if it was not taken here.
    pub fn ensure_valid(&self, issue: u64) -> Result<()> {
        match self.held().get(&issue) {
            Some(taken) => taken.guard.ensure_valid(),
            None => Err(not_owner(format!("issue {issue} is not locked by this manager"))),
        }
    }

    /// Looks who has the lock of an issue. What was seen lately is good enough, and what has not
    /// changed costs nothing of the rate limit.
    ///
    /// # Errors
    ///
    /// If GitHub cannot be asked, or there is no such issue.
    pub async fn get_lock_status(&self, issue: u64) -> Result<LockStatus> {
        let now = self.clock.now();
        let fresh = Duration::from_millis(self.config.status_cache_ms);
        if let Some((at, status)) = self.seen().get(&issue)
            && now.since(*at) < fresh
        {
            return Ok(status.clone());
        }
        let name = name(issue)?;
        let view = self.store.inspect(&name).await?;
        let mut status = LockStatus { issue, is_locked: view.is_locked(), ..LockStatus::default() };
        if let Some(holder) = view.holders.first() {
            if let Some(ledger) = self.store.ledger() {
                let silences = ledger.silence(&name).await?;
                let silence = silences.get(&holder.lease);
                status.silent_for = silence.map(|silence| silence.seen);
                status.stale = silence.is_some_and(|silence| silence.stale);
            }
            let silent = status.silent_for.or_else(|| self.store.silent(holder));
            status.metadata = Some(self.metadata(holder, silent));
        }
        let client = Arc::clone(self.store.client());
        let told = blocking(move || client.get_issue(issue)).await?;
        status.assignee = told.assignees.into_iter().next();
        self.seen().insert(issue, (now, status.clone()));
        Ok(status)
    }

    /// Whether the holder gave no sign of life for its lock timeout, as far as this machine has
    /// seen; so the first look at a lock never finds it stale.
    pub const fn is_lock_stale(&self, status: &LockStatus) -> bool {
        status.is_locked && status.stale
    }

    /// What this manager did.
    pub fn get_metrics(&self) -> LockMetrics {
        self.tally().metrics()
    }

    /// What is known of a holder. Its last heartbeat is the last one that this machine has seen.
    fn metadata(&self, holder: &HolderView, silent: Option<Duration>) -> LockMetadata {
        let since = holder.holder.since_unix_ms.unwrap_or(0) / 1000;
        let now = self.clock.unix_micros() / 1_000_000;
        let beat = silent.map_or(since, |silent| now.saturating_sub(silent.as_secs()).max(since));
        let lock = LockNote::new(&holder.holder, holder.fence, since, true);
        LockMetadata { lock: LockNote { heartbeat_last: time::format(beat), ..lock } }
    }

    fn give_up(&self, result: AcquireResult, error: String) -> AcquireResult {
        self.tally().failures += 1;
        AcquireResult { error: Some(error), ..result }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, Taken>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<u64, (Moment, LockStatus)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn github(config: &LockManagerConfig) -> Result<GitHubConfig> {
    let mut github = GitHubConfig::parse(&config.github_repo)?;
    if let Some(api) = &config.api {
        github = github.api(api)?;
    }
    if let Some(token) = &config.token {
        github = github.token(token.clone());
    }
    // Whoever gives workers and nodes a name here wants people to see it.
    Ok(github.show_node(true).human_override(config.human_override))
}

fn name(issue: u64) -> Result<LockName> {
    if issue == 0 {
        return Err(error(ErrorKind::BadInput, "issues are numbered from 1"));
    }
    LockName::new(format!("issue-{issue}"))
}

fn already_locked(issue: u64, error: &Error) -> String {
    format!("issue {issue} is already locked: {}", error.message())
}

fn not_owner(message: String) -> Error {
    Error::new(ErrorKind::NotOwner, Operation::Release, message).at(STORE)
}

/// Asks on a thread of its own, so that no runtime is held up.
async fn blocking<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (told, answer) = tokio::sync::oneshot::channel();
    let gone = || error(ErrorKind::Unavailable, "no thread to ask GitHub");
    let thread = std::thread::Builder::new().name("sprag-asker".into());
    thread.spawn(move || drop(told.send(ask()))).map_err(|cause| gone().caused_by(cause))?;
    answer.await.unwrap_or_else(|_| Err(gone()))
}
