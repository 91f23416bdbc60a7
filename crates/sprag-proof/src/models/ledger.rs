//! A lock on a reference that is compared and swapped, whose holders give signs of life on a
//! reference of their session. The protocol of `sprag-ledger`, not the machine.
//!
//! A client reads, and swaps by what it has read: several references at once, all or none. Each
//! reference that a swap names must be where the client saw it. A swap may be lost, its answer may
//! be lost, and it may be done long after its sender gave up, if its references are still there.
//!
//! A holder believes for a TTL from the *send* of a sign of life that came through, once a later
//! read has shown that the lock is still its own. A thief takes the lock when it has seen the same
//! sign of life for a TTL, counted from the *return* of its first read, and moves the reference of
//! the other's session in the same swap: a sign of life and a takeover cannot both happen.
//!
//! Whoever releases hands over to who waits. That one has given no sign of life since, so it gives
//! one before it believes.

use std::sync::Arc;

use stateright::{Model, Property};

use super::explore::Happened;

/// How many clients there are: who is not the one is the other.
const CLIENTS: usize = 2;

/// The bounds of the model, and its rules.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// How long a lease lasts, in ticks.
    pub ttl: u8,
    /// Whether clients wait for the lock, to be handed it.
    pub queue: bool,
    /// How many swaps may be under way although their sender gave up.
    pub late: usize,
    /// What clients do.
    pub rule: Rule,
    /// What happened so far.
    pub happened: Arc<Happened<7>>,
}

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// What is built.
    Right,
    /// Wrong: a thief does not move the reference of the other's session.
    SilentTakeover,
    /// Wrong: silence is counted from the send of the read that first saw it.
    SilenceFromSend,
    /// Wrong: the validity counts from the answer.
    DeadlineFromReply,
    /// Wrong: after a sign of life was refused, the next one is believed without a look at the lock.
    SignWithoutLook,
    /// Wrong: who is handed the lock believes without a sign of life.
    EntersSilently,
}

const TAKEN_OVER: &str = "a lock was taken over";
const HANDED_OVER: &str = "a lock was handed over";
const SAVED: &str = "a sign of life came before the thief's swap";
const LEARNT: &str = "a sign of life was refused after a takeover";
const LATE: &str = "a swap was done after its sender gave up";
const UNHEARD: &str = "a grant's answer was lost and found by reading";
const RENEWED: &str = "a holder went on";

impl Ledger {
    /// Everything switched on.
    pub fn new() -> Self {
        let names = [TAKEN_OVER, HANDED_OVER, SAVED, LEARNT, LATE, UNHEARD, RENEWED];
        Self {
            ttl: 2,
            queue: true,
            late: 1,
            rule: Rule::Right,
            happened: Arc::new(Happened::new(names)),
        }
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

/// Everything there is at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    holder: Option<usize>,
    /// Who waits for it.
    waiter: Option<usize>,
    clients: [Client; CLIENTS],
    /// Swaps under way whose sender gave up.
    late: Vec<(usize, Swap)>,
}

/// A client. What it knows of each reference is whether it is still so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    slot: Slot,
    /// Who it saw holding and waiting, if that is known.
    lock: Option<(Option<usize>, Option<usize>)>,
    /// Whether the lock is as it was seen.
    lock_current: bool,
    /// Whether its own session's reference is where it thinks.
    own_current: bool,
    /// Whether the other's session is as it was seen.
    other_current: bool,
    /// For how long it has seen the other's last sign of life.
    silence: Option<u8>,
    /// Whether the other has given another one since.
    sign_outdated: bool,
    /// How old its last sign of life is that came through, from its send.
    sign: Option<u8>,
    /// Whether it has given the lock up: it never enters again by the same lease.
    ended: bool,
    /// How old what it believes by is; it believes while that is less than the TTL.
    believes: Option<u8>,
}

/// A request of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Slot {
    #[default]
    Empty,
    Sent(Request, u8),
    Answered(Answer, u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Request {
    Read,
    Swap(Swap),
}

/// A swap, and which of its references are still where they have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Swap {
    what: What,
    lock: bool,
    own: bool,
    other: bool,
}

impl Swap {
    fn signs(&self) -> bool {
        matches!(self.what, What::Acquire | What::Sign | What::TakeOver)
    }

    fn moves_other(&self, rule: Rule) -> bool {
        self.what == What::TakeOver && rule != Rule::SilentTakeover
    }

