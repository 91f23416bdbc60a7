//! [`Nemesis`]: kills, stops and restarts processes, as a seed decides.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use sprag_core::clock::Moment;

use super::Torture;
use crate::history::Recorder;
use crate::process::{Churn, Taker, TakerConfig, Tally};
use crate::support::{let_time_pass, now};

/// The processes of a run and what is done to them.
pub(super) struct Nemesis {
    config: TakerConfig,
    plan: Churn,
    random: Rng,
    members: Vec<Member>,
    /// Those who were told to end. They may have to wait for one that is stopped.
    leaving: Vec<Taker>,
    /// How many were started, to give each a name of its own.
    born: u64,
    aftermath: Aftermath,
}

struct Member {
    taker: Taker,
    /// Until when it is stopped.
    stopped: Option<Moment>,
}

/// What was done, and what came of it.
#[derive(Debug, Default)]
pub(super) struct Aftermath {
    /// Faults by kind.
    pub(super) faults: BTreeMap<&'static str, u64>,
    /// What those who ended in order did; the dead do not tell.
    pub(super) tally: Tally,
    /// Who was killed, and when.
    pub(super) killed: BTreeMap<String, u64>,
    /// Processes that did not behave.
    pub(super) complaints: Vec<String>,
}

impl Nemesis {
    /// Starts all processes.
    pub(super) async fn start(config: TakerConfig, torture: &Torture) -> Self {
        let mut nemesis = Self {
            config,
            plan: torture.churn(),
            random: Rng::with_seed(torture.seed),
            members: Vec::new(),
            leaving: Vec::new(),
            born: 0,
            aftermath: Aftermath::default(),
        };
        for _ in 0..torture.processes {
            let mut member = nemesis.launch();
            member.taker.ready().await;
            nemesis.members.push(member);
        }
        nemesis
    }

    /// Starts a process. It is not waited for: it may need one that is stopped to go on.
    fn launch(&mut self) -> Member {
        self.born += 1;
        let plan = Churn { seed: self.random.u64(..), ..self.plan.clone() };
        let config = self.config.clone().name(format!("p{}", self.born)).churn(plan);
        Member { taker: config.launch(), stopped: None }
    }

    /// Does one harm, and then lets a little time pass.
    pub(super) async fn strike(&mut self) {
        self.look_around();
        let chosen = self.random.usize(..self.members.len());
        let kind = match self.random.u8(..10) {
            0..4 => self.kill(chosen).await,
            4..7 => self.stop(chosen, 0.05..0.8).await,
            7..9 => self.stop(chosen, 1.2..2.5).await,
            // Before it listens to SIGTERM it would be killed by it.
            _ if !self.members[chosen].taker.is_ready() => self.kill(chosen).await,
            _ => self.restart(chosen),
        };
        *self.aftermath.faults.entry(kind).or_default() += 1;
        let_time_pass(Duration::from_millis(self.random.u64(20..300))).await;
    }

    /// SIGKILL, whether it runs or is stopped; a new process takes its place.
    async fn kill(&mut self, chosen: usize) -> &'static str {
        let kind = match self.members[chosen].stopped {
            Some(_) => "killed while stopped",
            None => "killed",
        };
        let taker = &mut self.members[chosen].taker;
        // It may live on for a moment; what it believes then does not count.
        self.aftermath.killed.insert(taker.name().to_owned(), Recorder::now_ns());
        taker.kill().await;
        self.members[chosen] = self.launch();
        kind
    }

    /// SIGSTOP for a multiple of the TTL.
    async fn stop(&mut self, chosen: usize, ttls: std::ops::Range<f64>) -> &'static str {
        let kind = if ttls.start < 1.0 { "stopped within its TTL" } else { "stopped past its TTL" };
        let ttls = ttls.start + self.random.f64() * (ttls.end - ttls.start);
        let member = &mut self.members[chosen];
        if member.stopped.is_none() {
            member.taker.stop().await;
        }
        member.stopped = Some(now().plus(self.plan.ttl.mul_f64(ttls)));
        kind
    }

    /// SIGTERM; it gives back what it has, and a new process takes its place.
    fn restart(&mut self, chosen: usize) -> &'static str {
        let mut old = self.launch();
        std::mem::swap(&mut self.members[chosen], &mut old);
        if old.stopped.is_some() {
            old.taker.go_on();
        }
        old.taker.terminate();
        self.leaving.push(old.taker);
        "restarted"
    }

    /// Lets those go on whose time has come, and replaces those who ended by themselves.
    fn look_around(&mut self) {
        for number in 0..self.members.len() {
            let member = &mut self.members[number];
            if member.stopped.is_some_and(|until| until <= now()) {
                member.stopped = None;
                member.taker.go_on();
            }
            if let Some(status) = member.taker.try_ended() {
                let what = format!("{} ended by itself: {status}", member.taker.name());
                self.aftermath.complaints.push(what);
                self.members[number] = self.launch();
            }
        }
    }

    /// No more faults: everybody goes on.
    pub(super) async fn relent(&mut self) {
        for member in &mut self.members {
            if member.stopped.take().is_some() {
                member.taker.go_on();
            }
        }
        self.look_around();
        for member in &mut self.members {
            member.taker.ready().await;
        }
    }

    /// Ends all processes in order.
    pub(super) async fn end(mut self) -> Aftermath {
        for member in &mut self.members {
            member.taker.close();
        }
        self.leaving.extend(self.members.drain(..).map(|member| member.taker));
        for taker in &mut self.leaving {
            let status = taker.ended().await;
            match taker.last_words().await {
                Some(tally) => self.aftermath.tally.add(&tally),
                None => {
                    let what = format!("{} ended without a word: {status}", taker.name());
                    self.aftermath.complaints.push(what);
                }
            }
        }
        self.aftermath
    }
}
