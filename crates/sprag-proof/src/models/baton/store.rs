//! What the store does in one transaction.

use sprag_core::record::{
    self, Applied, Command, Context, Event, EventKind, Expiry, Hold, Record, Steal, Wait, apply,
};
use sprag_core::{LeaseId, Loss, SessionId};

use super::step::{NOW_MS, TICK_MS, number};
use super::{
    Baton, Client, FORCE_AFTER, Fault, HOLDER_SILENT, Heir, KEY_OUTLASTS, Message, Rule, State,
};
use crate::models::judge::{granted, judge};

impl Baton {
    /// One transaction: runs the production machine, judges what it did, promises the lock on,
    /// and tells those who wait.
    pub(super) fn run(&self, state: &mut State, command: &Command) -> Applied {
        let dead = std::mem::take(&mut state.dead);
        let is_dead =
            |session: SessionId| dead.contains(&number(LeaseId::from_u128(session.as_u128())));
        let context = Context {
            now_ms: NOW_MS,
            expiry: Expiry::Clock,
            fence_floor: 0,
            max_waiters: 8,
            is_dead: &is_dead,
            is_silent: &|_| false,
        };
        let forced = matches!(command, Command::Acquire(acquire) if acquire.steal == Steal::Force);
        let mut before = state.record.clone();
        let heir = before.heir;
        if self.forgets_promise(&before, forced) {
            before.heir = None;
        }
        let mut applied = apply(before.clone(), command, &context);
        let first = lease_of(command).filter(|_| forced).or(before.heir.map(|heir| heir.lease));
        let priority_of = |lease: LeaseId| match self.is_mighty(self.owner_of(number(lease))) {
            _ if first == Some(lease) => i8::MAX,
            mighty => i8::from(mighty),
        };
        let fault = judge(&before, command, &applied, &context, state.newest, priority_of);
        state.fault = state.fault.or(fault.map(Fault::Machine));
        state.newest = granted(&applied).map(|(_, fence)| fence).fold(state.newest, u64::max);
        if forced && self.rule == Rule::ForceSparesHeir {
            let waits = |lease| applied.record.waiters.iter().any(|wait| wait.lease == lease);
            applied.record.heir = heir.filter(|heir| waits(heir.lease));
        }
        state.dead = dead;
        self.note_events(state, &applied.events, forced);
        let granted = granted(&applied).next();
        if granted.is_some() && self.rule != Rule::NoPromise {
            // Also to those of a lower priority, which the store is careful not to do.
            applied.record.promise(0, i8::MIN);
        }
        if applied.changed && self.rule != Rule::MarkRaisedEarly {
            // A transaction that has not seen this is not written: it begins anew.
            state.marked = false;
        }
        state.record = applied.record.clone();
        if self.keyed {
            self.keep_key(state, command, heir);
        }
        let told = granted.filter(|(lease, _)| Some(*lease) != lease_of(command));
        if let Some((lease, fence)) = told {
            let heir = self.heir_of(state).filter(|_| state.record.holders[0].lease == lease);
            state.messages.push(Message::Told { lease: number(lease), fence, heir });
        }
        applied
    }

    /// What becomes of the plain key: it lasts as long as the holder or its heir may believe in a
    /// lease. That of the heir counts from its last question or sign of life.
    fn keep_key(&self, state: &mut State, command: &Command, heir_before: Option<record::Heir>) {
        let heir = state.record.heir;
        let asks = match command {
            Command::Acquire(_) => self.rule != Rule::QuestionNotCounted,
            Command::Renew { .. } => true,
            _ => false,
        };
        state.heir_left = match heir {
            None => 0,
            Some(heir) if heir_before != Some(heir) => self.ttl,
            Some(heir) if asks && lease_of(command) == Some(heir.lease) => self.ttl,
            Some(_) => state.heir_left,
        };
        let left = |hold: &Hold| u8::try_from((hold.expires_ms() - NOW_MS) / TICK_MS).unwrap_or(0);
        let held = state.record.holders.iter().map(left).max();
        state.key = match held {
            Some(left) if self.rule != Rule::KeyEndsWithHolder => {
                let inside = |client: &Client| matches!(client, Client::Inside(inside) if inside.predecessor.is_some());
                if left < state.heir_left && state.clients.iter().any(inside) {
                    self.happened.note(KEY_OUTLASTS);
                }
                left.max(state.heir_left)
            }
            held => held.unwrap_or(0),
        };
    }

    /// Whether a wrong rule treats the heir as any other waiter.
    fn forgets_promise(&self, record: &Record, forced: bool) -> bool {
        let is_heir = |wait: &&Wait| record.heir.is_some_and(|heir| heir.lease == wait.lease);
        let over = |wait: &Wait| wait.expires_ms() <= NOW_MS;
        match self.rule {
            Rule::ForceSparesHeir => forced,
            Rule::HeirExpires => record.waiters.iter().find(is_heir).is_some_and(over),
            _ => false,
        }
    }

    fn heir_of(&self, state: &State) -> Option<Heir> {
        if self.rule == Rule::NoPromise {
            let first = state.record.waiters.first()?;
            let fence = state.record.fence.get() + 1;
            return Some(Heir { lease: number(first.lease), fence, fresh: true });
        }
        let heir = state.record.heir?;
        Some(Heir { lease: number(heir.lease), fence: heir.fence.get(), fresh: true })
    }

    fn note_events(&self, state: &State, events: &[Event], forced: bool) {
        for event in events {
            let lease = number(event.lease);
            let inside = |client: &Client| {
                matches!(client, Client::Inside(inside)
                    if inside.lease == lease && inside.predecessor.is_some())
            };
            match event.kind {
                EventKind::Gone(Loss::Expired) if state.has_passed_on(event.lease) => {
                    self.happened.note(HOLDER_SILENT);
                }
                EventKind::Gone(Loss::Stolen { .. })
                    if forced && state.clients.iter().any(inside) =>
                {
                    self.happened.note(FORCE_AFTER);
                }
                _ => {}
            }
        }
    }
}

fn lease_of(command: &Command) -> Option<LeaseId> {
    match command {
        Command::Acquire(acquire) => Some(acquire.lease),
        Command::Renew { lease, .. } | Command::Release { lease } => Some(*lease),
        _ => None,
    }
}
