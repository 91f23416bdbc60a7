//! What each step of the model does.

use sprag_core::record::{
    Acquire, Applied, Command, Context, EventKind, Expiry, Hold, Outcome, Record, Steal, apply,
};
use sprag_core::{Fence, Holder, LeaseId, Loss, Mode, PartyId, SessionId};

use super::{
    Action, BROKEN, CONFIRMED, Client, DOWNGRADED, EXPIRED, HANDED_OVER, Held, LATE, Lease,
    OVERTAKEN, Queue, RENEWED, REPEATED, REPLAYED, REPLY_LOST, Reply, Request, Rule, SESSION_DIED,
    SHARED, Slot, State, TRIED, UPGRADED, WAITER_DIED, WITHDRAWN, What,
};
use crate::models::judge::{granted, judge};

/// The store's clock, at every step: what is older moves back instead.
pub(super) const NOW_MS: u64 = 10_000;
/// Less than what the mutant `expires_early` is early by.
pub(super) const TICK_MS: u64 = 20;

pub(super) fn lease_id(id: u8) -> LeaseId {
    LeaseId::from_u128(u128::from(id))
}

impl Queue {
    pub(super) const fn ttl_ms(&self) -> u64 {
        self.ttl as u64 * TICK_MS
    }

    pub(super) fn step(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Tick => self.tick(state),
            Action::Acquire(index, mode) => self.send_acquire(state, index, mode)?,
            Action::Renew(index) => send(&mut state.clients[index], What::Renew)?,
            Action::RenewShort(index) => send(&mut state.clients[index], What::RenewShort)?,
            Action::Convert(index, to) => {
                let client = &mut state.clients[index];
                let believed = client.lease.as_ref()?.held?.fence;
                send(client, What::Convert(to, believed))?;
                let lease = client.lease.as_mut()?;
                lease.wish = to;
                if self.rule != Rule::DowngradeAfterReply {
                    // From here on others may come in beside it.
                    let held = lease.held.as_mut()?;
                    held.mode = weaker(held.mode, to);
                }
            }
            Action::Withdraw(index) => {
                send(&mut state.clients[index], What::Withdraw)?;
                state.clients[index].lease.as_mut()?.wish = Mode::Upgradable;
            }
            Action::Release(index) => {
                send(&mut state.clients[index], What::Release)?;
                state.clients[index].lease = None;
            }
            Action::Serve(index) => self.serve(state, index)?,
            Action::ServeAndRepeat(index) => {
                let Slot::Sent { request, .. } = &state.clients[index].slot else { return None };
                let request = *request;
                self.serve(state, index)?;
                state.late.push(request);
            }
            Action::Answer(index) => self.answer(&mut state.clients[index])?,
            Action::GiveUp(index) => {
                let slot = std::mem::take(&mut state.clients[index].slot);
                if let Slot::Answered { reply: Reply::Granted(_), .. } = slot {
                    self.happened.note(REPLY_LOST);
                }
            }
            Action::LeaveBehind(index) => {
                let slot = std::mem::take(&mut state.clients[index].slot);
                let Slot::Sent { request, .. } = slot else { return None };
                state.late.push(request);
            }
            Action::ServeLate(index) => {
                let request = state.late.remove(index);
                if self.apply(state, request)?.changed {
                    self.happened.note(LATE);
                }
            }
            Action::Evict => {
                let fence = state.record.holders.first()?.fence.get();
                state.late.push(Request { what: What::Evict(fence), lease: 0 });
            }
            Action::Crash(index) => {
                let lease = state.clients[index].lease.take()?;
                if self.sessions {
                    state.dead.push(lease.id);
                }
            }
            Action::Reap => {
                if !self.run(state, &Command::Reap).changed {
                    return None;
                }
            }
        }
        Some(())
    }

    fn tick(&self, state: &mut State) {
        let older = |age: &mut u8| *age = (*age + 1).min(self.ttl);
        for client in &mut state.clients {
            if let Slot::Sent { age, .. } | Slot::Answered { age, .. } = &mut client.slot {
                older(age);
            }
            if let Some(lease) = &mut client.lease {
                older(&mut lease.anchor);
                if lease.held.is_some() && !self.is_young(lease.anchor) {
                    // Lost is for good, whatever a late answer says.
                    client.lease = None;
                }
            }
        }
        // A lease that ran out stays as it is until somebody reaps it.
        let oldest = NOW_MS - self.ttl_ms();
        for hold in &mut state.record.holders {
            hold.renewed_ms = (hold.renewed_ms - TICK_MS).max(NOW_MS - hold.ttl_ms);
        }
        for wait in &mut state.record.waiters {
            wait.renewed_ms = (wait.renewed_ms - TICK_MS).max(oldest);
        }
    }

    fn send_acquire(&self, state: &mut State, index: usize, mode: Mode) -> Option<()> {
        if state.clients[index].lease.is_none() {
            let id = state.unused_lease(index, self.leases)?;
            state.clients[index].lease = Some(Lease { id, anchor: 0, wish: mode, held: None });
        }
        send(&mut state.clients[index], What::Acquire(mode))
    }

    fn serve(&self, state: &mut State, index: usize) -> Option<()> {
        let slot = std::mem::take(&mut state.clients[index].slot);
        let Slot::Sent { age, request } = slot else { return None };
        let applied = self.apply(state, request)?;
        let reply = match applied.outcome {
            Outcome::Granted(grant) => {
                Reply::Granted(Held { fence: grant.fence.get(), mode: grant.mode })
            }
            Outcome::Queued { .. } | Outcome::Held => Reply::NotGranted,
            Outcome::Gone(_) => Reply::Gone,
            _ => Reply::Other,
        };
        if self.in_order {
            // A following request was done: what came before it is not done any more.
            let overdue = |late: &Request| {
                late.lease == request.lease && matches!(late.what, What::Convert(..))
            };
            state.late.retain(|late| !overdue(late));
        }
        if state.clients[index].lease.is_some() {
            state.clients[index].slot = Slot::Answered { age, what: request.what, reply };
        }
        Some(())
    }

    fn apply(&self, state: &mut State, request: Request) -> Option<Applied> {
        let command = self.command(request)?;
        let before = state.record.holders.len();
        let ends = |record: &Record| {
            let hold = record.holders.iter().find(|hold| hold.lease == lease_id(request.lease));
            hold.map(Hold::expires_ms)
        };
        let end = ends(&state.record);
        let was_gone = state.record.gone.iter().any(|gone| gone.lease == lease_id(request.lease));
        let applied = self.run(state, &command);
        let repeat =
            matches!((&command, &applied.outcome), (Command::Acquire(_), Outcome::Granted(_)));
        if repeat && !applied.changed {
            self.happened.note(REPEATED);
        }
        let less = NOW_MS + self.ttl_ms() - TICK_MS;
        if request.what == What::RenewShort && end.is_some_and(|end| end > less) {
            self.happened.note(OVERTAKEN);
        }
        if was_gone && matches!(command, Command::Acquire(_)) {
            self.happened.note(REPLAYED);
        }
        match &applied.outcome {
            Outcome::Queued { .. } if matches!(command, Command::Convert { .. }) => {
                self.happened.note(UPGRADED);
            }
            Outcome::Granted(_) if matches!(request.what, What::Convert(Mode::Shared, _)) => {
                self.happened.note(DOWNGRADED);
            }
            Outcome::Held => self.happened.note(TRIED),
            Outcome::Done if command == (Command::Withdraw { lease: lease_id(request.lease) }) => {
                self.happened.note(WITHDRAWN);
            }
            _ => {}
        }
        if before < 2 && applied.record.holders.len() >= 2 {
            self.happened.note(SHARED);
        }
        Some(applied)
    }

    /// Runs the production machine, and judges what it did.
    fn run(&self, state: &mut State, command: &Command) -> Applied {
        let dead = std::mem::take(&mut state.dead);
        let is_dead =
            |session: SessionId| dead.iter().any(|lease| u128::from(*lease) == session.as_u128());
        let context = Context {
            now_ms: NOW_MS,
            expiry: Expiry::Clock,
            fence_floor: 0,
            max_waiters: 8,
            is_dead: &is_dead,
            is_silent: &|_| false,
        };
        let applied = apply(state.record.clone(), command, &context);
        let priority_of = |lease: LeaseId| self.roles[self.owner_of(lease)].priority;
        state.fault = judge(&state.record, command, &applied, &context, state.newest, priority_of);
        for event in &applied.events {
            let waited = state.record.waiters.iter().any(|wait| wait.lease == event.lease);
            match &event.kind {
                EventKind::Granted if waited => self.happened.note(HANDED_OVER),
                EventKind::Gone(Loss::Expired) if waited => self.happened.note(WAITER_DIED),
                EventKind::Gone(Loss::Expired) => self.happened.note(EXPIRED),
                EventKind::Gone(Loss::Broken { .. }) => self.happened.note(BROKEN),
                EventKind::Gone(Loss::SessionDied) => self.happened.note(SESSION_DIED),
                _ => {}
            }
        }
        state.newest = granted(&applied).map(|(_, fence)| fence).fold(state.newest, u64::max);
        state.record = applied.record.clone();
        state.dead = dead;
        applied
    }

    pub(super) fn owner_of(&self, lease: LeaseId) -> usize {
        let id = usize::try_from(lease.as_u128()).unwrap_or(usize::MAX);
        (id - 1) / usize::from(self.leases)
    }

    fn command(&self, request: Request) -> Option<Command> {
        let lease = lease_id(request.lease);
        Some(match request.what {
            What::Renew => Command::Renew { lease, ttl_ms: self.ttl_ms(), rebind: None },
            What::RenewShort => {
                Command::Renew { lease, ttl_ms: self.ttl_ms() - TICK_MS, rebind: None }
            }
            What::Release => Command::Release { lease },
            What::Withdraw => Command::Withdraw { lease },
            What::Convert(to, fence) => {
                Command::Convert { lease, fence: Fence::new(fence)?, to, queue: true }
            }
            What::Evict(fence) => Command::Evict {
                fence: Fence::new(fence)?,
                by: String::new(),
                reason: String::new(),
            },
            What::Acquire(mode) => {
                let role = &self.roles[self.owner_of(lease)];
                Command::Acquire(Box::new(Acquire {
                    lease,
                    session: Some(SessionId::from_u128(lease.as_u128())),
                    party: PartyId::from_u128(0),
                    mode,
                    ttl_ms: self.ttl_ms(),
                    queue: role.queue,
                    priority: role.priority,
                    holder: Holder::default(),
                    fixed: false,
                    steal: Steal::No,
                    resize: false,
                    not_after_ms: None,
                }))
            }
        })
    }

    fn answer(&self, client: &mut Client) -> Option<()> {
        let slot = std::mem::take(&mut client.slot);
        let Slot::Answered { age, what, reply } = slot else { return None };
        let lease = client.lease.as_mut()?;
        match (what, reply) {
            (_, Reply::Gone) => client.lease = None,
            (What::Acquire(_), Reply::NotGranted) if !self.roles_queue(lease) => {
                client.lease = None;
            }
            (What::Acquire(_) | What::Renew | What::RenewShort, Reply::NotGranted) => {
                lease.anchor = age;
            }
            (_, Reply::Granted(grant)) => {
                let first = lease.held.is_none();
                match (what, self.rule) {
                    (What::Convert(..), _) => {}
                    // As good as a longer one that was sent a tick before.
                    (What::RenewShort, _) => lease.anchor = lease.anchor.min(age + 1),
                    (_, Rule::DeadlineFromReply) => lease.anchor = 0,
                    (What::Renew, _) | (_, Rule::GrantCountsFromRepeat) => lease.anchor = age,
                    _ => {}
                }
                if what == What::Renew {
                    self.happened.note(if first { CONFIRMED } else { RENEWED });
                }
                if self.is_young(lease.anchor) {
                    // What was asked for last may still be done, so no more than that.
                    let mode = weaker(grant.mode, lease.wish);
                    lease.held = Some(Held { mode, ..grant });
                }
            }
            _ => {}
        }
        Some(())
    }

    fn roles_queue(&self, lease: &Lease) -> bool {
        self.roles[self.owner_of(lease_id(lease.id))].queue
    }
}

fn send(client: &mut Client, what: What) -> Option<()> {
    let lease = client.lease.as_ref()?.id;
    client.slot = Slot::Sent { age: 0, request: Request { what, lease } };
    Some(())
}

/// The weaker of two modes; permits are not converted.
pub(super) fn weaker(one: Mode, other: Mode) -> Mode {
    [Mode::Shared, Mode::Upgradable]
        .into_iter()
        .find(|mode| [one, other].contains(mode))
        .unwrap_or(one)
}
