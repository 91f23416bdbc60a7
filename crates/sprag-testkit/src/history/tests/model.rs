//! A tiny lock service that does one thing after the other, and records a correct history.

use std::collections::BTreeMap;

use sprag_core::{LeaseId, Mode};

use super::samples::{MS, event, fence, with_mode};
use crate::history::{Event, Op, Outcome};

const TTL: u64 = 200 * MS;
const MARGIN: u64 = 5 * MS;
/// How much earlier each level of priority counts as having come.
const BOOST: u64 = 50 * MS;
/// The longest time from the deadline to the loss being told.
pub(super) const WAKE_UP: u64 = 4 * MS;

/// One step of a script: what, by whom, how much later, and how long the messages take.
pub(super) type Step = (u8, u8, u8, u8, u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mutex,
    Readers,
    Semaphore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// The store has granted it; it does not know yet.
    Handed,
    Holding,
    Lost,
    Done,
}

#[derive(Clone, Debug)]
struct Client {
    state: State,
    mode: Mode,
    fence: u64,
    valid_until: u64,
    /// When its last answer came.
    idle_since: u64,
}

struct Hold {
    lease: u128,
    mode: Mode,
    expires: u64,
}

struct Model {
    kind: Kind,
    now: u64,
    fence: u64,
    holders: Vec<Hold>,
    /// By virtual arrival.
    queue: Vec<(u64, u128)>,
    clients: BTreeMap<u128, Client>,
    counter: u64,
    written: u64,
    events: Vec<Event>,
}

/// Plays a script and records the history, from the first request to the last look.
pub(super) fn history(kind: Kind, script: &[Step]) -> Vec<Event> {
    let mut model = Model {
        kind,
        now: 1_000 * MS,
        fence: 0,
        holders: Vec::new(),
        queue: Vec::new(),
        clients: BTreeMap::new(),
        counter: 0,
        written: 0,
        events: Vec::new(),
    };
    for step in script {
        model.step(*step);
    }
    model.finish();
    model.events
}

impl Model {
    fn step(&mut self, (action, who, later, there, back): Step) {
        self.pass(u64::from(later % 20) * MS);
        let sent = self.now - (1 + u64::from(there % 5)) * MS;
        let answered = self.now + (1 + u64::from(back % 5)) * MS;
        if action % 8 == 0 {
            self.request(who, sent, answered);
            return;
        }
        if action % 8 == 1 {
            let holders = self.holders.iter().map(|hold| LeaseId::from_u128(hold.lease));
            let waiters = self.queue.iter().map(|(_, lease)| LeaseId::from_u128(*lease));
            let look = event(Op::Inspected, 0, 0).seen(holders.collect(), waiters.collect());
            self.events.push(look.at(sent, answered));
            return;
        }
        let idle = |client: &Client| client.state != State::Done && client.idle_since < sent;
        let idle = self.clients.iter().filter(|(_, client)| idle(client));
        let idle: Vec<u128> = idle.map(|(lease, _)| *lease).collect();
        if let Some(lease) = idle.get(usize::from(who) % idle.len().max(1)) {
            self.act(action % 8, *lease, sent, answered);
        }
    }

    fn act(&mut self, action: u8, lease: u128, sent: u64, answered: u64) {
        let client = self.clients[&lease].clone();
        let in_time = answered < client.valid_until;
        match (client.state, action) {
            (State::Waiting, 2) => self.withdraw(lease, sent, answered),
            // It confirms before it enters.
            (State::Handed, _) => self.renew(lease, Op::Granted, sent, answered),
            (State::Holding, 3) if in_time => self.release(lease, sent, answered),
            (State::Holding, 4) if in_time => self.renew(lease, Op::Renewed, sent, answered),
            (State::Holding, _) if in_time => self.write(lease, sent, answered),
            (State::Lost, 3) => self.release(lease, sent, answered),
            (State::Lost, _) => self.write(lease, sent, answered),
            _ => {}
        }
    }

    fn note(&mut self, op: Op, lease: u128, sent: u64, answered: u64) -> &mut Event {
        let client = self.clients.get_mut(&lease).unwrap();
        client.idle_since = client.idle_since.max(answered);
        let event = with_mode(event(op, lease, 0), client.mode).at(sent, answered);
        self.events.push(event);
        self.events.last_mut().unwrap()
    }

    fn request(&mut self, who: u8, sent: u64, answered: u64) {
        let lease = self.clients.len() as u128 + 1;
        let mode = match (self.kind, who % 4) {
            (Kind::Mutex, _) | (Kind::Readers, 0) => Mode::Exclusive,
            (Kind::Readers, 1) => Mode::Upgradable,
            (Kind::Readers, _) => Mode::Shared,
            (Kind::Semaphore, 0) => Mode::Permits { count: 2, of: 3 },
            (Kind::Semaphore, _) => Mode::Permits { count: 1, of: 3 },
        };
        let priority = [0, 0, 1, -1][usize::from(who / 4 % 4)];
        let (state, fence, valid_until) = (State::Waiting, 0, u64::MAX);
        let client = Client { state, mode, fence, valid_until, idle_since: 0 };
        self.clients.insert(lease, client);
        self.note(Op::Request, lease, sent, sent).priority = priority;
        let arrival = match priority {
            1 => self.now - BOOST,
            0 => self.now,
            _ => self.now + BOOST,
        };
        let place = self.queue.partition_point(|(other, _)| *other <= arrival);
        self.queue.insert(place, (arrival, lease));
        self.promote(self.now);
        if self.clients[&lease].state == State::Handed {
            self.renew(lease, Op::Granted, sent, answered);
        } else {
            self.note(Op::Queued, lease, sent, answered);
        }
    }