    /// Whether every reference that it names is where it has to be.
    fn can_be_done(&self, rule: Rule) -> bool {
        let lock = self.what == What::Sign || self.lock;
        lock && (!self.signs() || self.own) && (!self.moves_other(rule) || self.other)
    }

    /// What it does not name does not matter.
    fn forget(&mut self) {
        self.lock |= self.what == What::Sign;
        self.own |= !self.signs();
        self.other |= self.what != What::TakeOver;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    /// Take the free lock, with a sign of life.
    Acquire,
    /// Wait for it.
    Queue,
    /// A sign of life.
    Sign,
    /// Take the lock from the other, with a sign of life, and move the other's session.
    TakeOver,
    /// Give it to who waits, or to nobody.
    Release,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Answer {
    /// What was read.
    Read(Sight),
    Swapped {
        what: What,
        done: bool,
    },
}

/// What was read, and whether it is still so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sight {
    holder: Option<usize>,
    waiter: Option<usize>,
    lock: bool,
    own: bool,
    other: bool,
    /// Whether the other's sign of life is the one that was heard of last.
    same: bool,
    /// Whether it has given another one since this was read.
    newer: bool,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Every clock moves on.
    Tick,
    /// The client reads all references.
    Read(usize),
    /// The client swaps: what it can, by what it has read.
    Acquire(usize),
    /// See [`Action::Acquire`].
    Queue(usize),
    /// See [`Action::Acquire`].
    Sign(usize),
    /// See [`Action::Acquire`].
    TakeOver(usize),
    /// See [`Action::Acquire`].
    Release(usize),
    /// The request is done; the answer is under way.
    Serve(usize),
    /// The answer arrives.
    Hear(usize),
    /// The client gives up; the request or its answer is lost.
    Lose(usize),
    /// The client gives up; its swap is still under way.
    LeaveBehind(usize),
    /// A swap of somebody who gave up is done, or not.
    ServeLate(usize),
    /// The client forgets that it believes, as after a crash.
    Crash(usize),
}

impl Model for Ledger {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for (index, client) in state.clients.iter().enumerate() {
            match &client.slot {
                Slot::Empty => {
                    actions.push(Action::Read(index));
                    actions.extend(self.swaps(client, index));
                }
                Slot::Sent(request, _) => {
                    actions.extend([Action::Serve(index), Action::Lose(index)]);
                    if matches!(request, Request::Swap(_)) && state.late.len() < self.late {
                        actions.push(Action::LeaveBehind(index));
                    }
                }
                Slot::Answered(..) => actions.extend([Action::Hear(index), Action::Lose(index)]),
            }
            if client.believes.is_some() {
                actions.push(Action::Crash(index));
            }
        }
        actions.extend((0..state.late.len()).map(Action::ServeLate));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.step(&mut state, action);
        self.normalise(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(
            "at most one client believes that it holds the lock",
            |_, state: &State| {
                state.clients.iter().filter(|client| client.believes.is_some()).count() <= 1
            },
        )]
    }
}

impl Ledger {
    fn swaps(&self, client: &Client, index: usize) -> Vec<Action> {
        let Some((holder, waiter)) = client.lock else { return Vec::new() };
        let mine = holder == Some(index);
        let stale = client.silence.is_some_and(|age| age >= self.ttl);
        let mut swaps = Vec::new();
        if holder.is_none() {
            swaps.push(Action::Acquire(index));
        } else if !mine {
            let waits = self.queue && waiter != Some(index);
            swaps.extend(waits.then_some(Action::Queue(index)));
            swaps.extend(stale.then_some(Action::TakeOver(index)));
        } else {
            swaps.push(Action::Release(index));
            swaps.extend((!client.ended).then_some(Action::Sign(index)));
        }
        swaps
    }

    fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick => state.clients.iter_mut().for_each(|client| self.tick(client)),
            Action::Read(index) => send(&mut state.clients[index], Request::Read),
            Action::Acquire(index) => swap(&mut state.clients[index], What::Acquire),
            Action::Queue(index) => swap(&mut state.clients[index], What::Queue),
            Action::Sign(index) => swap(&mut state.clients[index], What::Sign),
            Action::TakeOver(index) => swap(&mut state.clients[index], What::TakeOver),
            Action::Release(index) => {
                // From here on the lock may be somebody else's.
                (state.clients[index].believes, state.clients[index].ended) = (None, true);
                swap(&mut state.clients[index], What::Release);
            }
            Action::Serve(index) => self.serve(state, index),
            Action::Hear(index) => self.hear(&mut state.clients[index], index),
            Action::Lose(index) => state.clients[index].slot = Slot::Empty,
            Action::LeaveBehind(index) => {
                let slot = std::mem::take(&mut state.clients[index].slot);
                if let Slot::Sent(Request::Swap(swap), _) = slot {
                    state.late.push((index, swap));
                }
            }
            Action::ServeLate(place) => {
                let (index, swap) = state.late.remove(place);
                if self.swap(state, index, swap) {
                    self.happened.note(LATE);
                }
            }
            Action::Crash(index) => state.clients[index].believes = None,
        }
    }

    /// Forgets what cannot matter any more, so that there are fewer states.
    fn normalise(&self, state: &mut State) {
        state.late.retain(|(_, swap)| swap.can_be_done(self.rule));
        state.late.iter_mut().for_each(|(_, swap)| swap.forget());
        for (index, client) in state.clients.iter_mut().enumerate() {
            let mine = client.lock.is_some_and(|(holder, _)| holder == Some(index));
            if client.believes.is_some() {
                // A holder does not watch the other.
                (client.silence, client.sign_outdated) = (None, false);
            } else if !mine && client.lock.is_some() {
                client.sign = None;
            }
            let (signed, right) = (client.sign.is_some(), self.rule == Rule::Right);
            match &mut client.slot {
                Slot::Sent(Request::Swap(swap), age) => {
                    swap.forget();
                    if !swap.can_be_done(self.rule) {
                        if swap.what == What::TakeOver && swap.lock && !swap.other {
                            self.happened.note(SAVED);
                        }
                        (swap.lock, swap.own, swap.other) = (false, false, false);
                    }
                    if !swap.signs() {
                        *age = 0;
                    }
                }
                Slot::Answered(Answer::Swapped { what, done }, age)
                    if !*done || matches!(what, What::Queue | What::Release) =>
                {
                    *age = 0;
                }
                Slot::Sent(Request::Read, age) | Slot::Answered(Answer::Read(_), age)
                    if right && !signed =>
                {
                    *age = 0;
                }
                _ => {}
            }
        }
    }

    fn tick(&self, client: &mut Client) {
        let ages = [&mut client.silence, &mut client.sign];
        for age in ages.into_iter().flatten() {
            *age = (*age + 1).min(self.ttl);
        }
        client.believes = client.believes.map(|age| age + 1).filter(|age| *age < self.ttl);
        if let Slot::Sent(_, age) | Slot::Answered(_, age) = &mut client.slot {
            *age = (*age + 1).min(self.ttl);
        }
    }

    fn serve(&self, state: &mut State, index: usize) {
        let slot = std::mem::take(&mut state.clients[index].slot);
        let Slot::Sent(request, age) = slot else { return };
        let answer = match request {
            Request::Read => Answer::Read(Sight {
                holder: state.holder,
                waiter: state.waiter,
                lock: true,
                own: true,
                other: true,
                same: !state.clients[index].sign_outdated,
                newer: false,
            }),
            Request::Swap(swap) => {
                Answer::Swapped { what: swap.what, done: self.swap(state, index, swap) }
            }
        };
        state.clients[index].slot = Slot::Answered(answer, age);
    }

    /// Does all of a swap, or nothing; whether it was done.
    fn swap(&self, state: &mut State, index: usize, swap: Swap) -> bool {
        let (signs, locks) = (swap.signs(), swap.what != What::Sign);
        if !swap.can_be_done(self.rule) {
            if swap.what == What::Sign && state.holder != Some(index) {
                self.happened.note(LEARNT);
            }
            return false;
        }
        match swap.what {
            What::Acquire => state.holder = Some(index),
            What::TakeOver => {
                state.holder = Some(index);
                self.happened.note(TAKEN_OVER);
            }
            What::Queue => state.waiter = Some(index),
            What::Release => {
                state.holder = state.waiter.take();
                if state.holder.is_some() {
                    self.happened.note(HANDED_OVER);
                }
            }
            What::Sign => {}
        }
        if state.waiter == state.holder {
            state.waiter = None;
        }
        if locks {
            state.outdate_lock();
        }
        if signs {
            state.outdate_session(index);
            let other = &mut state.clients[1 - index];
            other.sign_outdated = true;
            if let Slot::Answered(Answer::Read(sight), _) = &mut other.slot {
                sight.newer = true;
            }
        }
        if swap.moves_other(self.rule) {
            state.outdate_session(1 - index);
        }
        true
    }

    fn hear(&self, client: &mut Client, index: usize) {
        let slot = std::mem::take(&mut client.slot);
        let Slot::Answered(answer, age) = slot else { return };
        match answer {
            Answer::Read(sight) => {
                client.lock = Some((sight.holder, sight.waiter));
                client.lock_current = sight.lock;
                (client.own_current, client.other_current) = (sight.own, sight.other);
                client.sign_outdated = sight.newer;
                if !sight.same || client.silence.is_none() {
                    let wrong = self.rule == Rule::SilenceFromSend;
                    client.silence = Some(if wrong { age } else { 0 });
                }
                self.look(client, index, sight.holder, age);
            }
            Answer::Swapped { what, done: false } => {
                if what == What::Sign && self.rule == Rule::SignWithoutLook {
                    // Only where its session is.
                    client.own_current = true;
                    return;
                }
                client.lock = None;
                client.sign = None;
            }
            Answer::Swapped { what, done: true } => self.swapped(client, what, age),
        }
    }

    /// The lock was looked at: the sign of life before that counts.
    fn look(&self, client: &mut Client, index: usize, holder: Option<usize>, age: u8) {
        if holder != Some(index) {
            // Whatever it does next is for another lease.
            (client.believes, client.ended) = (None, false);
            return;
        }
        if client.ended {
            return;
        }
        let since = match client.sign {
            _ if self.rule == Rule::EntersSilently => Some(age),
            // Sent before the read was, and came through.
            Some(sign) if sign >= age => Some(sign),
            _ => None,
        };
        if let Some(since) = since.filter(|since| *since < self.ttl) {
            let note = if client.believes.is_some() { RENEWED } else { UNHEARD };
            self.happened.note(note);
            client.believes = Some(since);
        }
    }

    fn swapped(&self, client: &mut Client, what: What, age: u8) {
        let age = if self.rule == Rule::DeadlineFromReply { 0 } else { age };
        match what {
            What::Acquire | What::TakeOver => {
                client.sign = Some(age);
                client.believes = Some(age).filter(|age| *age < self.ttl);
            }
            What::Sign => {
                client.sign = Some(age);
                if self.rule == Rule::SignWithoutLook {
                    client.believes = client.sign.filter(|age| *age < self.ttl);
                }
            }
            What::Queue | What::Release => {}
        }
        // It reads again before it does anything else.
        client.lock = None;
    }
}

