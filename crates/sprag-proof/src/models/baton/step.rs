//! What each step of the model does.

use sprag_core::record::{Acquire, Command, Outcome, Steal};
use sprag_core::{Holder, LeaseId, Loss, Mode, PartyId, SessionId};

use super::{
    Action, BROKEN, Baton, Belief, CONFIRMED, Client, ENTERED_EARLY, ENTERED_ROBBED, FORCE_BEFORE,
    Fault, GONE_PAST, HEIR_DIED, HEIR_FASTER, HOLDER_DIED, Heir, Inside, Message, Rule, State,
    TOLD_FIRST, TOLD_INSIDE,
};

/// The store's clock, at every step: what is older moves back instead.
pub(super) const NOW_MS: u64 = 10_000;
/// Less than what the mutant `expires_early` is early by.
pub(super) const TICK_MS: u64 = 20;
/// How many numbers there are for the leases of one client.
pub(super) const LEASES: u8 = 4;

pub(super) fn lease_id(id: u8) -> LeaseId {
    LeaseId::from_u128(u128::from(id))
}

pub(super) fn number(lease: LeaseId) -> u8 {
    u8::try_from(lease.as_u128()).unwrap_or(0)
}

impl Baton {
    const fn ttl_ms(&self) -> u64 {
        self.ttl as u64 * TICK_MS
    }

