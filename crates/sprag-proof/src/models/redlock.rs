//! Several independent nodes, of which a majority decides.
//!
//! A client sends one request to every node. A majority of grants is the lock, but only once its
//! fence, the largest of those grants, is stored on a majority of nodes *that hold the key for this
//! attempt*. It is held for a TTL from the moment the requests were *sent*, and for another one from
//! the send of an extension that a majority granted. What a client gives up it frees everywhere.
//!
//! A request may be lost, its answer may be lost, and it may arrive long after its sender gave it
//! up. A node may restart empty; then it does not vote for a TTL, whatever the others say: those that
//! know of the lease may be silent. Its fences start from its clock
//! again, which is assumed to be ahead of all fences given out before the restart: the clocks of the
//! nodes may differ by less than the time that a restarted node does not vote.
//!
//! The first node's clock is ahead of the others': its fences are larger than all others there are.
//! The others count on from what is stored, far below. That is the worst there can be.

mod normal;
mod step;

use std::sync::Arc;

use stateright::{Model, Property};

use super::explore::Happened;

/// The bounds of the model, and its rules.
#[derive(Clone, Debug)]
pub struct Redlock {
    /// How many clients there are.
    pub clients: usize,
    /// How many nodes there are.
    pub nodes: usize,
    /// How long a lease lasts, in ticks.
    pub ttl: u8,
    /// How many requests may be under way although their sender gave up.
    pub late: usize,
    /// How many attempts of one client may be known to somebody at once.
    pub attempts: u8,
    /// Whether holders extend.
    pub extends: bool,
    /// How many nodes may be fresh at once, for having restarted without their memory.
    pub fresh: usize,
    /// What clients and nodes do.
    pub rule: Rule,
    /// What happened so far.
    pub happened: Arc<Happened<9>>,
}

/// What clients and nodes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// What is built.
    Right,
    /// Wrong: the fence is told without being stored.
    NoWriteBack,
    /// Wrong: the fence is stored on fewer nodes than a majority.
    WriteBackToOne,
    /// Wrong: nodes count that store the fence while somebody else, or nobody, has the key there.
    WriteBackAnywhere,
    /// Wrong: a node that restarted empty votes at once.
    FreshNodeVotes,
    /// Wrong: a node that restarted empty votes at once if it and others that make a majority together
    /// know of no lock. The one that does may be silent.
    SilenceIsProof,
    /// Wrong: a node that restarted empty gives out fences from the beginning.
    FreshFences,
    /// Wrong: the validity counts from the last answer.
    DeadlineFromReply,
    /// Wrong: freeing an attempt also frees later ones of the same lease.
    FreesLaterAttempts,
}

const SPLIT: &str = "nobody had a majority";
const STORED: &str = "a fence was stored where it was lower";
const UNHEARD: &str = "a node's grant was not heard of";
const LATE: &str = "a request was done after its sender gave up";
const EXTENDED: &str = "a majority extended a lease";
const RESTARTED: &str = "a node forgot a held key";
const RESTED: &str = "a fresh node did not vote";
const AGAIN: &str = "an attempt found its lease's older key";
const EXPIRED: &str = "a node's key expired";

impl Redlock {
    /// Two clients and three nodes, with everything switched on.
    pub fn new() -> Self {
        Self {
            clients: 2,
            nodes: 3,
            ttl: 2,
            late: 1,
            attempts: 2,
            extends: true,
            fresh: 1,
            rule: Rule::Right,
            happened: Arc::new(Happened::new([
                SPLIT, STORED, UNHEARD, LATE, EXTENDED, RESTARTED, RESTED, AGAIN, EXPIRED,
            ])),
        }
    }
}

impl Default for Redlock {
    fn default() -> Self {
        Self::new()
    }
}

/// Some of the nodes, as bits.
pub(super) type Nodes = u8;

/// Everything there is at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    pub(super) nodes: Vec<Node>,
    pub(super) clients: Vec<Client>,
    /// Requests under way whose sender gave up.
    pub(super) late: Vec<Late>,
    /// The fence of the last lock that was entered.
    pub(super) last: u64,
    pub(super) fence_went_back: bool,
}

/// One node. Ages are in ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    pub(super) key: Option<Key>,
    pub(super) fence: u64,
    /// For how long it does not vote.
    pub(super) rest: u8,
    /// Whether it knows that a lock was asked for. Only noted where a rule asks for it.
    pub(super) asked: bool,
}

/// A key, which ends when it is as old as the TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub(super) attempt: Attempt,
    pub(super) age: u8,
}

/// One attempt to get the lock. A client asks again for the same lease, with a larger number,
/// until it has entered the lock; then for another lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    pub(super) client: usize,
    pub(super) lease: u8,
    pub(super) number: u8,
}

impl Attempt {
    fn is_of_lease_of(self, other: Self) -> bool {
        (self.client, self.lease) == (other.client, other.lease)
    }
}

/// A request whose sender gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Late {
    pub(super) node: usize,
    pub(super) attempt: Attempt,
    pub(super) ask: Ask,
}

