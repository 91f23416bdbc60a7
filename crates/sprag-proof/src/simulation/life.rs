//! The life of a process: it starts, works, is paused or cut off, crashes or ends, starts again.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use sprag_core::{Client, Holder, LockName, SessionId};
use tokio::time::sleep;

use super::dice::Dice;
use super::journal::Who;
use super::network::Connection;
use super::sim::{Sim, millis};
use super::worker::Worker;

/// How long a client is given to shut down, and its workers to notice.
const GRACE: Duration = Duration::from_secs(10);
/// How long after the last lock nothing may be left of a process, when all is well.
const SETTLED: Duration = Duration::from_secs(5);

/// All that runs in one process. To pause the process is not to poll it, to crash it is to drop
/// it: its guards are dropped too, but their releases go to a keeper that never runs again.
type Crew = FuturesUnordered<Pin<Box<dyn Future<Output = Member> + Send>>>;

#[derive(PartialEq, Eq)]
enum Member {
    Worker,
    Keeper,
}

/// One process after the other, until the simulation comes to its end.
pub(crate) async fn live(sim: Arc<Sim>, process: usize) {
    let mut dice = sim.dice();
    for life in 0.. {
        let who = Who { process, life, worker: 0 };
        Life::begin(&sim, who, &mut dice).run(&mut dice).await;
        if sim.is_calm() {
            return;
        }
        sleep(dice.time(10, 60_000)).await;
    }
}

struct Life {
    sim: Arc<Sim>,
    who: Who,
    connection: Arc<Connection>,
    client: Client,
    crew: Crew,
    /// Workers that are still at work.
    working: usize,
}

impl Life {
    fn begin(sim: &Arc<Sim>, who: Who, dice: &mut Dice) -> Self {
        let session = SessionId::from_u128(dice.id());
        let connection = Arc::new(Connection::open(sim, who, session));
        let clock = Arc::new(sim.clock(dice));
        let store = Arc::clone(&connection);
        let (client, keeper) = Client::builder(store)
            .clock(Arc::<super::clock::SimClock>::clone(&clock))
            .entropy(Arc::new(dice.entropy()))
            .holder(Holder::new(who.to_string(), "simulation"))
            .allow_force(sim.setting.rough)
            .drive();
        let crew = Crew::new();
        crew.push(Box::pin(async move {
            keeper.run().await;
            Member::Keeper
        }));
        let working = sim.setting.workers;
        for worker in 1..=working {
            let who = Who { worker, ..who };
            let worker = Worker::new(who, &connection, client.clone(), &clock, dice.fork());
            crew.push(Box::pin(async move {
                worker.run().await;
                Member::Worker
            }));
        }
        sim.note(who, "started", None, 0);
        Self { sim: Arc::clone(sim), who, connection, client, crew, working }
    }

    async fn run(mut self, dice: &mut Dice) {
        while self.working > 0 {
            let trouble = sleep(dice.time(5_000, 1_200_000));
            tokio::select! {
                biased;
                member = self.crew.next() => self.note_end(member),
                () = trouble => if !self.sim.is_calm() && !self.suffer(dice).await {
                    return self.crash(dice);
                }
            }
            if dice.chance(5) && !self.sim.is_calm() {
                break;
            }
        }
        self.end(dice).await;
    }

    fn note_end(&mut self, member: Option<Member>) {
        match member {
            Some(Member::Worker) => self.working -= 1,
            Some(Member::Keeper) | None => {
                self.sim.fail(format!("{}: the keeper ended before its client", self.who));
            }
        }
    }

    /// Something bad happens; `false` if the process does not survive it.
    async fn suffer(&mut self, dice: &mut Dice) -> bool {
        let length = dice.time(20, 60_000);
        match dice.number(0, 9) {
            0..=4 => {
                self.sim.note(self.who, "paused", None, millis(length));
                self.connection.line().trouble(length);
                sleep(length).await;
                self.connection.line().resumed();
                self.sim.note(self.who, "resumed", None, 0);
                true
            }
            5..=7 => {
                self.sim.note(self.who, "cut off", None, millis(length));
                self.connection.line().cut(length);
                true
            }
            _ => false,
        }
    }

    fn crash(self, dice: &mut Dice) {
        self.sim.note(self.who, "crashed", None, 0);
        let Self { sim, connection, client, crew, .. } = self;
        drop((crew, client));
        depart(&sim, connection.session, dice);
    }

    /// Drives the process for a while.
    async fn go_on(&mut self, length: Duration) {
        let limit = sleep(length);
        tokio::pin!(limit);
        loop {
            tokio::select! {
                biased;
                Some(member) = self.crew.next() => self.note_end(Some(member)),
                () = &mut limit => return,
            }
        }
    }

    /// An orderly end, perhaps in the middle of the work.
    async fn end(mut self, dice: &mut Dice) {
        let finished = self.working == 0;
        self.sim.note(self.who, "shuts down", None, 0);
        let session = self.connection.session;
        if finished {
            self.go_on(SETTLED).await;
            let left = self.sim.world().traces_of_session(session);
            if !left.is_empty() && self.connection.line().well_for() >= SETTLED * 2 {
                self.sim.fail(format!("{} is done and has not released {left:?}", self.who));
            }
        }
        let unreleased = self.shut_down().await;
        let left = self.sim.world().traces_of_session(session);
        if let Some(name) = left.iter().find(|name| !unreleased.contains(name)) {
            self.sim
                .fail(format!("{} shut down, said nothing about {name}, and is there", self.who));
        }
        for _ in 0..60 {
            if self.working == 0 {
                break;
            }
            self.go_on(GRACE / 10).await;
        }
        if self.working > 0 {
            self.sim.fail(format!("{}: a worker goes on after the shutdown", self.who));
        }
        let Self { sim, connection, client, mut crew, .. } = self;
        drop(client);
        let keeper = tokio::time::timeout(GRACE, crew.next()).await;
        if !matches!(keeper, Ok(Some(Member::Keeper))) {
            sim.fail("the keeper goes on after its client".into());
        }
        depart(&sim, connection.session, dice);
    }

    async fn shut_down(&mut self) -> Vec<LockName> {
        self.connection.line().over.raise();
        let client = self.client.clone();
        let shutdown = client.shutdown(GRACE);
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                left = &mut shutdown => return left,
                Some(member) = self.crew.next() => self.note_end(Some(member)),
            }
        }
    }
}

/// The process is gone. Some stores find out, on others only the TTL frees what it had.
fn depart(sim: &Arc<Sim>, session: SessionId, dice: &mut Dice) {
    sim.world().disconnect(session);
    if dice.chance(500) {
        let (sim, delay) = (Arc::clone(sim), dice.time(1, 20_000));
        tokio::spawn(async move {
            sleep(delay).await;
            let mut world = sim.world();
            world.bury(session);
            let woken = world.take_woken();
            drop(world);
            sim.note(Who::STORE, "session found dead", None, 0);
            woken.into_iter().for_each(|(mailboxes, lease)| sim.hint(mailboxes, lease));
        });
    }
}