    pub(super) fn step(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Tick => self.tick(state),
            Action::Ask(index) => self.ask(state, index, Steal::No)?,
            Action::LeaveMark(_) => state.leave_mark(),
            Action::AskByForce(index) => {
                self.ask(state, index, Steal::Force)?;
                state.marked = false;
            }
            Action::Hear(index) => {
                let message = state.messages.remove(index);
                self.hear(state, message);
            }
            Action::Renew(index) => self.renew(state, index)?,
            Action::Settle(index) => {
                let Client::Inside(inside) = state.clients[index] else { return None };
                self.write_for_predecessor(state, inside.predecessor?);
                let Client::Inside(inside) = state.clients[index] else { return None };
                state.clients[index] = Client::Inside(Inside { predecessor: None, ..inside });
            }
            Action::PassOn(index) => {
                let Client::Inside(inside) = state.clients[index] else { return None };
                let Inside { lease, predecessor, heir, .. } = inside;
                state.clients[index] = Client::Leaving { lease, predecessor };
                let baton = heir.map(|heir| Message::Baton { from: lease, heir });
                match baton {
                    Some(baton) if self.keyed => self.hear(state, baton),
                    baton => state.messages.extend(baton),
                }
            }
            Action::Withdraw(index) => {
                let Client::Waiting { lease, .. } = state.clients[index] else { return None };
                state.clients[index] = Client::Leaving { lease, predecessor: None };
            }
            Action::WriteRelease(index) => {
                let Client::Leaving { lease, predecessor } = state.clients[index] else {
                    return None;
                };
                if let Some(predecessor) = predecessor.filter(|_| !self.keyed) {
                    self.write_for_predecessor(state, predecessor);
                }
                state.clients[index] = Client::Idle;
                self.release(state, lease);
            }
            Action::GiveUp(index) => state.clients[index] = Client::Idle,
            Action::Crash(index) => self.crash(state, index)?,
            Action::Evict => {
                let hold = state.record.holders.first()?;
                if state.has_passed_on(hold.lease) {
                    self.happened.note(BROKEN);
                }
                let fence = hold.fence;
                let (by, reason) = (String::new(), String::new());
                self.run(state, &Command::Evict { fence, by, reason });
            }
        }
        Some(())
    }

    fn tick(&self, state: &mut State) {
        let older = |age: &mut u8| *age = (*age + 1).min(self.ttl);
        for client in &mut state.clients {
            match client {
                Client::Waiting { anchor, .. } => older(anchor),
                Client::Inside(inside) => {
                    older(&mut inside.anchor);
                    if inside.belief == Belief::Yes && !self.is_young(inside.anchor) {
                        inside.belief = Belief::NoMore;
                    }
                }
                Client::Idle | Client::Leaving { .. } => {}
            }
        }
        (state.key, state.heir_left) =
            (state.key.saturating_sub(1), state.heir_left.saturating_sub(1));
        // A lease that ran out stays as it is until somebody reaps it.
        let oldest = NOW_MS - self.ttl_ms();
        for hold in &mut state.record.holders {
            hold.renewed_ms = (hold.renewed_ms - TICK_MS).max(oldest);
        }
        for wait in &mut state.record.waiters {
            wait.renewed_ms = (wait.renewed_ms - TICK_MS).max(oldest);
        }
    }

    fn ask(&self, state: &mut State, index: usize, steal: Steal) -> Option<()> {
        let lease = match state.clients[index] {
            Client::Idle => {
                let asks = self.asks[usize::from(self.is_mighty(index))];
                state.new_lease(index, asks)?
            }
            Client::Waiting { lease, .. } => lease,
            Client::Inside(_) | Client::Leaving { .. } => return None,
        };
        let mighty = self.is_mighty(index);
        let outcome = self.run(state, &self.acquire(lease, mighty, steal)).outcome;
        let first = state.record.waiters.first().map(|wait| wait.lease);
        if state.record.heir.is_some_and(|heir| Some(heir.lease) != first) {
            self.happened.note(GONE_PAST);
        }
        self.answered(state, index, lease, &outcome, false);
        Some(())
    }

    fn acquire(&self, lease: u8, mighty: bool, steal: Steal) -> Command {
        Command::Acquire(Box::new(Acquire {
            lease: lease_id(lease),
            session: Some(SessionId::from_u128(u128::from(lease))),
            party: PartyId::from_u128(0),
            mode: Mode::Exclusive,
            ttl_ms: self.ttl_ms(),
            queue: true,
            priority: i8::from(mighty),
            holder: Holder::default(),
            fixed: false,
            steal,
            resize: false,
            not_after_ms: None,
        }))
    }

    /// What the store answers to a question or a renewal that was sent now.
    fn answered(
        &self,
        state: &mut State,
        index: usize,
        lease: u8,
        outcome: &Outcome,
        renewed: bool,
    ) {
        let client = state.clients[index];
        match (outcome, client) {
            (Outcome::Granted(_), Client::Inside(inside)) => {
                let anchor = if renewed { 0 } else { inside.anchor };
                self.enter(state, index, Inside { anchor, ..inside });
            }
            (Outcome::Granted(grant), _) => {
                // It may have been granted long ago; but not before its last question.
                let anchor = match client {
                    Client::Waiting { anchor, .. } if !renewed => anchor,
                    _ => 0,
                };
                // From now on it hears nothing: it knows no heir.
                state.messages.retain(|message| message.lease() != lease);
                let fence = grant.fence.get();
                let belief = Belief::NotYet;
                let inside = Inside { lease, fence, anchor, belief, predecessor: None, heir: None };
                self.enter(state, index, inside);
            }
            (Outcome::Queued { .. }, Client::Idle | Client::Waiting { .. }) => {
                state.clients[index] = Client::Waiting { lease, anchor: 0 };
            }
            (_, Client::Inside(inside)) if inside.belief == Belief::Yes => {
                let belief = Belief::NoMore;
                state.clients[index] = Client::Inside(Inside { belief, ..inside });
            }
            _ => state.clients[index] = Client::Idle,
        }
    }

    /// Enters, if what was granted is not too old.
    fn enter(&self, state: &mut State, index: usize, mut inside: Inside) {
        if inside.belief == Belief::NotYet && self.is_young(inside.anchor) {
            inside.belief = Belief::Yes;
            // Who was robbed after that was written was as good as inside.
            if !state.is_robbed(inside.lease) {
                if inside.fence <= state.entered {
                    state.fault = state.fault.or(Some(Fault::FenceWentBack));
                }
                state.entered = state.entered.max(inside.fence);
            }
        }
        state.clients[index] = Client::Inside(inside);
    }

    fn hear(&self, state: &mut State, message: Message) {
        let named = |client: &Client| client.lease() == Some(message.lease());
        let Some(index) = state.clients.iter().position(named) else { return };
        let belief = Belief::NotYet;
        match (message, state.clients[index]) {
            (Message::Told { lease, fence, heir }, Client::Waiting { anchor, .. }) => {
                self.happened.note(TOLD_FIRST);
                // What was passed on says less.
                state.messages.retain(|message| message.lease() != lease);
                let inside = Inside { lease, fence, anchor, belief, predecessor: None, heir };
                self.enter(state, index, inside);
            }
            (Message::Told { heir, .. }, Client::Inside(inside)) => {
                self.happened.note(TOLD_INSIDE);
                let inside = Inside { predecessor: None, heir, ..inside };
                state.clients[index] = Client::Inside(inside);
            }
            (Message::Baton { from, heir }, Client::Waiting { anchor, .. }) => {
                if !heir.fresh && !self.keyed {
                    self.happened.note(FORCE_BEFORE);
                    if self.rule != Rule::MarkNotAsked {
                        return;
                    }
                }
                let Heir { lease, fence, .. } = heir;
                let forced = matches!(state.record.loss_of(lease_id(lease)), Loss::Stolen { .. });
                if state.record.heir.is_some_and(|heir| heir.lease == lease_id(lease)) {
                    self.happened.note(ENTERED_EARLY);
                }
                let predecessor = Some(from);
                let inside = Inside { lease, fence, anchor, belief, predecessor, heir: None };
                self.enter(state, index, inside);
                if forced && !self.keyed {
                    state.fault = Some(Fault::EnteredRobbed);
                }
            }
            (Message::Baton { .. }, _) | (_, Client::Idle | Client::Leaving { .. }) => {}
        }
    }

    fn renew(&self, state: &mut State, index: usize) -> Option<()> {
        let lease = state.clients[index].lease()?;
        let command =
            Command::Renew { lease: lease_id(lease), ttl_ms: self.ttl_ms(), rebind: None };
        let outcome = self.run(state, &command).outcome;
        if let (Client::Inside(Inside { belief: Belief::NotYet, .. }), Outcome::Granted(_)) =
            (state.clients[index], &outcome)
        {
            self.happened.note(CONFIRMED);
        }
        self.answered(state, index, lease, &outcome, true);
        Some(())
    }

    fn write_for_predecessor(&self, state: &mut State, predecessor: u8) {
        if self.release(state, predecessor) == Outcome::Done {
            self.happened.note(HEIR_FASTER);
        }
    }

    /// Writes a release. Within a process its answer tells whoever was let in by it.
    fn release(&self, state: &mut State, lease: u8) -> Outcome {
        let outcome = self.run(state, &Command::Release { lease: lease_id(lease) }).outcome;
        if self.keyed && matches!(outcome, Outcome::Gone(Loss::Stolen { .. })) {
            for client in &mut state.clients {
                if let Client::Inside(inside) = client
                    && inside.predecessor == Some(lease)
                {
                    inside.belief = Belief::NoMore;
                    self.happened.note(ENTERED_ROBBED);
                }
            }
        }
        outcome
    }

    fn crash(&self, state: &mut State, index: usize) -> Option<()> {
        let lease = state.clients[index].lease()?;
        if state.record.heir.is_some_and(|heir| heir.lease == lease_id(lease)) {
            self.happened.note(HEIR_DIED);
        }
        if state.has_passed_on(lease_id(lease)) {
            self.happened.note(HOLDER_DIED);
        }
        if !self.keyed {
            // A server does not see whether a process is alive.
            state.dead.push(lease);
        }
        state.clients[index] = Client::Idle;
        Some(())
    }

    pub(super) fn owner_of(&self, lease: u8) -> usize {
        usize::from((lease - 1) / LEASES)
    }
}

