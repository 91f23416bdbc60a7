//! What each step of the model does.

use sprag_core::record::{Acquire, Command, Context, EventKind, Expiry, Record, Steal, apply};
use sprag_core::{Holder, LeaseId, Loss, Mode, PartyId};

use super::{
    Action, Answer, CONFIRMED, CONFLICT, Change, Client, FOUND, Grant, HANDED_OVER, LATE, Lease,
    Mine, Observed, REFUSED, REPLY_LOST, Request, Rule, STOLEN, Slot, State, What,
};
use crate::models::judge::{Fault, granted, judge};
use crate::models::normal::{CURRENT, OUTDATED, rank, rank_fences, renumber};

pub(super) fn lease_id(id: u8) -> LeaseId {
    LeaseId::from_u128(u128::from(id))
}

impl Observed {
    pub(super) fn step(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Tick => (0..state.clients.len()).for_each(|index| self.tick(state, index)),
            Action::TickOf(index) => {
                state.clients[index].ahead += 1;
                self.tick(state, index);
            }
            Action::Load(index) => send(&mut state.clients[index], Request::Load),
            Action::Acquire(index) => self.send_acquire(state, index, false)?,
            Action::Steal(index) => self.send_acquire(state, index, true)?,
            Action::Renew(index) => send_change(&mut state.clients[index], What::Renew)?,
            Action::Release(index) => {
                send_change(&mut state.clients[index], What::Release)?;
                // From here on the lock may be somebody else's.
                state.clients[index].lease = None;
            }
            Action::Serve(index) => self.serve(state, index)?,
            Action::Answer(index) => self.answer(&mut state.clients[index])?,
            Action::GiveUp(index) => {
                let slot = std::mem::take(&mut state.clients[index].slot);
                if let Slot::Answered { answer, .. } = slot
                    && matches!((answer.done, answer.mine), (Some(_), Mine::Granted(_)))
                {
                    self.happened.note(REPLY_LOST);
                }
            }
            Action::LeaveBehind(index) => {
                let slot = std::mem::take(&mut state.clients[index].slot);
                let Slot::Sent { request: Request::Change(change), .. } = slot else { return None };
                state.late.push(change);
            }
            Action::ServeLate(index) => {
                let change = state.late.remove(index);
                self.change(state, &change);
                self.happened.note(LATE);
            }
            Action::Crash(index) => {
                let client = &mut state.clients[index];
                (client.lease, client.seen) = (None, None);
            }
            Action::Write(index) => {
                let grant = state.clients[index].lease.as_ref()?.held?;
                self.take_write(state, grant);
            }
            Action::SendWrite(index) => state.write = state.clients[index].lease.as_ref()?.held,
            Action::TakeWrite => {
                let grant = state.write.take()?;
                self.take_write(state, grant);
            }
        }
        Some(())
    }

    fn tick(&self, state: &mut State, index: usize) {
        let older = |age: &mut u8| *age = (*age + 1).min(self.ttl);
        let client = &mut state.clients[index];
        if let Slot::Sent { age, .. } | Slot::Answered { age, .. } = &mut client.slot {
            older(age);
        }
        let held = client.lease.as_ref().is_some_and(|lease| lease.held.is_some());
        match &mut client.seen {
            // A holder does not watch itself.
            Some(age) if !held => older(age),
            _ => {}
        }
        if let Some(lease) = &mut client.lease {
            older(&mut lease.anchor);
            if held && !self.is_young(lease.anchor) {
                // Lost is for good, whatever a late answer says.
                client.lease = None;
            }
        }
    }

    fn send_acquire(&self, state: &mut State, index: usize, steal: bool) -> Option<()> {
        let fresh = state.unused_lease(index, self.leases);
        let client = &mut state.clients[index];
        if client.lease.is_none() {
            client.lease = Some(Lease { id: fresh?, anchor: 0, steal: None, held: None });
        }
        let lease = client.lease.as_mut()?;
        if steal || (self.rule == Rule::StealAgainstAnyVersion && lease.steal.is_some()) {
            lease.steal = Some(true);
        }
        let what = What::Acquire { steal: lease.steal };
        send_change(client, what)
    }

    fn serve(&self, state: &mut State, index: usize) -> Option<()> {
        let slot = std::mem::take(&mut state.clients[index].slot);
        let Slot::Sent { request, age } = slot else { return None };
        let done = match &request {
            Request::Load => None,
            Request::Change(change) => {
                self.change(state, change);
                Some(change.what)
            }
        };
        let lease = state.clients[index].lease.as_ref();
        let mine = lease.map_or(Mine::Absent, |lease| state.mine(lease.id));
        let answer = Answer { current: true, done, mine };
        state.clients[index].slot = Slot::Answered { answer, age };
        Some(())
    }

    /// Swaps: a change that is still here names the current version.
    fn change(&self, state: &mut State, change: &Change) {
        let command = self.command(change);
        // The store has no clock: if time had any say here, it would have to be 0 for ever.
        let context = Context {
            now_ms: 0,
            expiry: Expiry::Observed,
            fence_floor: 0,
            max_waiters: 8,
            is_dead: &|_| false,
            is_silent: &|_| false,
        };
        let applied = apply(state.record.clone(), &command, &context);
        let fence = state.newest.fence;
        state.fault = judge(&state.record, &command, &applied, &context, fence, |_| 0);
        if !applied.changed {
            return;
        }
        for event in &applied.events {
            match &event.kind {
                EventKind::Gone(Loss::Stolen { .. }) => self.happened.note(STOLEN),
                EventKind::Granted if matches!(command, Command::Release { .. }) => {
                    self.happened.note(HANDED_OVER);
                }
                _ => {}
            }
        }
        for (_, fence) in granted(&applied) {
            state.newest = Grant { fence, number: state.newest.number + 1 };
            state.holder = state.newest.number;
        }
        state.record = applied.record;
        self.outdate_versions(state);
    }

    fn command(&self, change: &Change) -> Command {
        let lease = lease_id(change.lease);
        match change.what {
            What::Renew => Command::Renew { lease, ttl_ms: 1, rebind: None },
            What::Release => Command::Release { lease },
            What::Acquire { steal } => Command::Acquire(Box::new(Acquire {
                lease,
                session: None,
                party: PartyId::from_u128(0),
                mode: Mode::Exclusive,
                ttl_ms: 1,
                queue: self.queue,
                priority: 0,
                holder: Holder::default(),
                fixed: false,
                steal: steal.map_or(Steal::No, |current| Steal::Seen {
                    version: if current { CURRENT } else { OUTDATED },
                }),
                resize: false,
                not_after_ms: None,
            })),
        }
    }

    fn answer(&self, client: &mut Client) -> Option<()> {
        let slot = std::mem::take(&mut client.slot);
        let Slot::Answered { answer, age } = slot else { return None };
        if !answer.current {
            client.seen = None;
        } else if client.seen.is_none() {
            client.seen = Some(if self.rule == Rule::ObservationFromSend { age } else { 0 });
        }
        let Some(lease) = &mut client.lease else { return Some(()) };
        match answer.mine {
            Mine::Gone => client.lease = None,
            Mine::Absent | Mine::Waiting => {
                // When this was sent the lease was not granted yet, so it is good from then on.
                lease.anchor = age;
            }
            Mine::Granted(grant) => {
                if answer.done == Some(What::Renew) {
                    lease.anchor = age;
                }
                if self.rule == Rule::DeadlineFromReply && answer.done.is_some() {
                    lease.anchor = 0;
                }
                if self.is_young(lease.anchor) {
                    match answer.done {
                        _ if lease.held.is_some() => {}
                        None => self.happened.note(FOUND),
                        Some(What::Renew) => self.happened.note(CONFIRMED),
                        Some(_) => {}
                    }
                    lease.held = Some(grant);
                    lease.steal = None;
                    client.seen = client.seen.map(|_| 0);
                }
            }
        }
        Some(())
    }

    fn take_write(&self, state: &mut State, write: Grant) {
        if write.fence < state.resource.fence {
            self.happened.note(REFUSED);
            return;
        }
        if write.number < state.resource.number {
            state.fault = Some(Fault::ResourceWentBack);
        }
        state.resource = write;
    }

    /// The record changed: whatever names the version before it can no longer be done.
    fn outdate_versions(&self, state: &mut State) {
        state.late.clear();
        for client in &mut state.clients {
            client.seen = None;
            if let Some(steal) = client.lease.as_mut().and_then(|lease| lease.steal.as_mut()) {
                *steal = false;
            }
            match &mut client.slot {
                Slot::Empty => {}
                Slot::Sent { request, .. } => {
                    if *request != Request::Load {
                        self.happened.note(CONFLICT);
                    }
                    *request = Request::Load;
                }
                Slot::Answered { answer, .. } => answer.current = false,
            }
        }
    }
}

