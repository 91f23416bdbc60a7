//! [`Clerk`]: the one thread of a store that writes. Whatever came while it was busy goes into one
//! swap.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::clock::Moment;
use sprag_core::entropy::{Entropy, OsEntropy};
use sprag_core::mailbox::Mailboxes;
use sprag_core::policy::{Backoff, RetryConfig};
use sprag_core::record::{Outcome, Record};
use sprag_core::store::Grant;
use sprag_core::{Error, ErrorKind, LeaseId, LockName, Result, SessionId};

use crate::job::{Answer, Job, Wish};
use crate::ledger::{Change, Swapped};
use crate::library::Library;
use crate::oid::Oid;
use crate::page;
use crate::plan::{About, Plan};
use crate::presence::Presence;
use crate::ref_name::RefName;
use crate::shelf::Copy;

/// Where jobs are left for the clerk.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Inbox {
    pub(crate) fn push(&self, jobs: impl IntoIterator<Item = Job>) {
        self.lock().jobs.extend(jobs);
        self.filled.notify_one();
    }

    /// Nothing more will come; what is there is done before the clerk goes home.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    /// Everything that is there, or nothing if nothing comes for so long; `None` at the end.
    fn take(&self, patience: Duration) -> Option<Vec<Job>> {
        let state = self.lock();
        let idle = |state: &mut State| state.jobs.is_empty() && !state.closed;
        let waited = self.filled.wait_timeout_while(state, patience, idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let jobs: Vec<_> = state.jobs.drain(..).collect();
        (!jobs.is_empty() || !state.closed).then_some(jobs)
    }

    /// Lets time pass, unless the store is closed.
    fn rest(&self, pause: Duration) {
        let waited = self.filled.wait_timeout_while(self.lock(), pause, |state| !state.closed);
        drop(waited);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long the clerk waits for work at most; it is woken when some comes.
const IDLE: Duration = Duration::from_secs(3600);
/// When what could not be given up is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Clerk {
    pub(crate) library: Arc<Library>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) presence: Presence,
    /// Who of this process waits, and for what.
    pub(crate) waiting: HashMap<LeaseId, LockName>,
    /// Swaps that may still happen, because their answer was lost: where the reference was.
    pub(crate) unresolved: BTreeMap<LockName, Option<Oid>>,
    /// How long from one look to the next while somebody waits, and when that is.
    pub(crate) pace: Duration,
    pub(crate) next_look: Moment,
    /// Whether the next swap is to have no new beginnings.
    pub(crate) keeps_history: bool,
    /// Sessions of the dead that a lock does not speak of any more, and where they are.
    leftovers: BTreeMap<SessionId, Oid>,
}

impl Clerk {
    pub(crate) fn new(library: Arc<Library>, inbox: Arc<Inbox>, mailboxes: Arc<Mailboxes>) -> Self {
        let (presence, pace) = (Presence::new(library.own), *library.settings.poll.start());
        let (waiting, unresolved) = (HashMap::new(), BTreeMap::new());
        let next_look = Moment::NEVER;
        let (keeps_history, leftovers) = (false, BTreeMap::new());
        Self {
            library,
            inbox,
            mailboxes,
            presence,
            waiting,
            unresolved,
            pace,
            next_look,
            keeps_history,
            leftovers,
        }
    }

    /// Works until the store is closed.
    pub(crate) fn run(mut self) {
        loop {
            let now = self.library.clock.now();
            let look = if self.waiting.is_empty() { Moment::NEVER } else { self.next_look };
            let patience = look.min(self.library.tended().next()).since(now).min(IDLE);
            let Some(jobs) = self.inbox.take(patience) else { return };
            if !jobs.is_empty() {
                self.serve(jobs);
            }
            if !self.waiting.is_empty() && self.library.clock.now() >= self.next_look {
                self.look();
            }
            self.end_untended();
            self.clear_leftovers();
        }
    }

    /// Removes the sessions of those who died. Whoever finds them dead does it, after the answer.
    fn clear_leftovers(&mut self) {
        if self.leftovers.is_empty() {
            return;
        }
        let found = std::mem::take(&mut self.leftovers).into_iter().collect();
        if let Err(error) = self.library.remove_unnamed(found) {
            tracing::debug!(%error, "sessions of the dead are left behind");
        }
    }

