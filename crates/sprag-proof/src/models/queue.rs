//! One record in a store with a clock that does each command in one step, as memory, SQLite and
//! Redis do: queue, hand-over, readers and writers, permits.
//!
//! Requests take their time, answers are lost and the request is repeated with the same lease id,
//! and an old request may arrive once more when its sender has long forgotten it. Clients crash,
//! which the store may see or not; an operator breaks locks.
//!
//! A client counts the validity of its lease from the send of its latest request that was
//! answered "not granted", else from its first; an answered renewal moves that to its own send.

mod normal;
mod step;

use std::sync::Arc;

use sprag_core::record::Record;
use sprag_core::{Loss, Mode};
use stateright::{Model, Property};

use super::explore::Happened;
use super::judge::{Fault, fits};

/// The bounds of the model, and its rules.
#[derive(Clone, Debug)]
pub struct Queue {
    /// What each client does. Clients with equal roles come next to each other.
    pub roles: Vec<Role>,
    /// How long a lease lasts, in ticks.
    pub ttl: u8,
    /// How many clients may have a request under way at once.
    pub in_flight: usize,
    /// How many requests may be under way although their sender gave up or was answered.
    pub late: usize,
    /// How many leases of one client may be known to somebody at once; at least 2.
    pub leases: u8,
    /// Whether the store sees it when a client crashes.
    pub sessions: bool,
    /// Whether an operator breaks locks.
    pub operator: bool,
    /// Whether the store keeps the promise that a request is not done after a following one for
    /// the same lease. Only conversions need it.
    pub in_order: bool,
    /// What the clients do.
    pub rule: Rule,
    /// What happened so far.
    pub happened: Arc<Happened<17>>,
}

/// What one client does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// The modes it asks for.
    pub modes: &'static [Mode],
    /// Its priority.
    pub priority: i8,
    /// Whether it joins the queue.
    pub queue: bool,
    /// Whether it converts what it holds.
    pub converts: bool,
    /// Whether it also renews what it holds for less than the TTL.
    pub shortens: bool,
}

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// What is built.
    Right,
    /// Wrong: the validity counts from the answer.
    DeadlineFromReply,
    /// Wrong: the validity counts from the repeated request that was answered "granted".
    GrantCountsFromRepeat,
    /// Wrong: who downgrades believes in the stronger mode until it is answered.
    DowngradeAfterReply,
}

/// The permits there are where permits are asked for.
pub const PERMITS: u32 = 2;
/// One of two permits.
pub const TAKE_ONE: [Mode; 1] = [Mode::Permits { count: 1, of: PERMITS }];
/// Both permits.
pub const TAKE_ALL: [Mode; 1] = [Mode::Permits { count: 2, of: PERMITS }];

impl Role {
    const fn new(modes: &'static [Mode]) -> Self {
        Self { modes, priority: 0, queue: true, converts: false, shortens: false }
    }

    /// Wants the lock for itself, and queues.
    pub const fn writer() -> Self {
        Self::new(&[Mode::Exclusive])
    }

    /// Reads.
    pub const fn reader() -> Self {
        Self::new(&[Mode::Shared])
    }

    /// Reads, and becomes a writer and a reader again.
    pub const fn upgrader() -> Self {
        Self { converts: true, ..Self::new(&[Mode::Upgradable]) }
    }

    /// Takes one permit or all of them.
    pub const fn permits() -> Self {
        Self::new(&[TAKE_ONE[0], TAKE_ALL[0]])
    }
}

impl Queue {
    /// Clients with these roles, in the smallest bounds that show everything.
    pub fn new(roles: Vec<Role>) -> Self {
        Self {
            roles,
            ttl: 2,
            in_flight: 1,
            late: 1,
            leases: 2,
            sessions: false,
            operator: false,
            in_order: true,
            rule: Rule::Right,
            happened: Arc::new(Happened::new([
                HANDED_OVER,
                REPLY_LOST,
                REPEATED,
                LATE,
                REPLAYED,
                EXPIRED,
                WAITER_DIED,
                CONFIRMED,
                RENEWED,
                OVERTAKEN,
                WITHDRAWN,
                UPGRADED,
                DOWNGRADED,
                BROKEN,
                SHARED,
                SESSION_DIED,
                TRIED,
            ])),
        }
    }
}

