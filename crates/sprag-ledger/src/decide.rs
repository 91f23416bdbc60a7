//! What the clerk decides before it writes.

use std::collections::BTreeSet;
use std::time::Duration;

use sprag_core::audit::audit_entries;
use sprag_core::record::{Applied, Context, Outcome, Record, Steal, apply};
use sprag_core::store::{Bind, Renewal, Takeover};
use sprag_core::{Error, LeaseId, LockName};

use crate::clerk::{Clerk, answer};
use crate::job::{Answer, Job, Wish};
use crate::library::Verdict;
use crate::plan::{Draft, Plan};

/// What is to be done with a job.
enum Decision {
    /// It is in the plan, and answered with it.
    Planned,
    /// What is known is too old to answer.
    TooOld(Job),
    /// It has to be in a plan of its own.
    Later(Job),
}

impl Clerk {
    /// Reads what has to be known, answers what can be answered and plans the rest. Gives back
    /// what has to wait for the next plan.
    pub(crate) fn plan(&mut self, jobs: Vec<Job>) -> Result<(Plan, Vec<Job>), (Error, Vec<Job>)> {
        let (mut plan, mut later) = (Plan::default(), Vec::new());
        let mut open = jobs;
        // What is known suffices for what will be written; the second round is for answers.
        for round in 0..2 {
            let unknown: BTreeSet<_> = {
                let shelf = self.library.shelf();
                let looks = self.library.settings.look_first;
                let too_old = |job: &Job| {
                    let as_of = shelf.get(&job.name).map(|copy| copy.as_of);
                    let taking = looks && matches!(job.wish, Wish::Acquire(_));
                    as_of.is_none_or(|as_of| taking && as_of < job.asked)
                };
                let missing = |job: &&Job| round > 0 || too_old(job);
                open.iter().filter(missing).map(|job| job.name.clone()).collect()
            };
            if let Err(error) = self.prepare(&unknown, &open) {
                open.extend(later);
                open.extend(plan.into_jobs());
                return Err((error, open));
            }
            let mut too_old = Vec::new();
            for job in open {
                match self.decide(job, &mut plan) {
                    Decision::Planned => {}
                    Decision::TooOld(job) => too_old.push(job),
                    Decision::Later(job) => later.push(job),
                }
            }
            open = too_old;
        }
        later.extend(open);
        Ok((plan, later))
    }

    /// Reads locks, and the sessions of those who are in the way.
    fn prepare(&mut self, unknown: &BTreeSet<LockName>, jobs: &[Job]) -> sprag_core::Result<()> {
        self.find_ourselves()?;
        let names: Vec<_> = unknown.iter().cloned().collect();
        self.library.read(&names)?;
        let mut sessions = BTreeSet::new();
        for job in jobs {
            let Wish::Acquire(request) = &job.wish else { continue };
            let copy = self.library.shelf().get(&job.name).cloned();
            let Some(copy) = copy else { continue };
            // Who only tries cannot do anything about them.
            if !request.queue && request.takeover == Takeover::No && copy.record.waiters.is_empty()
            {
                let stays = self.library.settings.abandoned == crate::Abandoned::Stays;
                if stays {
                    continue;
                }
            }
            let oldest = if self.waiting.contains_key(&request.lease) {
                self.library.clock.now().minus(self.patience())
            } else {
                job.asked
            };
            let witness = self.library.witness();
            let unseen = |id: &sprag_core::SessionId| {
                witness.session(*id).is_none_or(|seen| seen.read_at < oldest)
            };
            sessions.extend(self.library.strangers(&copy.record).into_iter().filter(unseen));
        }
        self.library.watch(&sessions)
    }

    /// How old what is known may be for one who waits: it is looked at all the time.
    fn patience(&self) -> Duration {
        self.pace * 3
    }

