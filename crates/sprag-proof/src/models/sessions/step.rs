//! What each step of the model does.

use sprag_core::record::{
    Acquire, Command, Context, EventKind, Expiry, Hold, Outcome, Steal, apply,
};
use sprag_core::{Holder, LeaseId, Loss, Mode, PartyId, SessionId};

use super::{
    Action, KILLED, LEARNED, Lease, Process, REPLY_LOST, Reply, Request, Rule, SPARED, STOLEN,
    SURVIVED, Sessions, Slot, State, TAKEN_OVER, TOO_LATE, Watch, Watched, What,
};
use crate::models::judge::{Fault, granted, judge};
use crate::models::normal::{CURRENT, OUTDATED};

pub(super) fn lease_id(id: u8) -> LeaseId {
    LeaseId::from_u128(u128::from(id))
}

/// Each process may have its own session and one from before a crash.
pub(super) fn session_of(process: usize) -> u8 {
    u8::try_from(process).unwrap_or(u8::MAX) * 2
}

pub(super) const fn bit(session: u8) -> u8 {
    1 << session
}

fn session_id(session: u8) -> SessionId {
    SessionId::from_u128(u128::from(session))
}

/// By what a holder lives, and so what has to be watched to take the lock over.
pub(super) fn what_to_watch(rule: Rule, lock: u8, hold: &Hold) -> Watched {
    match hold.session {
        Some(session) if rule != Rule::LockUnchanged => {
            Watched::Session(u8::try_from(session.as_u128()).unwrap_or(u8::MAX))
        }
        _ => Watched::Lock(lock),
    }
}

