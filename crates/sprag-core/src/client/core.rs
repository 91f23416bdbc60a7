//! [`Core`]: what client, guards and keeper have in common.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::lease::Lease;
use super::notes::Notes;
use super::registry::Registry;
use super::telemetry::Telemetry;
use super::tenure::Phase;
use crate::audit::{AuditEntry, AuditKind, human};
use crate::clock::{Clock, Moment};
use crate::entropy::Entropy;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::fence::Fence;
use crate::loss::Loss;
use crate::mutant::mutant;
use crate::store::{Bind, Released, Renewal, Renewed, Store, renewal_limit};

/// No request takes longer than this; then its outcome is unknown and it is asked again.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Renewals are given less, so that there is time for another.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a clean-up is tried at most.
pub(crate) const CLEAN_UP_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) registry: Registry,
    pub(crate) notes: Notes,
    pub(crate) telemetry: Telemetry,
    /// The runtime whose timers are used, so that futures of the client run on any executor.
    pub(crate) timers: Handle,
}

impl Core {
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(crate) fn sleep(&self, duration: Duration) -> tokio::time::Sleep {
        let _entered = self.timers.enter();
        tokio::time::sleep(duration)
    }

    /// What is left of a lease, or why it is lost: its time is over, or its session is.
    pub(crate) fn check(&self, lease: &Lease) -> Result<Duration, Loss> {
        let left = lease.check(self.now())?;
        if self.store.is_severed(lease.id) && !mutant!("severed_is_held") {
            lease.with(|tenure| tenure.lose(Loss::SessionDied));
            return lease.check(self.now());
        }
        Ok(left)
    }

    /// Sends one request to the store. No answer in time is an answer: unknown.
    pub(crate) async fn request<T>(
        &self,
        operation: Operation,
        limit: Duration,
        request: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let sent = self.now();
        let limit = limit.min(REQUEST_TIMEOUT);
        let sleep = self.sleep(limit);
        let answer = tokio::select! {
            biased;
            answer = request => answer,
            () = sleep => Err(Error::new(
                ErrorKind::Unavailable,
                operation,
                format!("the store did not answer within {limit:?}"),
            )),
        };
        let store = self.store.capability().store;
        self.telemetry.request(operation, answer.as_ref().err(), self.now().since(sent));
        answer.map_err(|error| error.at(store))
    }

    /// Renews leases that are marked as being renewed, and writes down what the store answered.
    pub(crate) async fn renew(&self, leases: Vec<Arc<Lease>>) {
        let renewals: Vec<_> = leases
            .iter()
            .map(|lease| Renewal {
                name: lease.name.clone(),
                lease: lease.id,
                ttl: lease.with(|tenure| tenure.ttl()),
                bind: Bind::Keep,
            })
            .collect();
        let limit = renewal_limit(&renewals);
        let sent = self.now();
        let answer = self.request(Operation::Renew, limit, self.store.renew(&renewals)).await;
        let now = self.now();
        match answer {
            Ok(answers) => {
                for ((lease, renewal), answer) in leases.iter().zip(&renewals).zip(&answers) {
                    self.note_if_late(lease, answer, renewal.ttl, now);
                    self.note_renewal(lease, answer, renewal.ttl, sent, now);
                }
            }
            Err(error) => {
                tracing::warn!(target: "sprag::renew", %error, leases = leases.len(), "renewal failed");
                for lease in &leases {
                    lease.with(|tenure| tenure.renewal_failed(now));
                }
            }
        }
        for lease in &leases {
            lease.renewal_is_over();
            self.registry.reschedule(lease);
        }
    }

    /// Renews one lease now, with another TTL or binding, after any renewal that is under way.
    pub(crate) async fn extend(&self, lease: &Lease, ttl: Duration, bind: Bind) -> Result<Renewed> {
        lease.until(|tenure| tenure.begin_extension().then_some(())).await;
        let claim = RenewalClaim { core: self, lease };
        let renewal = Renewal { name: lease.name.clone(), lease: lease.id, ttl, bind };
        let sent = self.now();
        lease.with(|tenure| tenure.asked_to_last(ttl));
        let request = self.store.renew(std::slice::from_ref(&renewal));
        let answers = self.request(Operation::Renew, RENEWAL_TIMEOUT, request).await;
        let answer = answers.map_err(|error| error.on(&lease.name))?.into_iter().next();
        let answer = answer.unwrap_or(Renewed::Lost(Loss::StateLost));
        if answer == Renewed::Unknown {
            return Err(Error::unknown_renewal(&lease.name).at(self.store.capability().store));
        }
        self.note_renewal(lease, &answer, ttl, sent, self.now());
        drop(claim);
        Ok(answer)
    }