impl State {
    /// No baton counts any more that was promised before.
    fn leave_mark(&mut self) {
        self.marked = true;
        for client in &mut self.clients {
            if let Client::Inside(Inside { heir: Some(heir), .. }) = client {
                heir.fresh = false;
            }
        }
        for message in &mut self.messages {
            if let Message::Baton { heir, .. } | Message::Told { heir: Some(heir), .. } = message {
                heir.fresh = false;
            }
        }
    }

    /// Whether the holder has sent the baton, or somebody entered by it.
    pub(super) fn has_passed_on(&self, lease: LeaseId) -> bool {
        let holds = self.record.holders.iter().any(|hold| hold.lease == lease);
        let by = |client: &Client| matches!(client, Client::Inside(inside) if inside.predecessor == Some(number(lease)));
        let under_way = |message: &Message| matches!(message, Message::Baton { from, .. } if *from == number(lease));
        holds && (self.clients.iter().any(by) || self.messages.iter().any(under_way))
    }
}

impl Client {
    pub(super) const fn lease(&self) -> Option<u8> {
        match self {
            Self::Idle => None,
            Self::Waiting { lease, .. } | Self::Leaving { lease, .. } => Some(*lease),
            Self::Inside(inside) => Some(inside.lease),
        }
    }
}

impl Message {
    pub(super) const fn lease(&self) -> u8 {
        match self {
            Self::Told { lease, .. } => *lease,
            Self::Baton { heir, .. } => heir.lease,
        }
    }
}
