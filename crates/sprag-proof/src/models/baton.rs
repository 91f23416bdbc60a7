//! A lock that is passed on before that is written, as the SQLite and the Redis store do: one record,
//! and messages that are slow, lost, or come in another order.
//!
//! Who is let in is told its heir, to whom the record promises the lock. Who gives the lock back
//! sends its heir the baton first and writes its release then, or never. The heir enters on the
//! baton if nobody used force since the promise was written; until it hears that the release is
//! written, it writes that itself before anything of its own.
//!
//! In the Redis store it is passed on within a process only, at once and without asking whether force
//! was used, which the answer to the release tells. There other programs see nothing but a plain key,
//! and take it when it ends; so it must not end as long as anybody believes to hold the lock.
//!
//! A client counts its lease as in [`queue`](super::queue): from its latest question that was
//! answered "not yet", and from its renewals. Requests are done in one step here: that they may be
//! slow or repeated is looked at there.

mod normal;
mod step;
mod store;

use std::sync::Arc;

use sprag_core::Loss;
use sprag_core::record::Record;
use stateright::{Model, Property};

use super::explore::Happened;
use super::judge;
use step::lease_id;

/// The bounds of the model, and its rules.
#[derive(Clone, Debug)]
pub struct Baton {
    /// How many clients are like each other.
    pub equals: usize,
    /// Whether there is one more, who goes first and may use force.
    pub mighty: bool,
    /// Whether that one uses force.
    pub force: bool,
    /// Whether an operator breaks locks.
    pub operator: bool,
    /// Whether it is as in the Redis store.
    pub keyed: bool,
    /// How long a lease lasts, in ticks.
    pub ttl: u8,
    /// How many times each of the equals asks for the lock, and how many times the other one.
    pub asks: [u8; 2],
    /// How many times anybody may die, give up, break a lock or use force.
    pub accidents: u8,
    /// What is done.
    pub rule: Rule,
    /// What happened so far.
    pub happened: Arc<Happened<14>>,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// What is built.
    Right,
    /// Wrong: the first waiter is let in although the record does not promise it the lock.
    NoPromise,
    /// Wrong: who enters does not ask whether force was used.
    MarkNotAsked,
    /// Wrong: force leaves its mark before it looks at the record.
    MarkRaisedEarly,
    /// Wrong: force takes the lock from its holder alone.
    ForceSparesHeir,
    /// Wrong: the place of an heir in the queue ends with its time, as that of others does. A
    /// question that is answered "not yet" does not move that time, but what the heir believes.
    HeirExpires,
    /// Wrong: the plain key ends with the lease of the holder, although its heir may be inside.
    KeyEndsWithHolder,
    /// Wrong: the plain key is not kept for longer when the heir asks once more and is told "not yet",
    /// from which it counts its lease.
    QuestionNotCounted,
}

impl Baton {
    /// Three clients in the smallest bounds that show everything.
    pub fn new() -> Self {
        Self {
            equals: 2,
            mighty: true,
            force: true,
            operator: true,
            keyed: false,
            ttl: 2,
            asks: [1, 2],
            accidents: 2,
            rule: Rule::Right,
            happened: Arc::new(Happened::new([
                ENTERED_EARLY,
                TOLD_FIRST,
                TOLD_INSIDE,
                CONFIRMED,
                HEIR_FASTER,
                HOLDER_DIED,
                HOLDER_SILENT,
                HEIR_DIED,
                FORCE_BEFORE,
                FORCE_AFTER,
                BROKEN,
                GONE_PAST,
                KEY_OUTLASTS,
                ENTERED_ROBBED,
            ])),
        }
    }

    const fn clients(&self) -> usize {
        self.equals + self.mighty as usize
    }

    const fn is_mighty(&self, index: usize) -> bool {
        index == self.equals
    }

    const fn is_young(&self, anchor: u8) -> bool {
        anchor < self.ttl
    }
}