    pub(crate) fn note_renewal(
        &self,
        lease: &Lease,
        answer: &Renewed,
        ttl: Duration,
        sent: Moment,
        now: Moment,
    ) {
        let (before, left, after) = lease.with(|tenure| {
            let (before, left) = (tenure.phase().clone(), tenure.deadline().since(now));
            tenure.renewed(answer, ttl, sent, now);
            (before, left, tenure.phase().clone())
        });
        match (before, answer) {
            (before, Renewed::Held(_)) => {
                self.telemetry.renewed(left);
                if (before, after) == (Phase::Holding, Phase::Holding) {
                    lease.tell_renewal(left);
                }
            }
            // One that raced the release, or came after the loss was told, was not wanted any more.
            (Phase::Asking | Phase::Holding, Renewed::Lost(_)) => self.telemetry.renewal_refused(),
            (_, Renewed::Lost(_) | Renewed::Waiting | Renewed::Unknown) => {}
        }
        // The asker looks for the grant, or for what became of its place.
        lease.nudge.notify_one();
    }

    /// Leaves a note in the audit trail, some time later and if the store keeps one.
    pub(crate) fn note(&self, lease: &Lease, kind: AuditKind, detail: String) {
        if !self.store.capability().audit {
            return;
        }
        let fence = lease.with(|tenure| tenure.grant()).map_or(Fence::ZERO, |grant| grant.fence);
        let (name, holder) = (lease.name.clone(), lease.holder.clone());
        let unix_ms = self.clock.unix_micros() / 1000;
        let entry = AuditEntry::new(unix_ms, name, kind, fence, lease.id, holder);
        self.notes.add(entry.detail(detail));
    }

    fn note_if_late(&self, lease: &Lease, answer: &Renewed, ttl: Duration, now: Moment) {
        let (holding, left) =
            lease.with(|tenure| (*tenure.phase() == Phase::Holding, tenure.deadline().since(now)));
        if holding && matches!(answer, Renewed::Held(_)) && left < ttl / 3 {
            let detail = format!("{} before its lease of {} was over", human(left), human(ttl));
            self.note(lease, AuditKind::RenewedLate, detail);
        }
    }

    /// Writes notes down, for as long as it makes sense.
    pub(crate) async fn write_down(&self, entries: Vec<AuditEntry>) {
        let request = || self.store.note(&entries);
        if let Err(error) = self.insist(Operation::Audit, CLEAN_UP_LIMIT, request).await {
            tracing::debug!(target: "sprag::audit", %error, notes = entries.len(), "notes are lost");
        }
    }

    /// Releases by lease id until the store has answered, or until the lease is over anyway,
    /// but not for longer than `limit`.
    pub(crate) async fn release(&self, lease: &Lease, limit: Duration) -> Result<Released> {
        let limit = lease.with(|tenure| tenure.longest()).min(limit);
        let request = || self.store.release(&lease.name, lease.id);
        self.insist(Operation::Release, limit, request).await.map_err(|error| error.on(&lease.name))
    }

    /// Takes back the wish to be upgraded until the store has answered, but not for longer than
    /// `limit`. The lease goes on meanwhile, and so the wish would.
    pub(crate) async fn withdraw(&self, lease: &Lease, limit: Duration) -> Result<()> {
        let request = || self.store.withdraw(&lease.name, lease.id);
        self.insist(Operation::Release, limit, request).await.map_err(|error| error.on(&lease.name))
    }

    /// Asks until the store has answered, or until `limit` is over.
    async fn insist<T, F>(
        &self,
        operation: Operation,
        limit: Duration,
        request: impl Fn() -> F + Send,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
    {
        let give_up = self.now().plus(limit);
        let mut pause = Duration::from_millis(20);
        loop {
            match self.request(operation, RENEWAL_TIMEOUT, request()).await {
                // A full store has room again as soon as others have left it.
                Err(error)
                    if (error.is_retryable() || *error.kind() == ErrorKind::StoreFull)
                        && self.now().plus(pause) < give_up =>
                {
                    self.sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                answer => return answer,
            }
        }
    }
}

/// The right to renew a lease; given back when the renewal is answered, fails or is cancelled.
struct RenewalClaim<'a> {
    core: &'a Core,
    lease: &'a Lease,
}

impl Drop for RenewalClaim<'_> {
    fn drop(&mut self) {
        self.lease.with(|tenure| tenure.renewal_over());
        self.lease.renewal_is_over();
        self.core.registry.reschedule(self.lease);
    }
}