    fn decide(&mut self, job: Job, plan: &mut Plan) -> Decision {
        let Some(copy) = self.library.shelf().get(&job.name).cloned() else {
            return Decision::TooOld(job);
        };
        if !plan.along.is_empty() || (!job.along.is_empty() && !plan.is_empty()) {
            return Decision::Later(job);
        }
        let mut draft = plan.drafts.remove(&job.name).unwrap_or_else(|| Draft::of(copy));
        if let Wish::Renew(renewal) = &job.wish
            && self.lives_by_our_sign(&draft.record, renewal)
        {
            plan.sign = true;
            self.presence.bind(renewal.lease);
            self.library.tended().renew(renewal.lease, &job.name, renewal.ttl, job.asked);
            plan.drafts.insert(job.name.clone(), draft);
            plan.beats.push(job);
            return Decision::Planned;
        }
        let applied = self.apply(&job, &draft.record, plan);
        let fresh = draft.base.as_of >= job.asked || draft.changed;
        let name = job.name.clone();
        let decision = self.draw_up(job, applied, fresh, &mut draft, plan);
        plan.drafts.insert(name, draft);
        decision
    }

    /// Whether the lease is bound to our session and stays as it is, so that the session's sign of
    /// life is all it needs.
    fn lives_by_our_sign(&self, record: &Record, renewal: &Renewal) -> bool {
        let ttl_ms = u64::try_from(renewal.ttl.as_millis()).unwrap_or(u64::MAX);
        let ours = Some(self.presence.id);
        let held = record.holders.iter().find(|hold| hold.lease == renewal.lease);
        let waits = record.waiters.iter().any(|w| w.lease == renewal.lease && w.session == ours);
        let held = held.is_some_and(|hold| hold.session == ours && hold.ttl_ms >= ttl_ms);
        let over = self.library.tended().is_over(renewal.lease, self.library.clock.now());
        renewal.bind == Bind::Keep && (held || waits) && !over
    }

    fn apply(&self, job: &Job, record: &Record, plan: &mut Plan) -> Applied {
        let (steal, verdict) = self.stale(&job.wish, record);
        let command = job.wish.command(self.presence.id, steal);
        let apply = |context: &Context<'_>| apply(record.clone(), &command, context);
        let mut applied = self.library.with_context(&job.name, record, &verdict, apply);
        if let (Wish::Acquire(request), Outcome::Granted(_)) = (&job.wish, &applied.outcome) {
            stand_alone(&mut applied, request.lease);
        }
        let stays = |lease: LeaseId| applied.record.holders.iter().any(|hold| hold.lease == lease);
        for hold in record.holders.iter().filter(|hold| !stays(hold.lease)) {
            let stranger = hold.session.filter(|session| *session != self.presence.id);
            if let Some(session) = stranger
                && self.library.is_stale(hold, Duration::ZERO)
                && let Some(seen) = self.library.witness().session(session)
            {
                plan.silenced.insert(session, seen.clone());
            }
        }
        applied
    }

    /// Who may be pushed aside by a wish that wants to: if all are stale they are, and told by
    /// whom; if some are, those leave.
    fn stale(&self, wish: &Wish, record: &Record) -> (Option<Steal>, Verdict) {
        let Wish::Acquire(request) = wish else { return (None, Verdict::default()) };
        let Takeover::Overdue(after) = request.takeover else { return (None, Verdict::default()) };
        let holders = record.holders.iter().filter(|hold| hold.lease != request.lease);
        let stale: BTreeSet<_> = holders
            .clone()
            .filter(|hold| hold.session.is_some() && self.library.is_stale(hold, after))
            .map(|hold| hold.lease)
            .collect();
        if stale.len() == holders.count() && !stale.is_empty() {
            let verdict = Verdict { spared: stale, ..Verdict::default() };
            (Some(Steal::Seen { version: record.version }), verdict)
        } else {
            (None, Verdict { over: stale, ..Verdict::default() })
        }
    }

