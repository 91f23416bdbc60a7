//! One record in a store that can only compare and swap, and has no clock.
//!
//! Clients load the record, compute the production `apply`, and ask the store to swap. A request
//! may be slow, may be done although its answer is lost, and may arrive long after its sender gave
//! up. A holder renews, which changes the version. Whoever has seen one version for a whole TTL,
//! counted from when its read *returned*, may steal. A holder believes itself valid for TTL minus
//! margin, counted from when it *sent* the request that made it so.
//!
//! Clients crash at any time, and pause by not taking a step. Their clocks may run apart by
//! [`Observed::skew`] ticks.

mod step;

use std::sync::Arc;

use sprag_core::record::Record;
use stateright::{Model, Property};

use super::explore::Happened;
use super::judge::Fault;
use super::normal;

/// The bounds of the model, and its rules.
#[derive(Clone, Debug)]
pub struct Observed {
    /// How many clients there are.
    pub clients: u8,
    /// How long a lease lasts, in ticks.
    pub ttl: u8,
    /// How much earlier its holder stops to believe in it.
    pub margin: u8,
    /// By how many ticks the clocks of two clients may run apart.
    pub skew: u8,
    /// How many requests may be under way although their sender gave up.
    pub late: usize,
    /// How many leases of one client may be known to somebody at once; at least 2, so that a
    /// client can start again while an old lease of its is still there.
    pub leases: u8,
    /// Whether clients join the queue.
    pub queue: bool,
    /// Whether holders write to the guarded resource.
    pub writes: bool,
    /// What the clients do.
    pub rule: Rule,
    /// What happened so far.
    pub happened: Arc<Happened<8>>,
}

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// What is built.
    Right,
    /// Wrong: the validity counts from the answer.
    DeadlineFromReply,
    /// Wrong: the observation counts from the send of the read.
    ObservationFromSend,
    /// Wrong: a steal that lost the race is repeated against the version found.
    StealAgainstAnyVersion,
}

impl Observed {
    /// Two clients whose clocks agree, with everything switched on.
    pub fn new() -> Self {
        Self {
            clients: 2,
            ttl: 2,
            margin: 0,
            skew: 0,
            late: 1,
            leases: 2,
            queue: true,
            writes: true,
            rule: Rule::Right,
            happened: Arc::new(Happened::new([
                STOLEN,
                REPLY_LOST,
                FOUND,
                LATE,
                CONFIRMED,
                HANDED_OVER,
                REFUSED,
                CONFLICT,
            ])),
        }
    }
}

impl Default for Observed {
    fn default() -> Self {
        Self::new()
    }
}

const STOLEN: &str = "a silent holder was robbed";
const REPLY_LOST: &str = "a grant's answer was lost";
const FOUND: &str = "a client found by reading that it holds the lock";
const LATE: &str = "a request was done after its sender gave up";
const CONFIRMED: &str = "a client whose grant was old renewed before it entered";
const HANDED_OVER: &str = "a release handed the lock over";
const REFUSED: &str = "the resource refused a write of an older holder";
const CONFLICT: &str = "a swap lost against another";

/// Everything there is at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) record: Record,
    pub(super) clients: Vec<Client>,
    /// Swaps that are still under way; outdated ones are left out, for they do nothing.
    pub(super) late: Vec<Change>,
    /// The number of the holder's grant, and the largest fence and number ever given out.
    pub(super) holder: u64,
    pub(super) newest: Grant,
    /// The last write that the guarded resource took, and one that is still under way to it.
    pub(super) resource: Grant,
    pub(super) write: Option<Grant>,
    pub(super) fault: Option<Fault>,
}

/// A fence, and which grant it was given with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grant {
    pub(super) fence: u64,
    pub(super) number: u64,
}

/// One client. Ages are in ticks of its own clock and stop at the TTL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// How far its clock is ahead of the slowest.
    pub(super) ahead: u8,
    pub(super) lease: Option<Lease>,
    /// For how long it has seen the current version. An older version is as good as none: a swap
    /// that names it is answered with the current record, as a read is.
    pub(super) seen: Option<u8>,
    pub(super) slot: Slot,
}

/// A lease that a client asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    pub(super) id: u8,
    /// Since when it can be valid at most.
    pub(super) anchor: u8,
    /// Whether it is to be stolen, and whether the version named is the current one.
    pub(super) steal: Option<bool>,
    pub(super) held: Option<Grant>,
}

/// A client's request, of which there is one at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Slot {
    /// No request.
    #[default]
    Empty,
    /// On its way to the store.
    Sent {
        /// What is asked.
        request: Request,
        /// How long ago.
        age: u8,
    },
    /// On its way back.
    Answered {
        /// The answer.
        answer: Answer,
        /// How long ago it was asked for.
        age: u8,
    },
}

/// What is asked of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Read the record.
    Load,
    /// Swap it.
    Change(Change),
}

/// A compare-and-swap with the current version. What it writes follows from what is there; once
/// the record has changed, it is no more than a read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    pub(super) lease: u8,
    pub(super) what: What,
}