impl State {
    /// The lock has changed: nobody's knowledge of it is current any more.
    fn outdate_lock(&mut self) {
        self.clients.iter_mut().for_each(|client| client.lock_current = false);
        self.each_request(|_, swap, sight| {
            swap.into_iter().for_each(|swap| swap.lock = false);
            sight.into_iter().for_each(|sight| sight.lock = false);
        });
    }

    /// The reference of a session has changed, whoever changed it.
    fn outdate_session(&mut self, session: usize) {
        for (index, client) in self.clients.iter_mut().enumerate() {
            if index == session {
                client.own_current = false;
            } else {
                client.other_current = false;
            }
        }
        self.each_request(|index, swap, sight| {
            let own = index == session;
            if let Some(swap) = swap {
                *(if own { &mut swap.own } else { &mut swap.other }) = false;
            }
            if let Some(sight) = sight {
                *(if own { &mut sight.own } else { &mut sight.other }) = false;
            }
        });
    }

    fn each_request(&mut self, mut with: impl FnMut(usize, Option<&mut Swap>, Option<&mut Sight>)) {
        for (index, client) in self.clients.iter_mut().enumerate() {
            match &mut client.slot {
                Slot::Sent(Request::Swap(swap), _) => with(index, Some(swap), None),
                Slot::Answered(Answer::Read(sight), _) => with(index, None, Some(sight)),
                _ => {}
            }
        }
        self.late.iter_mut().for_each(|(index, swap)| with(*index, Some(swap), None));
    }
}

fn send(client: &mut Client, request: Request) {
    client.slot = Slot::Sent(request, 0);
}

fn swap(client: &mut Client, what: What) {
    let (lock, own, other) = (client.lock_current, client.own_current, client.other_current);
    send(client, Request::Swap(Swap { what, lock, own, other }));
}