/// What is asked of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ask {
    /// Set the key if there is none.
    Take,
    /// Store this fence if the key is this attempt's.
    Store(u64),
    /// Let the key live for another TTL if it is this attempt's.
    Extend,
    /// Delete the key if it is this or an earlier attempt's.
    Free,
}

/// A client: what it does, and its requests to the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    pub(super) phase: Phase,
    /// The attempt, the last one where there is none.
    pub(super) attempt: Attempt,
    /// Whether that attempt has entered the lock.
    pub(super) entered: bool,
    /// Since when the lease is valid, while it is asked for or held.
    pub(super) age: u8,
    /// The largest fence granted.
    pub(super) fence: u64,
    /// The nodes that are known to hold the key and have stored the fence.
    pub(super) stored: Nodes,
    /// Nodes whose answer is awaited, and nodes that said yes.
    pub(super) asked: Nodes,
    pub(super) yes: Nodes,
    /// When an extension was sent.
    pub(super) extension: Option<u8>,
}

impl Client {
    fn new(index: usize) -> Self {
        Self { attempt: Attempt { client: index, ..Attempt::default() }, ..Self::default() }
    }
}

/// What a client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// Asking for grants.
    Taking,
    /// Storing the fence.
    Storing,
    /// Holding the lock.
    Holding,
    /// Freeing what it has.
    Freeing,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Every clock moves on.
    Tick,
    /// The client asks all nodes for the lock.
    Take(usize),
    /// The node does what the client asked, and the answer arrives.
    Serve(usize, usize),
    /// The node does what the client asked, and the answer is lost.
    ServeUnheard(usize, usize),
    /// The client gives up waiting for the node; the request is still under way.
    LeaveBehind(usize, usize),
    /// A request of somebody who gave up reaches its node.
    ServeLate(usize),
    /// A majority granted: the client stores the fence.
    Store(usize),
    /// The client enters the lock.
    Enter(usize),
    /// The client asks all nodes for another TTL.
    Extend(usize),
    /// A majority has extended.
    Extended(usize),
    /// The client frees the lock, or what it has of it.
    Free(usize),
    /// The client is done, or died. What it awaited is lost.
    Stop(usize),
    /// The node restarts without its memory.
    Restart(usize),
}

impl Model for Redlock {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            nodes: vec![Node::default(); self.nodes],
            clients: (0..self.clients).map(Client::new).collect(),
            late: Vec::new(),
            last: 0,
            fence_went_back: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for index in 0..self.clients {
            self.client_actions(state, index, actions);
        }
        actions.extend((0..state.late.len()).map(Action::ServeLate));
        let fresh = state.nodes.iter().filter(|node| node.rest > 0).count();
        if fresh < self.fresh {
            let used = |index: &usize| state.nodes[*index].key.is_some();
            actions.extend((0..self.nodes).filter(used).map(Action::Restart));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        if last.fence_went_back {
            return None;
        }
        let mut state = last.clone();
        self.step(&mut state, action)?;
        Some(state.normalised(self))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "at most one client believes that it holds the lock",
                |_, state: &State| {
                    let holding = |client: &&Client| client.phase == Phase::Holding;
                    state.clients.iter().filter(holding).count() <= 1
                },
            ),
            Property::always("fences grow in the order of grants", |_, state: &State| {
                !state.fence_went_back
            }),
        ]
    }
}

impl Redlock {
    fn client_actions(&self, state: &State, index: usize, actions: &mut Vec<Action>) {
        let client = &state.clients[index];
        for node in (0..self.nodes).filter(|node| client.asked & bit(*node) != 0) {
            actions.extend([Action::Serve(index, node), Action::ServeUnheard(index, node)]);
            if state.late.len() < self.late {
                actions.push(Action::LeaveBehind(index, node));
            }
        }
        match client.phase {
            Phase::Idle => {
                if state.known_attempts(index) < usize::from(self.attempts) {
                    actions.push(Action::Take(index));
                }
            }
            Phase::Taking => {
                actions.push(Action::Free(index));
                if self.is_majority(client.yes) && client.age < self.ttl {
                    actions.push(Action::Store(index));
                }
            }
            Phase::Storing => {
                actions.push(Action::Free(index));
                if self.may_enter(client) {
                    actions.push(Action::Enter(index));
                }
            }
            Phase::Holding => {
                actions.push(Action::Free(index));
                if client.extension.is_none() && self.extends {
                    actions.push(Action::Extend(index));
                } else if client.extension.is_some() && self.is_majority(client.yes) {
                    actions.push(Action::Extended(index));
                }
            }
            Phase::Freeing => actions.push(Action::Stop(index)),
        }
    }

    pub(super) fn is_majority(&self, nodes: Nodes) -> bool {
        nodes.count_ones() as usize > self.nodes / 2
    }

    pub(super) fn may_enter(&self, client: &Client) -> bool {
        let stored = match self.rule {
            Rule::NoWriteBack => true,
            Rule::WriteBackToOne => client.stored != 0,
            _ => self.is_majority(client.stored),
        };
        stored && client.age < self.ttl
    }
}

pub(super) const fn bit(node: usize) -> Nodes {
    1 << node
}
