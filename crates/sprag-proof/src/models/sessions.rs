//! Two locks whose holders live by their sessions, in a store without a clock.
//!
//! Each process has one session in the store and shows that it is alive by changing it; the lock
//! records are left alone. To take a lock over, a process must (1) have seen the holder's session
//! unchanged for a TTL, counted from when its read returned, (2) swap the session to *dead*, which
//! its owner cannot undo, (3) change the lock, telling the machine who is dead.
//!
//! A process counts the validity of all its leases from the send of its last heartbeat that was
//! answered. On one of the locks the first process asks for a detached lease: it lives by its own
//! renewals, and whoever takes it over must have seen the *lock* unchanged for a TTL.
//!
//! A change of a lock is one step here: what a lost race means is in the model of one
//! [observed](super::observed) record.

mod normal;
mod step;

use std::sync::Arc;

use sprag_core::record::Record;
use stateright::{Model, Property};

use super::explore::Happened;
use super::judge::Fault;

/// The bounds of the model, and its rules.
#[derive(Clone, Debug)]
pub struct Sessions {
    /// How many processes there are.
    pub processes: u8,
    /// How many locks there are.
    pub locks: u8,
    /// How long a session and a detached lease last, in ticks.
    pub ttl: u8,
    /// How many requests may be under way although their sender gave up.
    pub late: usize,
    /// Whether processes join the queue.
    pub queue: bool,
    /// The lock on which the first process asks for a detached lease.
    pub detached: Option<u8>,
    /// Whether processes crash; if not, they only pause.
    pub crashes: bool,
    /// Whether requests and answers are lost; if not, they only take their time.
    pub losses: bool,
    /// Whether locks are released; if not, they only change hands by take-over.
    pub releases: bool,
    /// What is done and answered at once. What a slow request does is seen with one lock; what
    /// two locks add is that they live and die by one session.
    pub prompt: Prompt,
    /// How many processes have bad luck: crash, lose messages and leave requests behind. The
    /// messages of the others only take their time.
    pub unlucky: usize,
    /// Whether the first process never takes over from the others.
    pub one_way: bool,
    /// What the processes do.
    pub rule: Rule,
    /// What happened so far.
    pub happened: Arc<Happened<8>>,
}

/// Which requests are done and answered at once, in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// None.
    Nothing,
    /// Those that change a lock.
    Changes,
    /// All but heartbeats, which come late, get lost and are overtaken.
    AllButHeartbeats,
}

/// What the processes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// What is built.
    Right,
    /// Wrong: a session that was silent for a TTL counts as dead, without swapping it to dead.
    PresumeDead,
    /// Wrong: a lock is taken over because the lock did not change, whoever holds it.
    LockUnchanged,
    /// Wrong: the validity counts from the answer to the heartbeat.
    DeadlineFromReply,
    /// Wrong: the observation counts from the send of the read.
    ObservationFromSend,
}

impl Sessions {
    /// Two processes and two locks, with everything switched on.
    pub fn new() -> Self {
        Self {
            processes: 2,
            locks: 2,
            ttl: 2,
            late: 0,
            queue: false,
            detached: Some(1),
            crashes: true,
            losses: true,
            releases: true,
            prompt: Prompt::Nothing,
            unlucky: 2,
            one_way: false,
            rule: Rule::Right,
            happened: Arc::new(Happened::new([
                KILLED, TAKEN_OVER, LEARNED, TOO_LATE, STOLEN, SURVIVED, REPLY_LOST, SPARED,
            ])),
        }
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self::new()
    }
}

const KILLED: &str = "a silent session was declared dead";
const TAKEN_OVER: &str = "a lock was taken over from a dead session";
const LEARNED: &str = "a process learned that its session is dead";
const TOO_LATE: &str = "a heartbeat came when the session was dead";
const STOLEN: &str = "a silent detached lease was stolen";
const SURVIVED: &str = "a detached lease outlived its process's session";
const REPLY_LOST: &str = "the answer to a heartbeat was lost";
const SPARED: &str = "a session was not declared dead because of a heartbeat just before";

/// Everything there is at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    locks: Vec<Record>,
    /// The largest fence ever given out, for each lock.
    newest: Vec<u64>,
    /// The sessions that are dead in the store, as a set of bits.
    dead: u8,
    processes: Vec<Process>,
    late: Vec<Request>,
    fault: Option<Fault>,
}

