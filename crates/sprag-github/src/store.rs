//! [`GitHubStore`]: a [`LedgerStore`] on GitHub's refs, whose locks are shown on issues and whose
//! holders are told before the budget ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sprag_core::audit::{AuditEntry, AuditQuery};
use sprag_core::clock::{Clock, Moment};
use sprag_core::diagnosis::Finding;
use sprag_core::entropy::OsEntropy;
use sprag_core::evictions::Evictions;
use sprag_core::store::{
    Attempt, Conversion, Converted, Evicted, Eviction, Grant, Listing, Page, Released, Renewal,
    Renewed, Request, Takeover,
};
use sprag_core::{
    Capability, Fence, Holder, HolderView, LeaseId, LockName, LockView, Loss, Mode, Result,
    SessionId, Store,
};
use sprag_ledger::{LedgerStore, Settings};

use crate::api::Api;
use crate::assignment::AssignmentStore;
use crate::client::GitHubClient;
use crate::config::{Decides, GitHubConfig};
use crate::diagnose;
use crate::error::STORE;
use crate::issue_of;
use crate::issues::HttpClient;
use crate::ledger::GitHubLedger;
use crate::mirror::{Hints, LockNote, Manner, Mirror, public_holder, public_worker};
use crate::pace::Pace;

/// How long a lease is that nobody gave a length.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(300);
/// The shortest lease: four signs of life a minute are as many as one account can well give.
const MIN_TTL: Duration = Duration::from_secs(45);
/// How long a release waits for the issue to show it.
const FAREWELL: Duration = Duration::from_secs(1);

/// Locks in a GitHub repository.
///
/// # Guarantees
///
/// L3 as long as GitHub compares and swaps refs as it says. See [`LedgerStore`] for what counts as
/// a sign of life.
#[derive(Clone, Debug)]
pub struct GitHubStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// What decides.
    store: Arc<dyn Store>,
    /// The same, where refs of GitHub do.
    ledger: Option<LedgerStore>,
    api: Option<Arc<Api>>,
    client: Arc<dyn GitHubClient>,
    mirror: Option<Mirror>,
    show_node: bool,
    /// What is granted and not to be shown yet; `None` if everything is shown at once.
    later: Option<Mutex<HashMap<LeaseId, (u64, LockNote)>>>,
    clock: Arc<dyn Clock>,
    pace: Pace,
    /// Under which name this process is in the budget.
    keeper: String,
    /// Until when each lease is good, counted from when its last renewal was sent.
    good_until: Mutex<HashMap<LeaseId, Moment>>,
}

impl GitHubStore {
    /// Opens the store. Nothing is asked of GitHub yet.
    ///
    /// # Errors
    ///
    /// If there is no token, or the operating system gives it no threads.
    pub fn open(config: &GitHubConfig) -> Result<Self> {
        Self::over(config, Arc::new(Api::new(config)?))
    }