    /// Gives up what its owner does not renew any more: the others see a session that is alive.
    fn end_untended(&mut self) {
        let over = self.library.tended().over(self.library.clock.now());
        let names: BTreeSet<_> = over.iter().map(|(_, name)| name.clone()).collect();
        if names.is_empty() {
            return;
        }
        let asked = self.library.clock.now();
        let reap = |name: LockName| {
            let (reply, _) = tokio::sync::oneshot::channel();
            Job { name, wish: Wish::Note(Vec::new()), along: Vec::new(), asked, reply }
        };
        self.serve(names.into_iter().map(reap).collect());
        for (lease, name) in over {
            let copy = self.library.shelf().get(&name).filter(|copy| copy.as_of >= asked).cloned();
            let gone = |copy: Copy| matches!(standing(&copy.record, lease), Outcome::Gone(_));
            if copy.is_some_and(gone) {
                self.forget(lease);
            } else {
                let again = self.library.clock.now().plus(TRY_AGAIN);
                self.library.tended().postpone(lease, again);
            }
        }
        self.say_farewell();
    }

    /// Does what is asked, and answers.
    fn serve(&mut self, jobs: Vec<Job>) {
        let attempts = self.library.settings.attempts;
        let config = RetryConfig {
            max_attempts: attempts,
            initial_delay: Duration::from_millis(20),
            max_delay: Duration::from_secs(2),
            backoff_multiplier: 1.6,
        };
        let mut backoff = Backoff::new(config, None);
        let mut open = jobs;
        while !open.is_empty() {
            let (plan, later) = match self.plan(open) {
                Ok(planned) => planned,
                Err((error, jobs)) => {
                    // A damaged record must not be in the way of other locks, nor cost them more
                    // than one request for all of them.
                    let is_its = |job: &Job| error.lock() == Some(&job.name);
                    let (failed, others) = if error.is_corrupt() && jobs.iter().any(is_its) {
                        jobs.into_iter().partition(is_its)
                    } else {
                        (jobs, Vec::new())
                    };
                    self.fail(failed, &error);
                    open = others;
                    continue;
                }
            };
            open = later;
            if plan.is_empty() {
                continue;
            }
            match self.carry_out(plan) {
                Carried::Done => {}
                Carried::Again(jobs) => {
                    open.extend(jobs);
                    let fraction = OsEntropy.next_fraction();
                    let Some(pause) = backoff.next(self.library.clock.now(), fraction) else {
                        let message = "others changed it each time before we could: try again";
                        let error = self.library.error(ErrorKind::Busy, message);
                        return self.fail(open, &error);
                    };
                    self.inbox.rest(pause);
                }
                Carried::Failed(error, mut jobs) => {
                    // What one of them cannot have must not be in the way of the others.
                    if jobs.len() > 1 && !error.is_indeterminate() {
                        jobs.drain(..).for_each(|job| self.serve(vec![job]));
                    }
                    self.fail(jobs, &error);
                }
            }
        }
        self.say_farewell();
    }

    /// Takes back our session if nothing is bound to it any more, such as after a loss.
    fn say_farewell(&mut self) {
        if self.presence.is_there() && self.presence.is_done_without(&BTreeSet::new()) {
            let carried = self.carry_out(Plan::default());
            if let Carried::Failed(error, _) = carried {
                tracing::debug!(%error, "the session is not taken back yet");
            }
        }
    }

    fn fail(&mut self, jobs: Vec<Job>, error: &Error) {
        for job in jobs {
            if let (Wish::Acquire(request), false) = (&job.wish, error.is_indeterminate()) {
                self.forget(request.lease);
            }
            let copy = Error::new(error.kind().clone(), error.operation(), error.message());
            answer(job, Err(copy.at(self.library.settings.capability.store)));
        }
    }

    /// The lease neither holds nor waits.
    pub(crate) fn forget(&mut self, lease: LeaseId) {
        self.presence.unbind(lease);
        self.library.tended().forget(lease);
        self.waiting.remove(&lease);
    }

    /// Swaps what was planned: all of it, or nothing.
    fn carry_out(&mut self, plan: Plan) -> Carried {
        let tails = self.tails(&plan);
        let changes = plan.changes(&self.presence, &tails);
        let (about, changes): (Vec<_>, Vec<_>) = changes.into_iter().unzip();
        if changes.is_empty() {
            return self.settle(plan, &about, Vec::new(), self.library.clock.now());
        }
        let sent = self.library.clock.now();
        match self.swap(&about, &changes) {
            // An answer that says less than was asked is none.
            Ok(swapped) if swapped.len() != changes.len() => {
                self.lose_sight(&about, &changes);
                let message = "the ledger did not answer for every change: ask again";
                Carried::Failed(
                    self.library.error(ErrorKind::Unavailable, message),
                    plan.into_jobs(),
                )
            }
            Ok(swapped) if swapped.iter().all(|one| matches!(one, Swapped::Done(_))) => {
                self.settle(plan, &about, swapped, sent)
            }
            Ok(swapped) => self.refused(plan, &about, &changes, &swapped),
            Err(error) => {
                if error.is_indeterminate() {
                    self.lose_sight(&about, &changes);
                }
                Carried::Failed(error, plan.into_jobs())
            }
        }
    }