/// What a swap is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// Take the lock, perhaps steal it by a version that is current or not.
    Acquire {
        /// Whether the version to steal by is the current one.
        steal: Option<bool>,
    },
    /// Show a sign of life.
    Renew,
    /// Free it.
    Release,
}

/// What the store answers: the record, of which only this matters to the client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Whether the record is still the one in the answer.
    pub(super) current: bool,
    /// Which swap was done, if any.
    pub(super) done: Option<What>,
    pub(super) mine: Mine,
}

/// What a record says about a client's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mine {
    /// It is not there.
    Absent,
    /// It waits.
    Waiting,
    /// It holds the lock.
    Granted(Grant),
    /// It is gone.
    Gone,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Every clock moves on.
    Tick,
    /// One clock moves on.
    TickOf(usize),
    /// The client sends a read.
    Load(usize),
    /// The client sends a swap that takes the lock, or joins the queue.
    Acquire(usize),
    /// The same, pushing a holder aside by the version seen.
    Steal(usize),
    /// The client sends a sign of life.
    Renew(usize),
    /// The client frees its lease.
    Release(usize),
    /// The store does what the client asked.
    Serve(usize),
    /// The answer reaches the client.
    Answer(usize),
    /// The client gives up waiting; request or answer are lost.
    GiveUp(usize),
    /// The client gives up waiting; the request is still under way.
    LeaveBehind(usize),
    /// A request of somebody who gave up reaches the store.
    ServeLate(usize),
    /// The client dies and starts again.
    Crash(usize),
    /// The holder's write reaches the resource at once.
    Write(usize),
    /// The holder sends a write that takes its time.
    SendWrite(usize),
    /// That write arrives.
    TakeWrite,
}

impl Model for Observed {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let record = Record { version: normal::CURRENT, ..Record::default() };
        vec![State {
            record,
            clients: vec![Client::default(); usize::from(self.clients)],
            late: Vec::new(),
            holder: 0,
            newest: Grant::default(),
            resource: Grant::default(),
            write: None,
            fault: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if self.skew == 0 {
            actions.push(Action::Tick);
        }
        for (index, client) in state.clients.iter().enumerate() {
            self.client_actions(index, client, actions);
            if self.writes && self.valid(client).is_some() {
                actions.push(Action::Write(index));
                if state.write.is_none() {
                    actions.push(Action::SendWrite(index));
                }
            }
            match &client.slot {
                Slot::Empty if client.lease.is_some() || client.seen.is_some() => {
                    actions.push(Action::Crash(index));
                }
                Slot::Empty => {}
                Slot::Sent { request, .. } => {
                    actions.extend([Action::Serve(index), Action::GiveUp(index)]);
                    if *request != Request::Load && state.late.len() < self.late {
                        actions.push(Action::LeaveBehind(index));
                    }
                }
                Slot::Answered { .. } => {
                    actions.extend([Action::Answer(index), Action::GiveUp(index)]);
                }
            }
        }
        actions.extend((0..state.late.len()).map(Action::ServeLate));
        actions.extend(state.write.map(|_| Action::TakeWrite));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        if last.fault.is_some() {
            return None;
        }
        let mut state = last.clone();
        self.step(&mut state, action)?;
        state.normalise(self);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "at most one client believes that it holds the lock",
                |model: &Self, state: &State| {
                    let valid = state.clients.iter().filter(|client| model.valid(client).is_some());
                    valid.count() <= 1
                },
            ),
            Property::always(
                "who believes to hold the lock does",
                |model: &Self, state: &State| {
                    state.clients.iter().filter_map(|client| model.valid(client)).all(|lease| {
                        state
                            .record
                            .holders
                            .iter()
                            .any(|hold| hold.lease == step::lease_id(lease.id))
                    })
                },
            ),
            Property::always("every step of the machine is right", |_, state: &State| {
                !state.fault.is_some_and(|fault| fault != Fault::ResourceWentBack)
            }),
            Property::always(
                "the resource never goes back to an older holder",
                |_, state: &State| state.fault != Some(Fault::ResourceWentBack),
            ),
        ]
    }
}

impl Observed {
    /// The lease that the client believes to hold.
    fn valid<'a>(&self, client: &'a Client) -> Option<&'a Lease> {
        client.lease.as_ref().filter(|lease| lease.held.is_some() && self.is_young(lease.anchor))
    }

    const fn is_young(&self, anchor: u8) -> bool {
        anchor < self.ttl - self.margin
    }

    fn client_actions(&self, index: usize, client: &Client, actions: &mut Vec<Action>) {
        if self.skew > 0 && client.ahead < self.skew {
            actions.push(Action::TickOf(index));
        }
        if client.slot != Slot::Empty {
            return;
        }
        let held = client.lease.as_ref().is_some_and(|lease| lease.held.is_some());
        let Some(age) = client.seen else {
            actions.push(Action::Load(index));
            return;
        };
        if !held {
            if client.lease.is_some() {
                actions.push(Action::Load(index));
            }
            actions.push(Action::Acquire(index));
            if age >= self.ttl {
                actions.push(Action::Steal(index));
            }
        }
        if client.lease.is_some() {
            actions.extend([Action::Renew(index), Action::Release(index)]);
        }
    }
}