const HANDED_OVER: &str = "a lock was handed over to a waiter";
const REPLY_LOST: &str = "the answer to a grant was lost";
const REPEATED: &str = "a repeated request got the grant of the first";
const LATE: &str = "a request was done after its sender gave up";
const REPLAYED: &str = "an acquire came again after its release";
const EXPIRED: &str = "a holder's lease ran out";
const WAITER_DIED: &str = "a waiter was dropped for its silence";
const CONFIRMED: &str = "a client whose grant was old renewed before it entered";
const RENEWED: &str = "a holder renewed";
const OVERTAKEN: &str = "a short renewal came after a longer one";
const WITHDRAWN: &str = "an upgrade was withdrawn";
const UPGRADED: &str = "an upgrade waited for readers";
const DOWNGRADED: &str = "a writer became a reader";
const BROKEN: &str = "an operator broke a lock";
const SHARED: &str = "two clients held the lock at once, rightly";
const SESSION_DIED: &str = "the store saw a client die";
const TRIED: &str = "a client only tried, and went away";

/// Everything there is at one moment. All times are relative to now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    record: Record,
    clients: Vec<Client>,
    late: Vec<Request>,
    /// The leases whose session is dead.
    dead: Vec<u8>,
    /// The largest fence ever given out.
    newest: u64,
    fault: Option<Fault>,
}

/// One client. Ages are in ticks and stop at the TTL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    lease: Option<Lease>,
    slot: Slot,
}

/// A lease that a client asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    id: u8,
    /// Since when it can be valid at most.
    anchor: u8,
    /// The mode that the client asked for last.
    wish: Mode,
    held: Option<Held>,
}

/// What a client believes to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Held {
    fence: u64,
    mode: Mode,
}

/// A client's request, of which there is one at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Slot {
    #[default]
    Empty,
    Sent {
        age: u8,
        request: Request,
    },
    Answered {
        age: u8,
        what: What,
        reply: Reply,
    },
}

/// What is asked of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Request {
    what: What,
    lease: u8,
}

/// The commands. An eviction names a fence instead of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum What {
    Acquire(Mode),
    Renew,
    /// For one tick less than the TTL.
    RenewShort,
    /// To a mode, from a fence.
    Convert(Mode, u64),
    Withdraw,
    Release,
    Evict(u64),
}

/// What the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Reply {
    Granted(Held),
    NotGranted,
    Gone,
    Other,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time goes on.
    Tick,
    /// The client asks for the lock, for the first time or again.
    Acquire(usize, Mode),
    /// The client sends a sign of life.
    Renew(usize),
    /// The client renews what it holds, for one tick less.
    RenewShort(usize),
    /// The client asks for another mode.
    Convert(usize, Mode),
    /// The client no longer wants to be upgraded.
    Withdraw(usize),
    /// The client frees its lease or leaves the queue.
    Release(usize),
    /// The store does what the client asked.
    Serve(usize),
    /// The same, and the request will come once more.
    ServeAndRepeat(usize),
    /// The answer reaches the client.
    Answer(usize),
    /// The client gives up waiting; request or answer are lost.
    GiveUp(usize),
    /// The client gives up waiting; the request is still under way.
    LeaveBehind(usize),
    /// An old request reaches the store.
    ServeLate(usize),
    /// An operator sends an eviction of the first holder seen.
    Evict,
    /// The client dies and starts again.
    Crash(usize),
    /// The store cleans up by itself.
    Reap,
}