/// One process. Ages are in ticks and stop at the TTL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Since when its session is good at most.
    anchor: u8,
    leases: Vec<Option<Lease>>,
    watch: Option<Watch>,
    /// The sessions that it knows to be dead.
    knows: u8,
    slot: Slot,
}

/// A lease that a process asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lease {
    id: u8,
    /// Since when it can be valid at most; for a detached lease only.
    anchor: u8,
    held: Option<u64>,
}

/// What a process has seen unchanged, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Watch {
    what: Watched,
    age: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Watched {
    Session(u8),
    Lock(u8),
}

/// A process's request, of which there is one at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Slot {
    #[default]
    Empty,
    Sent {
        age: u8,
        request: Request,
    },
    Answered {
        age: u8,
        reply: Reply,
    },
}

/// What is asked of the store. A swap that is outdated is no more than a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Request {
    /// The owner changes its session, to show that it is alive.
    Beat {
        session: u8,
    },
    Look(Watched),
    /// Declare a session dead that is still as it was seen.
    Kill {
        session: u8,
    },
    Change {
        lock: u8,
        lease: u8,
        what: What,
        knows: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum What {
    Acquire,
    /// By the version of the lock that was watched; gone if the lock changed since.
    Steal {
        current: bool,
    },
    Renew,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reply {
    /// The session is alive, or the lock is as it is; perhaps it changed since.
    Seen {
        what: Watched,
        current: bool,
    },
    /// The session is dead.
    Dead(u8),
    /// The heartbeat was done.
    Beaten,
    Granted {
        lock: u8,
        fence: u64,
        renewed: bool,
    },
    NotGranted {
        lock: u8,
    },
    Gone {
        lock: u8,
    },
    Nothing,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time goes on.
    Tick,
    /// The process sends a heartbeat.
    Beat(usize),
    /// The process reads a session that is in its way.
    LookAtSession(usize, u8),
    /// The process reads a lock that somebody else holds.
    LookAtLock(usize, u8),
    /// The process declares dead whom it watched for a TTL.
    Kill(usize),
    /// Wrong: the process only believes that whom it watched for a TTL is dead.
    Presume(usize),
    /// The process asks for a lock.
    Acquire(usize, u8),
    /// The process asks for a lock, by what it has seen of the lock.
    Steal(usize, u8),
    /// The process renews a detached lease.
    Renew(usize, u8),
    /// The process frees a lock.
    Release(usize, u8),
    /// The store does what the process asked.
    Serve(usize),
    /// The answer reaches the process.
    Answer(usize),
    /// The process gives up waiting; request or answer are lost.
    GiveUp(usize),
    /// The process gives up waiting; the request is still under way.
    LeaveBehind(usize),
    /// A request of somebody who gave up reaches the store.
    ServeLate(usize),
    /// The process dies and starts again with a new session.
    Crash(usize),
}

impl Model for Sessions {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let locks = usize::from(self.locks);
        let process = Process {
            anchor: 0,
            leases: vec![None; locks],
            watch: None,
            knows: 0,
            slot: Slot::Empty,
        };
        vec![State {
            locks: vec![Record { version: super::normal::CURRENT, ..Record::default() }; locks],
            newest: vec![0; locks],
            dead: 0,
            processes: vec![process; usize::from(self.processes)],
            late: Vec::new(),
            fault: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for (index, process) in state.processes.iter().enumerate() {
            let unlucky = index < self.unlucky;
            match &process.slot {
                Slot::Empty => {
                    self.requests(state, index, actions);
                    if self.crashes && unlucky {
                        actions.push(Action::Crash(index));
                    }
                }
                Slot::Sent { request, .. } => {
                    actions.push(Action::Serve(index));
                    if self.losses && unlucky {
                        actions.push(Action::GiveUp(index));
                    }
                    let done = !matches!(request, Request::Look(_));
                    if done && unlucky && state.late.len() < self.late {
                        actions.push(Action::LeaveBehind(index));
                    }
                }
                Slot::Answered { .. } => {
                    actions.push(Action::Answer(index));
                    if self.losses && unlucky {
                        actions.push(Action::GiveUp(index));
                    }
                }
            }
        }
        actions.extend((0..state.late.len()).map(Action::ServeLate));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        if last.fault.is_some() {
            return None;
        }
        let mut state = last.clone();
        self.step(&mut state, action)?;
        if let Some(index) = state.processes.iter().position(|process| self.is_prompt(process)) {
            self.step(&mut state, Action::Serve(index))?;
            self.step(&mut state, Action::Answer(index))?;
        }
        state.normalise(self);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "at most one process believes that it holds a lock",
                |model: &Self, state: &State| {
                    (0..usize::from(model.locks)).all(|lock| {
                        (0..state.processes.len())
                            .filter(|p| model.believes(state, *p, lock))
                            .count()
                            <= 1
                    })
                },
            ),
            Property::always("who believes to hold a lock does", |model: &Self, state: &State| {
                state.processes.iter().enumerate().all(|(index, process)| {
                    process.leases.iter().enumerate().all(|(lock, lease)| {
                        let Some(lease) = lease else { return true };
                        let holders = &state.locks[lock].holders;
                        !model.believes(state, index, lock)
                            || holders.iter().any(|hold| hold.lease == step::lease_id(lease.id))
                    })
                })
            }),
            Property::always(
                "the owner of a dead session believes in nothing",
                |model: &Self, state: &State| {
                    state.processes.iter().enumerate().all(|(index, process)| {
                        state.dead & step::bit(step::session_of(index)) == 0
                            || !model.is_young(process.anchor)
                    })
                },
            ),
            Property::always("every step of the machine is right", |_, state: &State| {
                state.fault.is_none()
            }),
        ]
    }
}

impl Sessions {
    const fn is_prompt(&self, process: &Process) -> bool {
        let Slot::Sent { request, .. } = &process.slot else { return false };
        match self.prompt {
            Prompt::Nothing => false,
            Prompt::Changes => matches!(request, Request::Change { .. }),
            Prompt::AllButHeartbeats => !matches!(request, Request::Beat { .. }),
        }
    }

    const fn is_young(&self, anchor: u8) -> bool {
        anchor < self.ttl
    }

    /// Whether the process's lease on the lock lives by its own renewals.
    fn is_detached(&self, process: usize, lock: usize) -> bool {
        process == 0 && self.detached.map(usize::from) == Some(lock)
    }

    fn believes(&self, state: &State, process: usize, lock: usize) -> bool {
        let Process { anchor, leases, .. } = &state.processes[process];
        leases[lock].as_ref().is_some_and(|lease| {
            let anchor = if self.is_detached(process, lock) { lease.anchor } else { *anchor };
            lease.held.is_some() && self.is_young(anchor)
        })
    }

    fn requests(&self, state: &State, index: usize, actions: &mut Vec<Action>) {
        let process = &state.processes[index];
        actions.push(Action::Beat(index));
        let watched = process.watch.map(|watch| (watch.what, watch.age >= self.ttl));
        if let Some((Watched::Session(_), true)) = watched {
            actions.push(match self.rule {
                Rule::PresumeDead => Action::Presume(index),
                _ => Action::Kill(index),
            });
        }
        let takes_over = !self.one_way || index > 0;
        for (lock, record) in (0..).zip(&state.locks) {
            let lease = &process.leases[usize::from(lock)];
            let held = lease.as_ref().is_some_and(|lease| lease.held.is_some());
            if !held {
                actions.push(Action::Acquire(index, lock));
                // Silence of the lock says nothing about a holder that lives by its session: what
                // counts is who holds it in the version seen, not who did when it was read.
                let by_lock =
                    |hold| step::what_to_watch(self.rule, lock, hold) == Watched::Lock(lock);
                if watched == Some((Watched::Lock(lock), true))
                    && record.holders.iter().all(by_lock)
                {
                    actions.push(Action::Steal(index, lock));
                }
                for hold in record.holders.iter().filter(|_| takes_over) {
                    let watch = step::what_to_watch(self.rule, lock, hold);
                    let new = watched.is_none_or(|(watched, _)| watched != watch);
                    match watch {
                        Watched::Session(session)
                            if new
                                && session != step::session_of(index)
                                && process.knows & step::bit(session) == 0 =>
                        {
                            actions.push(Action::LookAtSession(index, session));
                        }
                        Watched::Lock(lock) if new => actions.push(Action::LookAtLock(index, lock)),
                        _ => {}
                    }
                }
            }
            if lease.is_some() {
                if self.releases {
                    actions.push(Action::Release(index, lock));
                }
                if self.is_detached(index, usize::from(lock)) {
                    actions.push(Action::Renew(index, lock));
                }
            }
        }
    }
}