    pub(crate) fn over(config: &GitHubConfig, api: Arc<Api>) -> Result<Self> {
        let hints = Arc::<Hints>::default();
        let ledger = Arc::new(GitHubLedger::new(Arc::clone(&api), Arc::clone(&hints)));
        let mut settings = Settings::new(STORE);
        settings.capability = capability(config);
        settings.abandoned = config.abandoned;
        settings.poll = config.poll.clone();
        settings.lag = config.lag;
        settings.observations = config.observations();
        settings.notes = config.notes;
        // What has not changed is read for nothing.
        settings.look_first = true;
        let ledger = LedgerStore::with_clock(ledger, settings, Arc::clone(&config.clock))?;
        let client = HttpClient::over(Arc::clone(&api));
        let mirror = if config.mirror {
            let budget = Arc::clone(&api.budget);
            let patient = Arc::new(client.patient());
            Some(mirror(config, patient, hints, move || budget.is_ample())?)
        } else {
            None
        };
        let mut inner = Inner::new(config, Arc::new(ledger.clone()), Arc::new(client), mirror);
        inner.api = Some(api);
        inner.ledger = Some(ledger);
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Locks of any store, shown on the issues of any client: for tests without GitHub.
    ///
    /// # Errors
    ///
    /// If the operating system gives it no thread.
    pub fn showing(
        config: &GitHubConfig,
        store: Arc<dyn Store>,
        client: Arc<dyn GitHubClient>,
    ) -> Result<Self> {
        let mirror = mirror(config, Arc::clone(&client), Arc::default(), || true)?;
        Ok(Self { inner: Arc::new(Inner::new(config, store, client, Some(mirror))) })
    }

    /// What such a store can do, without opening one.
    pub fn ability() -> Capability {
        let mut capability = Settings::new(STORE).capability;
        capability.default_ttl = DEFAULT_TTL;
        capability.min_ttl = MIN_TTL;
        // Looking costs nothing, a place in a queue does; and without one writers could starve.
        (capability.queue, capability.shared, capability.permits) = (false, false, false);
        (capability.notify, capability.eviction_hints) = (false, false);
        capability
    }

    /// The locks themselves, without anything on issues; `None` if they are in
    /// [another store](Self::showing).
    pub fn ledger(&self) -> Option<&LedgerStore> {
        self.inner.ledger.as_ref()
    }

    /// The issues, inside of the same budget.
    pub fn client(&self) -> &Arc<dyn GitHubClient> {
        &self.inner.client
    }

    /// Whether there is plenty of the budget left.
    pub fn is_budget_ample(&self) -> bool {
        self.inner.api.as_ref().is_none_or(|api| api.budget.is_ample())
    }

    /// Waits until the issue of a lock shows who holds it.
    ///
    /// # Errors
    ///
    /// Why it cannot be shown; the lock is held all the same.
    pub async fn shown(&self, lease: LeaseId) -> Result<()> {
        match &self.inner.mirror {
            Some(mirror) => mirror.shown(lease).await,
            None => Ok(()),
        }
    }

    fn good_until(&self) -> MutexGuard<'_, HashMap<LeaseId, Moment>> {
        lock(&self.inner.good_until)
    }

    /// How long ago a holder of this process gave its last sign of life.
    pub(crate) fn silent(&self, holder: &HolderView) -> Option<Duration> {
        let good_until = self.good_until().get(&holder.lease).copied()?;
        let left = good_until.since(self.inner.clock.now());
        Some(holder.ttl.saturating_sub(left))
    }

    /// Shows a lock that was granted just now.
    fn show(&self, request: &Request, grant: &Grant, before: Option<String>) {
        let Some(mirror) = &self.inner.mirror else { return };
        let Some(issue) = issue_of(&request.name) else { return };
        if mirror.is_showing(request.lease) || request.mode != Mode::Exclusive {
            return;
        }
        let now = self.inner.clock.unix_micros() / 1_000_000;
        let mut note = LockNote::new(&request.holder, grant.fence, now, self.inner.show_node);
        if grant.took_over {
            note.stolen_from = Some(before.unwrap_or_else(|| "its holder".to_owned()));
            note.forced = request.takeover == Takeover::Force;
        }
        match &self.inner.later {
            Some(later) => {
                lock(later).insert(request.lease, (issue, note));
            }
            None => mirror.show(request.lease, issue, note),
        }
    }

    /// Shows a lock that was granted and is not shown yet, see [`GitHubConfig::show_later`].
    pub fn present(&self, lease: LeaseId) {
        let later = self.inner.later.as_ref().and_then(|later| lock(later).remove(&lease));
        if let (Some(mirror), Some((issue, note))) = (&self.inner.mirror, later) {
            mirror.show(lease, issue, note);
        }
    }

    /// Goes on showing a lock that another process took.
    pub fn take_up(&self, name: &LockName, holder: &HolderView) {
        let Some((mirror, issue)) = self.inner.mirror.as_ref().zip(issue_of(name)) else { return };
        let since = holder.holder.since_unix_ms.unwrap_or(0) / 1000;
        let note = LockNote::new(&holder.holder, holder.fence, since, self.inner.show_node);
        mirror.take_up(holder.lease, issue, note);
    }

    /// Shows what came of the work under a lease that is going to be released, in its one comment,
    /// but waits no longer than `limit` for it.
    pub async fn conclude(&self, lease: LeaseId, result: &str, limit: Duration) {
        self.present(lease);
        if let Some(mirror) = &self.inner.mirror {
            mirror.result(lease, result);
            mirror.clear(lease, limit).await;
        }
    }

    /// Shows nothing more about a lease, which is lost: whoever has the lock now does.
    pub fn forget(&self, lease: LeaseId) {
        if let Some(mirror) = &self.inner.mirror {
            mirror.forget(lease);
        }
    }