fn send(client: &mut Client, request: Request) {
    client.slot = Slot::Sent { request, age: 0 };
}

fn send_change(client: &mut Client, what: What) -> Option<()> {
    let lease = client.lease.as_ref()?.id;
    send(client, Request::Change(Change { lease, what }));
    Some(())
}

impl State {
    fn mine(&self, lease: u8) -> Mine {
        let lease = lease_id(lease);
        let Record { holders, waiters, gone, .. } = &self.record;
        if let Some(hold) = holders.iter().find(|hold| hold.lease == lease) {
            Mine::Granted(Grant { fence: hold.fence.get(), number: self.holder })
        } else if waiters.iter().any(|wait| wait.lease == lease) {
            Mine::Waiting
        } else if gone.iter().any(|gone| gone.lease == lease) {
            Mine::Gone
        } else {
            Mine::Absent
        }
    }

    /// Whether a client or a request may still name the lease.
    fn is_asked_for(&self, lease: LeaseId) -> bool {
        let named = |id: u8| lease_id(id) == lease;
        let in_slot = |slot: &Slot| match slot {
            Slot::Sent { request: Request::Change(change), .. } => named(change.lease),
            _ => false,
        };
        self.late.iter().any(|change| named(change.lease))
            || self.clients.iter().any(|client| {
                client.lease.as_ref().is_some_and(|lease| named(lease.id)) || in_slot(&client.slot)
            })
    }