    fn renew(&mut self, lease: u128, op: Op, sent: u64, answered: u64) {
        let hold = self.holders.iter_mut().find(|hold| hold.lease == lease).unwrap();
        hold.expires = self.now + TTL;
        let client = self.clients.get_mut(&lease).unwrap();
        client.state = State::Holding;
        client.valid_until = sent + TTL - MARGIN;
        let (number, until) = (client.fence, client.valid_until);
        let event = self.note(op, lease, sent, answered);
        event.valid_until_ns = Some(until);
        event.fence = Some(fence(number));
    }

    fn release(&mut self, lease: u128, sent: u64, answered: u64) {
        let before = self.holders.len();
        self.holders.retain(|hold| hold.lease != lease);
        let freed = self.holders.len() < before;
        self.promote(self.now);
        let outcome = if freed { Outcome::Freed } else { Outcome::AlreadyLost };
        self.note(Op::Released, lease, sent, answered).outcome = Some(outcome);
        self.clients.get_mut(&lease).unwrap().state = State::Done;
    }

    fn withdraw(&mut self, lease: u128, sent: u64, answered: u64) {
        self.queue.retain(|(_, other)| *other != lease);
        self.promote(self.now);
        self.note(Op::Withdrawn, lease, sent, answered);
        self.clients.get_mut(&lease).unwrap().state = State::Done;
    }

    /// A resource that checks fences. Only writers write.
    fn write(&mut self, lease: u128, sent: u64, answered: u64) {
        let number = self.clients[&lease].fence;
        if self.clients[&lease].mode != Mode::Exclusive {
            return;
        }
        let accepted = number >= self.written;
        if accepted {
            self.written = number;
            self.counter += 1;
        }
        let counter = self.counter;
        let event = self.note(Op::Wrote, lease, sent, answered);
        event.fence = Some(fence(number));
        event.outcome = Some(if accepted { Outcome::Accepted } else { Outcome::Rejected });
        event.value = accepted.then_some(counter);
    }

    /// Grants from the front of the queue until one has to wait on.
    fn promote(&mut self, at: u64) {
        while let Some((_, lease)) = self.queue.first().copied() {
            let mode = self.clients[&lease].mode;
            let mut held = self.holders.iter().map(|hold| hold.mode);
            let fits = match mode {
                Mode::Exclusive => self.holders.is_empty(),
                Mode::Shared => held.all(|held| held != Mode::Exclusive),
                Mode::Upgradable => held.all(|held| held == Mode::Shared),
                Mode::Permits { count, of } => {
                    let count_of =
                        |held| if let Mode::Permits { count, .. } = held { count } else { 0 };
                    held.map(count_of).sum::<u32>() + count <= of
                }
            };
            if !fits {
                return;
            }
            self.queue.remove(0);
            if mode.takes_new_fence() || self.fence == 0 {
                self.fence += 1;
            }
            self.holders.push(Hold { lease, mode, expires: at + TTL });
            let client = self.clients.get_mut(&lease).unwrap();
            client.state = State::Handed;
            client.fence = self.fence;
        }
    }

    /// Time passes: losses are told, and what is over is handed on.
    fn pass(&mut self, time: u64) {
        self.now += time;
        let now = self.now;
        let over = |hold: &Hold| hold.expires <= now;
        while let Some(first) = self.holders.iter().filter(|h| over(h)).min_by_key(|h| h.expires) {
            let (lease, expired) = (first.lease, first.expires);
            self.holders.retain(|hold| hold.lease != lease);
            self.promote(expired);
            if self.clients[&lease].state == State::Handed {
                self.note(Op::Withdrawn, lease, now, now);
                self.clients.get_mut(&lease).unwrap().state = State::Done;
            }
        }
        let due = |client: &Client| client.state == State::Holding && client.valid_until <= now;
        let due = self.clients.iter().filter(|(_, client)| due(client));
        let due: Vec<_> = due.map(|(lease, client)| (*lease, client.valid_until)).collect();
        for (lease, until) in due {
            let told = until + u64::try_from(lease % 5).unwrap() * (WAKE_UP / 4);
            self.note(Op::Lost, lease, told, told);
            self.clients.get_mut(&lease).unwrap().state = State::Lost;
        }
    }

    fn finish(&mut self) {
        let leases: Vec<u128> = self.clients.keys().copied().collect();
        for round in 0..3 {
            for lease in &leases {
                let state = self.clients[lease].state;
                // First those who wait give up, so that nothing is handed to them any more.
                if (round == 0) != (state == State::Waiting) || state == State::Lost {
                    continue;
                }
                self.pass(15 * MS);
                let action = if state == State::Waiting { 2 } else { 3 };
                self.act(action, *lease, self.now - MS, self.now + MS);
            }
        }
        self.pass(10_000 * MS);
        let counted = event(Op::Counted, 0, 0).value(self.counter);
        self.events.push(counted.at(self.now, self.now + MS));
        let last = event(Op::Final, 0, 0).seen(
            self.holders.iter().map(|hold| LeaseId::from_u128(hold.lease)).collect(),
            self.queue.iter().map(|(_, lease)| LeaseId::from_u128(*lease)).collect(),
        );
        self.events.push(last.at(self.now, self.now + MS));
    }
}