    /// Nobody knows whether it was done, or will be.
    fn lose_sight(&mut self, about: &[About], changes: &[Change]) {
        for (about, change) in about.iter().zip(changes) {
            match about {
                About::Lock(name) => {
                    self.unresolved.insert(name.clone(), change.old.clone());
                    self.library.shelf().forget(name);
                }
                About::Ourselves => self.presence.lost_sight(),
                About::Stranger(session) => self.library.witness().forget_session(*session),
                About::Along => {}
            }
        }
    }

    /// Somebody was faster. What they changed is read before the next try.
    fn refused(
        &mut self,
        plan: Plan,
        about: &[About],
        changes: &[Change],
        swapped: &[Swapped],
    ) -> Carried {
        let mut in_the_way = Vec::new();
        for ((about, change), swapped) in about.iter().zip(changes).zip(swapped) {
            if *swapped != Swapped::Refused {
                continue;
            }
            match about {
                About::Lock(name) => self.library.shelf().forget(name),
                About::Ourselves => {
                    // Somebody took something from us. What it was is in the records.
                    self.presence.lost_sight();
                    self.library.shelf().forget_all();
                }
                About::Stranger(session) => self.library.witness().forget_session(*session),
                About::Along => in_the_way.push(change.name.clone()),
            }
        }
        let jobs = plan.into_jobs();
        if in_the_way.is_empty() {
            return Carried::Again(jobs);
        }
        // A job with something to go along is alone in its plan.
        for job in jobs {
            if let Wish::Acquire(request) = &job.wish {
                self.forget(request.lease);
            }
            let record = self.library.shelf().get(&job.name).map(|copy| copy.record.clone());
            let (outcome, record) = (Outcome::Held, record.unwrap_or_default());
            answer(job, Ok(Answer { outcome, record, in_the_way: in_the_way.clone() }));
        }
        Carried::Done
    }

    /// Takes in what was done, and answers.
    fn settle(
        &mut self,
        plan: Plan,
        about: &[About],
        swapped: Vec<Swapped>,
        sent: Moment,
    ) -> Carried {
        let mut tips: BTreeMap<LockName, Option<Oid>> = BTreeMap::new();
        for (about, swapped) in about.iter().zip(swapped) {
            let Swapped::Done(tip) = swapped else { continue };
            match about {
                About::Lock(name) => drop(tips.insert(name.clone(), tip)),
                About::Ourselves => self.presence.moved(tip, sent),
                About::Stranger(session) => {
                    self.library.witness().forget_session(*session);
                    self.leftovers.extend(tip.map(|tip| (*session, tip)));
                }
                About::Along => {}
            }
        }
        plan.ended.iter().for_each(|lease| self.forget(*lease));
        let beats = plan.beats;
        for (name, draft) in plan.drafts {
            if let Some(tip) = tips.remove(&name) {
                let gone = self.library.silent_and_gone(&draft.base.record, &draft.record);
                for (session, tip) in gone {
                    self.leftovers.entry(session).or_insert(tip);
                }
                self.unresolved.remove(&name);
                let copy =
                    Copy { tip, record: draft.record.clone(), as_of: sent, written: Some(sent) };
                self.library.saw(&copy);
                // Before the answer: who asked may be gone with this process a moment later.
                self.library.witness().save();
                self.library.shelf().put(name.clone(), copy);
                // Whoever of this process is in now need not wait for the next look.
                draft.record.holders.iter().for_each(|hold| self.mailboxes.notify(hold.lease));
            }
            for (job, outcome) in draft.done {
                self.remember(&job, &outcome);
                let record = draft.record.clone();
                answer(job, Ok(Answer { outcome, record, in_the_way: Vec::new() }));
            }
        }
        self.confirm(beats);
        Carried::Done
    }

    /// Keeps in mind who waits.
    pub(crate) fn remember(&mut self, job: &Job, outcome: &Outcome) {
        let Some(lease) = job.wish.lease() else { return };
        match outcome {
            Outcome::Queued { .. } if !self.waiting.contains_key(&lease) => {
                self.waiting.insert(lease, job.name.clone());
                self.hurry();
            }
            Outcome::Queued { .. } => {}
            Outcome::Gone(_) => self.forget(lease),
            _ => drop(self.waiting.remove(&lease)),
        }
    }