    /// Who holds the lock that is going to be taken from them.
    async fn holder(&self, request: &Request) -> Option<String> {
        let known = self.inner.pace.last(&request.name).map(|seen| seen.holders);
        let holders = match known {
            Some(holders) => holders,
            None if request.takeover == Takeover::Force => {
                self.inner.store.inspect(&request.name).await.ok()?.holders
            }
            None => return None,
        };
        let holder = holders.into_iter().next()?.holder;
        let note = LockNote::new(&holder, Fence::ZERO, 0, self.inner.show_node);
        Some(note.worker_id)
    }

    /// A holder as it is written where everybody may read it.
    fn public(&self, holder: &Holder) -> Holder {
        if self.inner.show_node { holder.clone() } else { public_holder(holder) }
    }

    /// Writes down that this process gives signs of life, so that others leave room for them.
    fn keep(&self, ttl: Duration) {
        if let Some(api) = &self.inner.api {
            api.budget.beat(&self.inner.keeper, ttl / 3);
        }
    }

    /// What ends a lease before GitHub is asked: the budget, or somebody on the issue.
    async fn ended(&self, renewal: &Renewal) -> Option<Loss> {
        let good_until = self.good_until().get(&renewal.lease).copied();
        if let (Some(good_until), Some(api)) = (good_until, &self.inner.api) {
            let next = api.budget.next_renewal();
            if next >= good_until && next > self.inner.clock.now() {
                return Some(Loss::RateLimited);
            }
        }
        let issue = self.inner.mirror.as_ref()?.revoked(renewal.lease)?;
        let view = self.inner.store.inspect(&renewal.name).await.ok()?;
        let held = view.holders.iter().find(|holder| holder.lease == renewal.lease)?;
        // If it cannot be released it ends by itself, since it is not renewed.
        drop(self.inner.store.release(&renewal.name, renewal.lease).await);
        let reason = format!("the assignee of issue {issue} was taken away");
        Some(Loss::Broken { by: "somebody on GitHub".into(), reason, fence: held.fence })
    }

    fn note(&self, renewal: &Renewal, answer: &Renewed, sent: Moment) {
        let mirror = self.inner.mirror.as_ref();
        match answer {
            Renewed::Held(_) => {
                self.good_until().insert(renewal.lease, sent.plus(renewal.ttl));
                if let Some(mirror) = mirror {
                    mirror.beat(renewal.lease);
                }
            }
            Renewed::Lost(_) => {
                self.good_until().remove(&renewal.lease);
                if let Some(mirror) = mirror {
                    mirror.forget(renewal.lease);
                }
            }
            Renewed::Waiting | Renewed::Unknown => {}
        }
    }
}

