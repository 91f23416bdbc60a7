//! [`Recording`]: a store that writes down what a process asks of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sprag_core::diagnosis::Finding;
use sprag_core::evictions::Evictions;
use sprag_core::store::{
    Attempt, Conversion, Converted, Evicted, Eviction, Listing, Page, Released, Renewal, Renewed,
    Request, Store,
};
use sprag_core::{
    AuditEntry, AuditQuery, Capability, LeaseId, LockName, LockView, Loss, Mode, Result, margin,
};

use crate::history::{Event, Op, Outcome, Recorder};

/// Writes requests, places in the queue, renewals and releases to a history.
///
/// What a guard believes is not known here: whoever has the guard records grants and losses.
#[derive(Debug)]
pub struct Recording {
    store: Arc<dyn Store>,
    recorder: Arc<Recorder>,
    process: String,
    leases: Mutex<HashMap<LeaseId, Known>>,
}

/// What is known about a lease of this process.
#[derive(Clone, Copy, Debug)]
struct Known {
    mode: Mode,
    queued: bool,
    granted: bool,
    /// Until when its place in the queue is safe without a sign of life.
    safe_until: u64,
}

impl Recording {
    /// Records for `process` what is asked of `store`.
    pub fn new(store: Arc<dyn Store>, recorder: Arc<Recorder>, process: String) -> Self {
        Self { store, recorder, process, leases: Mutex::default() }
    }

    fn leases(&self) -> MutexGuard<'_, HashMap<LeaseId, Known>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, name: &LockName, lease: LeaseId, mode: Mode, op: Op, sent: u64) -> Event {
        Event::new(&self.process, lease, name, mode, op).at(sent, Recorder::now_ns())
    }

    fn record(&self, event: Event) {
        self.recorder.record(event).expect("a history with holes proves nothing");
    }

    /// Takes note of an answer, and records what is new in it.
    fn attempted(&self, request: &Request, answer: &Attempt, sent: u64) {
        let new = |op| self.event(&request.name, request.lease, request.mode, op, sent);
        let in_doubt = |known: &Known| known.queued && Recorder::now_ns() >= known.safe_until;
        let event = {
            let mut leases = self.leases();
            let Some(known) = leases.get_mut(&request.lease) else { return };
            match answer {
                Attempt::Granted(_) => {
                    known.granted = true;
                    in_doubt(known).then(|| new(Op::Queued).priority(request.priority))
                }
                Attempt::Queued(_) if !known.queued || in_doubt(known) => {
                    if !known.queued {
                        known.safe_until = after(sent, request.ttl);
                    }
                    known.queued = true;
                    Some(new(Op::Queued).priority(request.priority))
                }
                Attempt::Held(_) if !request.queue => {
                    leases.remove(&request.lease);
                    Some(new(Op::Withdrawn))
                }
                Attempt::Gone(_) => {
                    leases.remove(&request.lease);
                    Some(new(Op::Withdrawn))
                }
                Attempt::Queued(_) | Attempt::Held(_) => None,
            }
        };
        event.into_iter().for_each(|event| self.record(event));
    }
}

/// A release that was asked for. It is written down also if nobody waits for the answer: it may have
/// been heard.
struct Asked<'a> {
    recording: &'a Recording,
    event: Event,
    sent: u64,
    outcome: Outcome,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let event = self.event.clone().at(self.sent, Recorder::now_ns());
        self.recording.record(event.outcome(self.outcome));
    }
}

fn after(sent: u64, duration: Duration) -> u64 {
    sent.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Recording {
    fn capability(&self) -> &Capability {
        self.store.capability()
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        let known = Known { mode: request.mode, queued: false, granted: false, safe_until: 0 };
        let sent = Recorder::now_ns();
        let new = !self.leases().contains_key(&request.lease);
        if new {
            // Before it is sent: a process killed in the middle may have been heard.
            let event = self.event(&request.name, request.lease, request.mode, Op::Request, sent);
            self.record(event.priority(request.priority));
            self.leases().insert(request.lease, known);
        }
        let sent = Recorder::now_ns();
        let answer = self.store.try_acquire(request).await?;
        self.attempted(request, &answer, sent);
        Ok(answer)
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        let sent = Recorder::now_ns();
        let answers = self.store.renew(leases).await?;
        for (renewal, answer) in leases.iter().zip(&answers) {
            if let Some(known) = self.leases().get_mut(&renewal.lease) {
                known.granted |= matches!(answer, Renewed::Held(_));
                let gone = matches!(answer, Renewed::Lost(_));
                known.safe_until = if gone { 0 } else { after(sent, renewal.ttl) };
            }
            let Renewed::Held(grant) = answer else { continue };
            let until = after(sent, renewal.ttl.saturating_sub(margin(renewal.ttl)));
            let event = self.event(&renewal.name, renewal.lease, grant.mode, Op::Renewed, sent);
            self.record(event.fence(grant.fence).valid_until(until));
        }
        Ok(answers)
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        let sent = Recorder::now_ns();
        let answer = self.store.convert(conversion).await?;
        if let Converted::Done(grant) = &answer {
            let (name, lease) = (&conversion.name, conversion.lease);
            let event = self.event(name, lease, grant.mode, Op::Converted, sent);
            self.record(event.fence(grant.fence));
        }
        Ok(answer)
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        let known = self.leases().get(&lease).copied();
        let mode = known.map_or(Mode::Exclusive, |known| known.mode);
        // A lease of unknown origin came by a ticket, so it was granted.
        let granted = known.is_none_or(|known| known.granted);
        let op = if granted { Op::Released } else { Op::Withdrawn };
        let event = Event::new(&self.process, lease, name, mode, op);
        let (recording, sent) = (self, Recorder::now_ns());
        if granted {
            // Before it is sent: a process killed before the answer may have let the next one in.
            let releasing = Event { op: Op::Releasing, ..event.clone() };
            self.record(releasing.at(sent, sent));
        }
        let mut asked = Asked { recording, event, sent, outcome: Outcome::Unknown };
        let answer = self.store.release(name, lease).await;
        asked.outcome = match &answer {
            Ok(Released::Freed) => Outcome::Freed,
            Ok(Released::AlreadyGone(Loss::Released)) => Outcome::AlreadyReleased,
            Ok(Released::AlreadyGone(_)) => Outcome::AlreadyLost,
            Err(_) => Outcome::Unknown,
        };
        drop(asked);
        if answer.is_ok() {
            self.leases().remove(&lease);
        }
        answer
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        self.store.withdraw(name, lease).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        self.store.inspect(name).await
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        self.store.list(listing).await
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        self.store.evict(eviction).await
    }

    async fn changed(&self, name: &LockName, lease: LeaseId) {
        self.store.changed(name, lease).await;
    }

    fn lifeline(&self) -> Option<std::os::fd::OwnedFd> {
        self.store.lifeline()
    }

    fn is_severed(&self, lease: LeaseId) -> bool {
        self.store.is_severed(lease)
    }

    async fn severed(&self) {
        self.store.severed().await;
    }

    fn evictions(&self) -> Option<Evictions> {
        self.store.evictions()
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        self.store.audit(query).await
    }

    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        self.store.note(entries).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.store.diagnose().await
    }
}