impl Default for Baton {
    fn default() -> Self {
        Self::new()
    }
}

const ENTERED_EARLY: &str = "an heir entered before that was written";
const TOLD_FIRST: &str = "a waiter entered because that was written";
const TOLD_INSIDE: &str = "an heir heard that it was written when it was inside";
const CONFIRMED: &str = "a client whose grant was old renewed before it entered";
const HEIR_FASTER: &str = "an heir wrote the release of its predecessor";
const HOLDER_DIED: &str = "a holder died between the baton and its release";
const HOLDER_SILENT: &str = "the lease of a holder ran out between the baton and its release";
const HEIR_DIED: &str = "an heir died";
const FORCE_BEFORE: &str = "a baton did not count, because force was used";
const FORCE_AFTER: &str = "an heir was robbed by force when it was inside";
const BROKEN: &str = "an operator broke the lock of one who had passed it on";
const GONE_PAST: &str = "one of higher priority came after the promise";
const KEY_OUTLASTS: &str = "the plain key outlasted the lease of the holder for the heir inside";
const ENTERED_ROBBED: &str = "an heir that was robbed before it entered was told with the answer";

/// Everything there is at one moment. All times are relative to now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    record: Record,
    clients: Vec<Client>,
    /// How many times each client asked for the lock.
    asked: Vec<u8>,
    /// How many accidents there were.
    accidents: u8,
    messages: Vec<Message>,
    /// The leases whose session is dead.
    dead: Vec<u8>,
    /// Force has left its mark and has not written yet.
    marked: bool,
    /// How long the plain key lasts, in ticks; 0 if there is none.
    key: u8,
    /// How long the record lets the heir believe in its lease.
    heir_left: u8,
    /// The largest fence that was written.
    newest: u64,
    /// The largest fence of anybody who entered.
    entered: u64,
    fault: Option<Fault>,
}

/// What can be wrong with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A step of the machine.
    Machine(judge::Fault),
    /// A client entered who was robbed before.
    EnteredRobbed,
    /// A client entered with a fence that is not larger than all before.
    FenceWentBack,
}

/// One client. Ages are in ticks and stop at the TTL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Client {
    #[default]
    Idle,
    /// In the queue, as far as it knows; its last question is so old.
    Waiting { lease: u8, anchor: u8 },
    /// It was let in.
    Inside(Inside),
    /// It has left, and has not written that.
    Leaving { lease: u8, predecessor: Option<u8> },
}

/// What a client that was let in knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Inside {
    lease: u8,
    fence: u64,
    anchor: u8,
    belief: Belief,
    predecessor: Option<u8>,
    heir: Option<Heir>,
}

/// Whether a client believes to hold what it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Belief {
    /// Not before a renewal: the grant may be too old.
    NotYet,
    Yes,
    /// Lost is for good.
    NoMore,
}

/// Whom a holder lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Heir {
    lease: u8,
    fence: u64,
    /// Whether nobody used force since this was read. The counter of the store tells: all that
    /// matters is whether it is the same as then.
    fresh: bool,
}

/// What is under way. A message that is never heard is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Message {
    /// The lease was granted, and that is written.
    Told { lease: u8, fence: u64, heir: Option<Heir> },
    /// The predecessor lets its heir in.
    Baton { from: u8, heir: Heir },
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time goes on.
    Tick,
    /// The client asks for the lock, for the first time or again.
    Ask(usize),
    /// The client who will use force leaves its mark.
    LeaveMark(usize),
    /// The client takes the lock by force.
    AskByForce(usize),
    /// A message reaches its client.
    Hear(usize),
    /// The client sends a sign of life.
    Renew(usize),
    /// The client writes the release of its predecessor.
    Settle(usize),
    /// The client gives the lock back: it tells its heir.
    PassOn(usize),
    /// The client leaves the queue.
    Withdraw(usize),
    /// The client writes that it has left.
    WriteRelease(usize),
    /// The client that has left does not write that.
    GiveUp(usize),
    /// The client dies and starts again.
    Crash(usize),
    /// An operator breaks the lock of the holder.
    Evict,
}