    /// Answers those for whom a sign of life was enough, unless their lock has changed: somebody
    /// may have broken it or taken it by force.
    fn confirm(&mut self, beats: Vec<Job>) {
        if beats.is_empty() {
            return;
        }
        let names: BTreeSet<_> = beats.iter().map(|job| job.name.clone()).collect();
        let names: Vec<_> = names.into_iter().collect();
        if let Err(error) = self.library.read(&names) {
            return self.fail(beats, &error);
        }
        for job in beats {
            let copy = self.library.shelf().get(&job.name).cloned();
            let record = copy.map(|copy| copy.record).unwrap_or_default();
            let outcome = job.wish.lease().map_or(Outcome::Done, |lease| standing(&record, lease));
            self.remember(&job, &outcome);
            answer(job, Ok(Answer { outcome, record, in_the_way: Vec::new() }));
        }
    }

    /// Reads where our session is, after somebody else moved it or an answer was lost.
    pub(crate) fn find_ourselves(&mut self) -> Result<()> {
        if self.presence.is_known() {
            return Ok(());
        }
        let reference = self.presence.reference();
        let tip = self.library.ledger.tips(std::slice::from_ref(&reference))?.pop().flatten();
        let beat = match &tip {
            None => 0,
            Some(tip) => {
                let mut entries = self.library.ledger.entries(&[(reference, tip.clone())])?;
                entries.pop().map_or(Ok(0), |entry| page::read_session(&entry))?
            }
        };
        self.presence.found(tip, beat);
        Ok(())
    }

    // ---- looking ----------------------------------------------------------------------------

    fn hurry(&mut self) {
        self.pace = *self.library.settings.poll.start();
        self.plan_look();
    }

    fn plan_look(&mut self) {
        let jitter = 0.75 + 0.5 * OsEntropy.next_fraction();
        self.next_look = self.library.clock.now().plus(self.pace.mul_f64(jitter));
    }

    /// Looks at all locks that somebody of this process waits for, and at who is in the way, and
    /// wakes those for whom something has changed.
    fn look(&mut self) {
        let changed = self.look_at_all().unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot look at the locks that are waited for");
            BTreeSet::new()
        });
        if changed.is_empty() {
            self.pace = (self.pace * 2).min(*self.library.settings.poll.end());
            self.plan_look();
        } else {
            self.hurry();
        }
        let concerned = self.waiting.iter().filter(|(_, name)| changed.contains(*name));
        concerned.for_each(|(lease, _)| self.mailboxes.notify(*lease));
    }

    fn look_at_all(&self) -> Result<BTreeSet<LockName>> {
        let names: BTreeSet<_> = self.waiting.values().cloned().collect();
        let before: BTreeMap<_, _> = names.iter().map(|name| (name, self.tip(name))).collect();
        let sessions: BTreeSet<_> = {
            let shelf = self.library.shelf();
            let copies = names.iter().filter_map(|name| shelf.get(name));
            copies.flat_map(|copy| self.library.strangers(&copy.record)).collect()
        };
        let sent = self.library.clock.now();
        let locks: Vec<_> = names.iter().map(|name| (name.clone(), RefName::lock(name))).collect();
        let others: Vec<_> = sessions.into_iter().map(|id| (id, RefName::session(id))).collect();
        let refs = locks.iter().map(|(_, reference)| reference.clone());
        let refs: Vec<_> =
            refs.chain(others.iter().map(|(_, reference)| reference.clone())).collect();
        let mut tips = self.library.ledger.tips(&refs)?.into_iter();
        let found = locks.into_iter().map(|(name, at)| (name, at, tips.next().flatten()));
        let found: Vec<_> = found.collect();
        let seen = others.into_iter().map(|(id, at)| (id, at, tips.next().flatten())).collect();
        self.library.take_in_sessions(seen)?;
        self.library.take_in(found, sent)?;
        Ok(names.iter().filter(|name| before[name] != self.tip(name)).cloned().collect())
    }

    fn tip(&self, name: &LockName) -> Option<Oid> {
        self.library.shelf().get(name).and_then(|copy| copy.tip.clone())
    }
}

/// What became of a plan.
enum Carried {
    Done,
    Again(Vec<Job>),
    Failed(Error, Vec<Job>),
}

/// How a lease stands in a record.
fn standing(record: &Record, lease: LeaseId) -> Outcome {
    if let Some(hold) = record.holders.iter().find(|hold| hold.lease == lease) {
        let grant = Grant { fence: hold.fence, mode: hold.mode, took_over: hold.took_over };
        return Outcome::Granted(grant);
    }
    match record.waiters.iter().position(|wait| wait.lease == lease) {
        Some(ahead) => Outcome::Queued { ahead },
        None => Outcome::Gone(record.loss_of(lease)),
    }
}

/// Who asked may be gone; that changes nothing of what was done.
pub(crate) fn answer(job: Job, answer: Result<Answer>) {
    drop(job.reply.send(answer));
}