    /// Puts what was decided into the plan, or answers where nothing has to be written.
    fn draw_up(
        &mut self,
        job: Job,
        applied: Applied,
        fresh: bool,
        draft: &mut Draft,
        plan: &mut Plan,
    ) -> Decision {
        let lease = job.wish.lease();
        let ours = lease.is_some_and(|lease| is_bound(&applied.record, lease, self.presence.id));
        let wants_sign = match (&job.wish, &applied.outcome) {
            // Whoever believes to hold it counts from now, so the others have to as well.
            (_, Outcome::Granted(_)) => ours && !self.presence.gave_sign_since(job.asked),
            (_, Outcome::Queued { .. }) => ours && !self.presence.is_there(),
            _ => false,
        };
        let mut changed = applied.changed;
        let tip = &draft.base.tip;
        if job.wish.ends() && !changed && self.unresolved.get(&job.name) == Some(tip) {
            // The request that this one ends may still arrive: it must not find what it expects.
            changed = true;
        }
        changed |= matches!(&job.wish, Wish::Note(notes) if !notes.is_empty());
        if changed || wants_sign || draft.changed {
            if !(changed || fresh) {
                return Decision::TooOld(job);
            }
            self.commit_to(job, applied, changed, wants_sign, draft, plan);
            return Decision::Planned;
        }
        let looked_at = lease.is_some_and(|lease| self.waiting.contains_key(&lease))
            && matches!(applied.outcome, Outcome::Queued { .. })
            && self.library.clock.now() < draft.base.as_of.plus(self.patience());
        if !fresh && !looked_at {
            return Decision::TooOld(job);
        }
        self.remember(&job, &applied.outcome);
        if let (Some(lease), false) = (lease, ours) {
            self.presence.unbind(lease);
        }
        let (outcome, record) = (applied.outcome, applied.record);
        answer(job, Ok(Answer { outcome, record, in_the_way: Vec::new() }));
        Decision::Planned
    }

    fn commit_to(
        &mut self,
        job: Job,
        applied: Applied,
        changed: bool,
        wants_sign: bool,
        draft: &mut Draft,
        plan: &mut Plan,
    ) {
        if changed {
            let unix_ms = self.library.clock.unix_micros() / 1000;
            draft.happened.extend(audit_entries(&job.name, &applied, unix_ms));
            if let Wish::Note(notes) = &job.wish {
                draft.happened.extend(notes.iter().cloned());
            }
        }
        if let Some(lease) = job.wish.lease() {
            if is_bound(&applied.record, lease, self.presence.id) {
                self.presence.bind(lease);
                if let Some(ttl) = job.wish.ttl() {
                    self.library.tended().renew(lease, &job.name, ttl, job.asked);
                }
                plan.ended.remove(&lease);
            } else {
                plan.ended.insert(lease);
            }
        }
        let Applied { record, outcome, changed: written, .. } = applied;
        draft.record = record;
        if changed && !written {
            draft.record.version += 1;
        }
        draft.changed |= changed;
        plan.sign |= wants_sign;
        if written && earned(&outcome) {
            // Otherwise it went along with an earlier attempt, whose answer was lost; or the lease
            // is not here, and the record only changed because somebody else in it is over.
            plan.along.extend(job.along.iter().cloned());
        }
        draft.done.push((job, outcome));
    }
}

/// Whether what was wished for is done, so that what was to go along with it may.
fn earned(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Granted(_) | Outcome::Done => true,
        Outcome::Evicted(broken) => !broken.is_empty(),
        Outcome::Queued { .. } | Outcome::Held | Outcome::Gone(_) | Outcome::Refused(_) => false,
    }
}

/// A lease that nobody renews lives by its TTL alone: its session's signs of life say nothing about
/// it. While it waits they do.
fn stand_alone(applied: &mut Applied, lease: LeaseId) {
    let mine = |hold: &&mut sprag_core::record::Hold| hold.lease == lease && hold.fixed;
    if let Some(hold) = applied.record.holders.iter_mut().find(mine)
        && hold.session.take().is_some()
    {
        if !applied.changed {
            applied.record.version += 1;
        }
        applied.changed = true;
    }
}

fn is_bound(record: &Record, lease: LeaseId, session: sprag_core::SessionId) -> bool {
    let held = record.holders.iter().any(|h| h.lease == lease && h.session == Some(session));
    held || record.waiters.iter().any(|w| w.lease == lease && w.session == Some(session))
}