impl Model for Baton {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            record: Record { version: super::normal::CURRENT, ..Record::default() },
            clients: vec![Client::default(); self.clients()],
            asked: vec![0; self.clients()],
            accidents: 0,
            messages: Vec::new(),
            dead: Vec::new(),
            marked: false,
            key: 0,
            heir_left: 0,
            newest: 0,
            entered: 0,
            fault: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, client) in state.clients.iter().enumerate() {
            match client {
                Client::Idle => {
                    actions.push(Action::Ask(index));
                    if self.force && self.is_mighty(index) {
                        let marked = state.marked || self.keyed;
                        let next = if marked { Action::AskByForce } else { Action::LeaveMark };
                        actions.push(next(index));
                    }
                    continue;
                }
                Client::Waiting { .. } => {
                    actions
                        .extend([Action::Ask, Action::Renew, Action::Withdraw].map(|a| a(index)));
                }
                Client::Inside(inside) => {
                    let settled = inside.predecessor.is_none();
                    let next = if settled { Action::Renew } else { Action::Settle };
                    if inside.belief != Belief::NoMore {
                        actions.push(next(index));
                    }
                    actions.push(Action::PassOn(index));
                }
                Client::Leaving { .. } => {
                    actions.extend([Action::WriteRelease(index), Action::GiveUp(index)]);
                }
            }
            actions.push(Action::Crash(index));
        }
        actions.extend((0..state.messages.len()).map(Action::Hear));
        if self.operator && !state.record.holders.is_empty() {
            actions.push(Action::Evict);
        }
        actions.push(Action::Tick);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        if last.fault.is_some() {
            return None;
        }
        let mut state = last.clone();
        state.accidents += u8::from(action.is_accident());
        if state.accidents > self.accidents {
            return None;
        }
        self.step(&mut state, action)?;
        state.normalise(self);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one client believes to hold the lock", |_, state: &State| {
                state.believers().count() <= 1
            }),
            Property::always(
                "who was robbed does not enter, and fences grow",
                |_, state: &State| {
                    !matches!(state.fault, Some(Fault::EnteredRobbed | Fault::FenceWentBack))
                },
            ),
            Property::always(
                "the fence that is written is the one that is used",
                |_, state: &State| {
                    state.believers().all(|inside| {
                        let mine = |lease| lease == lease_id(inside.lease);
                        let hold = state.record.holders.iter().find(|hold| mine(hold.lease));
                        hold.is_none_or(|hold| hold.fence.get() == inside.fence)
                    })
                },
            ),
            Property::always(
                "another program is kept out as long as anybody believes",
                |model: &Self, state: &State| {
                    !model.keyed || state.key > 0 || state.believers().count() == 0
                },
            ),
            Property::always("every step of the machine is right", |_, state: &State| {
                !matches!(state.fault, Some(Fault::Machine(_)))
            }),
        ]
    }
}

impl Action {
    const fn is_accident(self) -> bool {
        matches!(
            self,
            Self::AskByForce(_)
                | Self::Withdraw(_)
                | Self::GiveUp(_)
                | Self::Crash(_)
                | Self::Evict
        )
    }
}

impl State {
    /// Who believes to hold the lock, unless it was robbed: it will learn that, or its time ends.
    fn believers(&self) -> impl Iterator<Item = &Inside> {
        let inside = self.clients.iter().filter_map(|client| match client {
            Client::Inside(inside) if inside.belief == Belief::Yes => Some(inside),
            _ => None,
        });
        inside.filter(|inside| !self.is_robbed(inside.lease))
    }

    fn is_robbed(&self, lease: u8) -> bool {
        matches!(self.record.loss_of(lease_id(lease)), Loss::Broken { .. } | Loss::Stolen { .. })
    }
}