impl Sessions {
    pub(super) fn step(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Tick => {
                for (index, process) in state.processes.iter_mut().enumerate() {
                    self.tick(index, process);
                }
            }
            Action::Beat(index) => send(state, index, Request::Beat { session: session_of(index) }),
            Action::LookAtSession(index, session) => {
                send(state, index, Request::Look(Watched::Session(session)));
            }
            Action::LookAtLock(index, lock) => {
                send(state, index, Request::Look(Watched::Lock(lock)));
            }
            Action::Kill(index) => {
                let Watched::Session(session) = state.processes[index].watch?.what else {
                    return None;
                };
                send(state, index, Request::Kill { session });
            }
            Action::Presume(index) => {
                let Watched::Session(session) = state.processes[index].watch?.what else {
                    return None;
                };
                state.processes[index].knows |= bit(session);
                state.processes[index].watch = None;
            }
            Action::Acquire(index, lock) => self.send_acquire(state, index, lock, What::Acquire)?,
            Action::Steal(index, lock) => {
                self.send_acquire(state, index, lock, What::Steal { current: true })?;
            }
            Action::Renew(index, lock) => send_change(state, index, lock, What::Renew)?,
            Action::Release(index, lock) => {
                send_change(state, index, lock, What::Release)?;
                state.processes[index].leases[usize::from(lock)] = None;
            }
            Action::Serve(index) => {
                let slot = std::mem::take(&mut state.processes[index].slot);
                let Slot::Sent { age, request } = slot else { return None };
                let reply = self.serve(state, request)?;
                state.processes[index].slot = Slot::Answered { age, reply };
            }
            Action::Answer(index) => self.answer(state, index)?,
            Action::GiveUp(index) => {
                let slot = std::mem::take(&mut state.processes[index].slot);
                if let Slot::Answered { reply: Reply::Beaten, .. } = slot {
                    self.happened.note(REPLY_LOST);
                }
            }
            Action::LeaveBehind(index) => {
                let slot = std::mem::take(&mut state.processes[index].slot);
                let Slot::Sent { request, .. } = slot else { return None };
                state.late.push(request);
            }
            Action::ServeLate(index) => {
                let request = state.late.remove(index);
                self.serve(state, request)?;
            }
            Action::Crash(index) => state.start_again(index)?,
        }
        Some(())
    }

    fn tick(&self, index: usize, process: &mut Process) {
        let older = |age: &mut u8| *age = (*age + 1).min(self.ttl);
        older(&mut process.anchor);
        if let Slot::Sent { age, .. } | Slot::Answered { age, .. } = &mut process.slot {
            older(age);
        }
        if let Some(watch) = &mut process.watch {
            older(&mut watch.age);
        }
        for (lock, place) in process.leases.iter_mut().enumerate() {
            let Some(lease) = place else { continue };
            let detached = self.is_detached(index, lock);
            if detached {
                older(&mut lease.anchor);
            }
            let anchor = if detached { lease.anchor } else { process.anchor };
            if lease.held.is_some() && !self.is_young(anchor) {
                // Lost is for good, whatever a late answer says.
                *place = None;
            }
        }
    }

    fn send_acquire(&self, state: &mut State, index: usize, lock: u8, what: What) -> Option<()> {
        if state.processes[index].leases[usize::from(lock)].is_none() {
            let id = state.unused_lease(index, lock, self.locks)?;
            let lease = Lease { id, anchor: 0, held: None };
            state.processes[index].leases[usize::from(lock)] = Some(lease);
        }
        send_change(state, index, lock, what)
    }

    fn serve(&self, state: &mut State, request: Request) -> Option<Reply> {
        let is_dead = |session: u8| state.dead & bit(session) != 0;
        Some(match request {
            Request::Beat { session } | Request::Look(Watched::Session(session))
                if is_dead(session) =>
            {
                if matches!(request, Request::Beat { .. }) {
                    self.happened.note(TOO_LATE);
                }
                Reply::Dead(session)
            }
            Request::Beat { session } => {
                self.outdate(state, Watched::Session(session));
                Reply::Beaten
            }
            Request::Look(what) => Reply::Seen { what, current: true },
            Request::Kill { session } => {
                state.dead |= bit(session);
                self.happened.note(KILLED);
                self.outdate(state, Watched::Session(session));
                Reply::Dead(session)
            }
            Request::Change { lock, lease, what, knows } => {
                self.change(state, lock, lease, what, knows)
            }
        })
    }

    fn change(&self, state: &mut State, lock: u8, lease: u8, what: What, knows: u8) -> Reply {
        let owner = usize::from((lease - 1) / (2 * self.locks));
        let command = self.command(owner, lock, lease, what);
        let is_dead = |session: SessionId| {
            u8::try_from(session.as_u128()).is_ok_and(|session| knows & bit(session) != 0)
        };
        let context = Context {
            now_ms: 0,
            expiry: Expiry::Observed,
            fence_floor: 0,
            max_waiters: 8,
            is_dead: &is_dead,
            is_silent: &|_| false,
        };
        let place = usize::from(lock);
        let before = &state.locks[place];
        let applied = apply(before.clone(), &command, &context);
        state.fault = judge(before, &command, &applied, &context, state.newest[place], |_| 0);
        for event in &applied.events {
            match (&event.kind, event.session) {
                (EventKind::Gone(Loss::SessionDied), Some(session)) => {
                    let session = u8::try_from(session.as_u128()).unwrap_or(u8::MAX);
                    let early = state.dead & bit(session) == 0;
                    if early && self.rule != Rule::PresumeDead {
                        state.fault = Some(Fault::WrongLeaseHit);
                    }
                    self.happened.note(TAKEN_OVER);
                }
                (EventKind::Gone(Loss::SessionDied), None) => {
                    state.fault = Some(Fault::WrongLeaseHit);
                }
                (EventKind::Gone(Loss::Stolen { .. }), _) => self.happened.note(STOLEN),
                _ => {}
            }
        }
        // A detached lease is here although its process's first session is known to be dead.
        let outlives = |hold: &Hold| hold.session.is_none() && knows & 0b11 != 0;
        if applied.record.holders.iter().any(outlives) {
            self.happened.note(SURVIVED);
        }
        let newest = &mut state.newest[place];
        *newest = granted(&applied).map(|(_, fence)| fence).fold(*newest, u64::max);
        state.locks[place] = applied.record;
        if applied.changed {
            self.outdate(state, Watched::Lock(lock));
        }
        match applied.outcome {
            Outcome::Granted(grant) => {
                let renewed = what == What::Renew;
                Reply::Granted { lock, fence: grant.fence.get(), renewed }
            }
            Outcome::Gone(_) => Reply::Gone { lock },
            Outcome::Queued { .. } | Outcome::Held => Reply::NotGranted { lock },
            _ => Reply::Nothing,
        }
    }

    fn command(&self, owner: usize, lock: u8, lease: u8, what: What) -> Command {
        let detached = self.is_detached(owner, usize::from(lock));
        let lease = lease_id(lease);
        let steal = match what {
            What::Renew => return Command::Renew { lease, ttl_ms: 1, rebind: None },
            What::Release => return Command::Release { lease },
            What::Acquire => Steal::No,
            What::Steal { current } => {
                Steal::Seen { version: if current { CURRENT } else { OUTDATED } }
            }
        };
        Command::Acquire(Box::new(Acquire {
            lease,
            session: (!detached).then(|| session_id(session_of(owner))),
            party: PartyId::from_u128(0),
            mode: Mode::Exclusive,
            ttl_ms: 1,
            queue: self.queue,
            priority: 0,
            holder: Holder::default(),
            fixed: false,
            steal,
            resize: false,
            not_after_ms: None,
        }))
    }

    fn answer(&self, state: &mut State, index: usize) -> Option<()> {
        let process = &mut state.processes[index];
        let slot = std::mem::take(&mut process.slot);
        let Slot::Answered { age, reply } = slot else { return None };
        let from_send = self.rule == Rule::ObservationFromSend;
        match reply {
            Reply::Seen { what, current } => {
                let kept = process.watch.filter(|watch| watch.what == what);
                let since = if from_send { age } else { 0 };
                let new = Watch { what, age: since };
                process.watch = current.then(|| kept.unwrap_or(new));
            }
            Reply::Dead(session) if session == session_of(index) => {
                self.happened.note(LEARNED);
                return state.start_again(index);
            }
            Reply::Dead(session) => {
                process.knows |= bit(session);
                process.watch = None;
            }
            Reply::Beaten => {
                process.anchor = if self.rule == Rule::DeadlineFromReply { 0 } else { age };
            }
            Reply::Gone { lock } => process.leases[usize::from(lock)] = None,
            Reply::NotGranted { lock } => {
                if let Some(lease) = &mut process.leases[usize::from(lock)] {
                    lease.anchor = age;
                }
            }
            Reply::Granted { lock, fence, renewed } => {
                let lock = usize::from(lock);
                let detached = self.is_detached(index, lock);
                let Some(lease) = &mut process.leases[lock] else { return Some(()) };
                if renewed {
                    lease.anchor = age;
                }
                if self.is_young(if detached { lease.anchor } else { process.anchor }) {
                    lease.held = Some(fence);
                }
            }
            Reply::Nothing => {}
        }
        Some(())
    }

    /// A session or a lock changed: whatever names its version before can no longer be done.
    fn outdate(&self, state: &mut State, changed: Watched) {
        let outdated = |request: &mut Request| match request {
            Request::Kill { session } if Watched::Session(*session) == changed => {
                self.happened.note(SPARED);
                *request = Request::Look(changed);
            }
            Request::Change { lock, what: What::Steal { current }, .. }
                if Watched::Lock(*lock) == changed =>
            {
                *current = false;
            }
            _ => {}
        };
        state.late.iter_mut().for_each(outdated);
        // A heartbeat that was overtaken by another, or by death, does nothing.
        let useless = |request: &Request| match request {
            Request::Look(_) => true,
            Request::Beat { session } => Watched::Session(*session) == changed,
            _ => false,
        };
        state.late.retain(|request| !useless(request));
        for process in &mut state.processes {
            process.watch = process.watch.filter(|watch| watch.what != changed);
            match &mut process.slot {
                Slot::Empty => {}
                Slot::Sent { request, .. } => outdated(request),
                Slot::Answered { reply: Reply::Seen { what, current }, .. } => {
                    *current = *current && *what != changed;
                }
                Slot::Answered { .. } => {}
            }
        }
    }
}

fn send(state: &mut State, index: usize, request: Request) {
    state.processes[index].slot = Slot::Sent { age: 0, request };
}

fn send_change(state: &mut State, index: usize, lock: u8, what: What) -> Option<()> {
    let process = &state.processes[index];
    let lease = process.leases[usize::from(lock)].as_ref()?.id;
    let knows = process.knows;
    send(state, index, Request::Change { lock, lease, what, knows });
    Some(())
}