    fn unused_lease(&self, index: usize, leases: u8) -> Option<u8> {
        let first = u8::try_from(index).ok()? * leases + 1;
        let Record { holders, waiters, gone, .. } = &self.record;
        (first..first + leases).find(|id| {
            let lease = lease_id(*id);
            !self.is_asked_for(lease)
                && holders.iter().all(|hold| hold.lease != lease)
                && waiters.iter().all(|wait| wait.lease != lease)
                && gone.iter().all(|gone| gone.lease != lease)
        })
    }

    pub(super) fn normalise(&mut self, model: &Observed) {
        self.renumber_leases(model.leases);
        let mut record = std::mem::take(&mut self.record);
        renumber(&mut record, |lease| self.is_asked_for(lease));
        if record.holders.is_empty() {
            self.holder = 0;
        }
        let slowest = self.clients.iter().map(|client| client.ahead).min().unwrap_or(0);
        let mut grants = vec![&mut self.newest, &mut self.resource];
        grants.extend(self.write.as_mut());
        for client in &mut self.clients {
            client.ahead -= slowest;
            client.slot.forget(model.rule, client.lease.is_none());
            if let Slot::Answered { answer: Answer { mine: Mine::Granted(grant), .. }, .. } =
                &mut client.slot
            {
                grants.push(grant);
            }
            grants.extend(client.lease.as_mut().and_then(|lease| lease.held.as_mut()));
        }
        let (fences, mut numbers): (Vec<_>, Vec<_>) =
            grants.into_iter().map(|grant| (&mut grant.fence, &mut grant.number)).unzip();
        rank_fences(&mut record, fences);
        numbers.push(&mut self.holder);
        rank(&mut numbers);
        self.record = record;
    }

    /// Gives each client's leases the ids it would have given them in the order in which they
    /// are looked at here: its own, then those on their way, then those in the record.
    fn renumber_leases(&mut self, leases: u8) {
        let mut next = [1, 1 + leases, 1 + 2 * leases];
        let mut new_ids = [0_u8; 16];
        let mut renamed = |id: u8| {
            let place = &mut new_ids[usize::from(id)];
            if *place == 0 {
                let next = &mut next[usize::from((id - 1) / leases)];
                *place = *next;
                *next += 1;
            }
            *place
        };
        for client in &mut self.clients {
            if let Some(lease) = &mut client.lease {
                lease.id = renamed(lease.id);
            }
            if let Slot::Sent { request: Request::Change(change), .. } = &mut client.slot {
                change.lease = renamed(change.lease);
            }
        }
        for change in &mut self.late {
            change.lease = renamed(change.lease);
        }
        let mut rename = |lease: &mut LeaseId| {
            *lease = lease_id(renamed(u8::try_from(lease.as_u128()).unwrap_or(0)));
        };
        self.record.holders.iter_mut().for_each(|hold| rename(&mut hold.lease));
        self.record.waiters.iter_mut().for_each(|wait| rename(&mut wait.lease));
        self.record.gone.iter_mut().for_each(|gone| rename(&mut gone.lease));
    }
}

impl Slot {
    /// Without a lease, all that an answer brings is the version. Its age is looked at only if
    /// it may move the deadline.
    fn forget(&mut self, rule: Rule, leaseless: bool) {
        if let (Self::Answered { answer, .. }, true) = (&mut *self, leaseless) {
            (answer.done, answer.mine) = (None, Mine::Absent);
        }
        let moves_deadline = match &*self {
            Self::Answered { answer: Answer { done, mine, .. }, .. } => match mine {
                Mine::Granted(_) => *done == Some(What::Renew),
                Mine::Gone => false,
                Mine::Absent | Mine::Waiting => !leaseless,
            },
            _ => !leaseless,
        };
        if let Self::Sent { age, .. } | Self::Answered { age, .. } = self
            && !moves_deadline
            && rule != Rule::ObservationFromSend
        {
            *age = 0;
        }
    }
}