impl Model for Queue {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            record: Record { version: super::normal::CURRENT, ..Record::default() },
            clients: vec![Client::default(); self.roles.len()],
            late: Vec::new(),
            dead: Vec::new(),
            newest: 0,
            fault: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let busy = state.clients.iter().filter(|client| client.slot != Slot::Empty).count();
        let room = state.late.len() < self.late;
        for (index, client) in state.clients.iter().enumerate() {
            match &client.slot {
                Slot::Empty => {
                    if busy < self.in_flight {
                        self.requests(index, client, actions);
                    }
                    if client.lease.is_some() {
                        actions.push(Action::Crash(index));
                    }
                }
                Slot::Sent { .. } => {
                    actions.extend([Action::Serve(index), Action::GiveUp(index)]);
                    if room {
                        actions.extend([Action::ServeAndRepeat(index), Action::LeaveBehind(index)]);
                    }
                }
                Slot::Answered { .. } => {
                    actions.extend([Action::Answer(index), Action::GiveUp(index)]);
                }
            }
        }
        actions.extend((0..state.late.len()).map(Action::ServeLate));
        if self.operator && room && !state.record.holders.is_empty() {
            actions.push(Action::Evict);
        }
        actions.extend([Action::Tick, Action::Reap]);
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
                "all who believe to hold the lock may do so at once",
                |model, state| are_compatible(&model.believed(state)),
            ),
            Property::always(
                "who believes to hold the lock does",
                |model: &Self, state: &State| {
                    model.leases_believed(state).all(|(lease, held)| {
                        let hold = state.record.holders.iter().find(|hold| hold.lease == lease);
                        hold.is_some_and(|hold| step::weaker(hold.mode, held.mode) == held.mode)
                    })
                },
            ),
            Property::always("every step of the machine is right", |_, state: &State| {
                state.fault.is_none()
            }),
        ]
    }
}

impl Queue {
    const fn is_young(&self, anchor: u8) -> bool {
        anchor < self.ttl
    }

    /// Who believes to hold the lock, unless an operator broke it: that is what breaking means.
    fn leases_believed<'a>(
        &'a self,
        state: &'a State,
    ) -> impl Iterator<Item = (sprag_core::LeaseId, Held)> + 'a {
        let leases = state.clients.iter().filter_map(|client| client.lease.as_ref());
        let valid = leases.filter(|lease| self.is_young(lease.anchor));
        let held = valid.filter_map(|lease| Some((step::lease_id(lease.id), lease.held?)));
        held.filter(|(lease, _)| !matches!(state.record.loss_of(*lease), Loss::Broken { .. }))
    }

    fn believed(&self, state: &State) -> Vec<Mode> {
        self.leases_believed(state).map(|(_, held)| held.mode).collect()
    }

    fn requests(&self, index: usize, client: &Client, actions: &mut Vec<Action>) {
        let role = &self.roles[index];
        let Some(lease) = &client.lease else {
            actions.extend(role.modes.iter().map(|mode| Action::Acquire(index, *mode)));
            return;
        };
        actions.extend([Action::Renew(index), Action::Release(index)]);
        let Some(held) = lease.held else {
            actions.push(Action::Acquire(index, lease.wish));
            return;
        };
        if role.shortens {
            actions.push(Action::RenewShort(index));
        }
        if !role.converts {
            return;
        }
        let to: &[Mode] = match held.mode {
            Mode::Exclusive => &[Mode::Upgradable, Mode::Shared],
            Mode::Upgradable => &[Mode::Exclusive, Mode::Shared],
            Mode::Shared => &[Mode::Exclusive],
            Mode::Permits { .. } => &[],
        };
        actions.extend(to.iter().map(|mode| Action::Convert(index, *mode)));
        if (lease.wish, held.mode) == (Mode::Exclusive, Mode::Upgradable) {
            actions.push(Action::Withdraw(index));
        }
    }
}

fn are_compatible(modes: &[Mode]) -> bool {
    let permits = modes.iter().map(|mode| match mode {
        Mode::Permits { count, .. } => *count,
        _ => 0,
    });
    let mut pairs = modes
        .iter()
        .enumerate()
        .flat_map(|(index, one)| modes[index + 1..].iter().map(move |other| (*one, *other)));
    permits.sum::<u32>() <= PERMITS && pairs.all(|(one, other)| fits(one, other))
}