impl Inner {
    fn new(
        config: &GitHubConfig,
        store: Arc<dyn Store>,
        client: Arc<dyn GitHubClient>,
        mirror: Option<Mirror>,
    ) -> Self {
        Self {
            store,
            ledger: None,
            api: None,
            client,
            mirror,
            show_node: config.show_node,
            later: config.show_later.then(Mutex::default),
            clock: Arc::clone(&config.clock),
            pace: Pace::new(config.poll.clone()),
            keeper: SessionId::random(&OsEntropy).to_string(),
            good_until: Mutex::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn mirror(
    config: &GitHubConfig,
    client: Arc<dyn GitHubClient>,
    hints: Arc<Hints>,
    ample: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<Mirror> {
    let (human_override, lag) = (config.human_override, config.lag);
    let manner = Manner { human_override, lag, ..config.manner };
    Mirror::start(client, Arc::clone(&config.clock), manner, hints, ample)
}

fn capability(config: &GitHubConfig) -> Capability {
    let mut capability = GitHubStore::ability();
    if config.queue {
        (capability.queue, capability.shared, capability.permits) = (true, true, true);
        capability.notify = true;
    }
    if config.is_local() {
        capability.min_ttl = Duration::from_millis(100);
    }
    capability
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for GitHubStore {
    fn capability(&self) -> &Capability {
        self.inner.store.capability()
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        let (pace, sent) = (&self.inner.pace, self.inner.clock.now());
        if !request.queue
            && let Some(seen) = pace.too_early(&request.name, request.lease, sent)
        {
            return Ok(Attempt::Held(seen));
        }
        let before = match request.takeover {
            Takeover::No => None,
            Takeover::Overdue(_) | Takeover::Force => self.holder(request).await,
        };
        // Commits are as public as comments.
        let holder = self.public(&request.holder);
        let attempt = self.inner.store.try_acquire(&Request { holder, ..request.clone() }).await?;
        match &attempt {
            Attempt::Held(seen) => pace.saw(&request.name, request.lease, seen, sent),
            Attempt::Granted(grant) => {
                pace.changed(&request.name);
                self.good_until().entry(request.lease).or_insert(sent.plus(request.ttl));
                if !request.fixed {
                    self.keep(request.ttl);
                }
                self.show(request, grant, before);
            }
            Attempt::Queued(_) | Attempt::Gone(_) => {}
        }
        Ok(attempt)
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        let sent = self.inner.clock.now();
        let mut answers = Vec::with_capacity(leases.len());
        for renewal in leases {
            answers.push(self.ended(renewal).await.map(Renewed::Lost));
        }
        let asked: Vec<_> = leases.iter().zip(&answers).filter(|(_, end)| end.is_none()).collect();
        let asked: Vec<_> = asked.into_iter().map(|(renewal, _)| renewal.clone()).collect();
        if let Some(shortest) = asked.iter().map(|renewal| renewal.ttl).min() {
            self.keep(shortest);
        }
        let renewed =
            if asked.is_empty() { Ok(Vec::new()) } else { self.inner.store.renew(&asked).await };
        let mut renewed = match renewed {
            Ok(renewed) => renewed.into_iter(),
            // The one that failed may have used up what was left.
            Err(error) => {
                for (renewal, answer) in leases.iter().zip(&mut answers) {
                    *answer = match answer.take() {
                        None => self.ended(renewal).await.map(Renewed::Lost),
                        known => known,
                    };
                }
                if answers.iter().any(Option::is_none) {
                    return Err(error);
                }
                Vec::new().into_iter()
            }
        };
        let lost = || Renewed::Lost(Loss::StateLost);
        let answers = answers.into_iter().map(|end| end.or_else(|| renewed.next()));
        let mut answers: Vec<_> = answers.map(|answer| answer.unwrap_or_else(lost)).collect();
        for (renewal, answer) in leases.iter().zip(&mut answers) {
            if *answer == Renewed::Unknown {
                *answer = self.ended(renewal).await.map_or(Renewed::Unknown, Renewed::Lost);
            }
        }
        for (renewal, answer) in leases.iter().zip(&answers) {
            self.note(renewal, answer, sent);
        }
        Ok(answers)
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        self.inner.store.convert(conversion).await
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        // First the issue: whoever comes next shows itself there, and must not be overwritten.
        if let Some(mirror) = &self.inner.mirror {
            mirror.clear(lease, FAREWELL).await;
        }
        if let Some(later) = &self.inner.later {
            lock(later).remove(&lease);
        }
        let released = self.inner.store.release(name, lease).await?;
        self.good_until().remove(&lease);
        self.inner.pace.changed(name);
        Ok(released)
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        self.inner.store.withdraw(name, lease).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        self.inner.store.inspect(name).await
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        self.inner.store.list(listing).await
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        self.inner.pace.changed(&eviction.name);
        let by = if self.inner.show_node {
            eviction.by.clone()
        } else {
            public_worker(&eviction.by, &Holder::this_process().node_id)
        };
        self.inner.store.evict(&Eviction { by, ..eviction.clone() }).await
    }

    async fn changed(&self, name: &LockName, lease: LeaseId) {
        self.inner.store.changed(name, lease).await;
    }

    fn lifeline(&self) -> Option<std::os::fd::OwnedFd> {
        self.inner.store.lifeline()
    }

    fn is_severed(&self, lease: LeaseId) -> bool {
        self.inner.store.is_severed(lease)
    }

    async fn severed(&self) {
        self.inner.store.severed().await;
    }

    fn evictions(&self) -> Option<Evictions> {
        self.inner.store.evictions()
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        self.inner.store.audit(query).await
    }

    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        let public = |entry: &AuditEntry| {
            let mut entry = entry.clone();
            entry.holder = self.public(&entry.holder);
            entry
        };
        let entries: Vec<_> = entries.iter().map(public).collect();
        self.inner.store.note(&entries).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        match &self.inner.api {
            Some(api) => diagnose::examine(Arc::clone(api)).await,
            None => self.inner.store.diagnose().await,
        }
    }
}

/// Which of the two kinds a configuration asks for, as a store.
///
/// # Errors
///
/// As [`GitHubStore::open`].
pub fn open(config: &GitHubConfig) -> Result<Arc<dyn Store>> {
    match config.decides {
        Decides::Refs => Ok(Arc::new(GitHubStore::open(config)?)),
        Decides::Assignment => Ok(Arc::new(AssignmentStore::open(config)?)),
    }
}
