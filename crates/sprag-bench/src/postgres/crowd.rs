//! Many tasks that want the same lock.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Place;
use super::advisory::Blocking;
use super::hand::HandOver;
use crate::options::Options;
use crate::report::{Goal, Row, progress};
use crate::server::subject::Subject;
use crate::server::turns::{Crowd, figures, gap, round};
use crate::stats::short;
use crate::visits::Round;

const LOCK: &str = "bench:crowd";

/// A mode against what can be done by hand.
struct Sides {
    mode: &'static str,
    hand: &'static str,
    ours: Crowd,
    theirs: Crowd,
    connections: usize,
    drains: [Vec<Round>; 2],
    loops: [Vec<Round>; 2],
}

pub(crate) async fn measure(place: &Place, options: &Options) -> Result<Vec<Row>> {
    let (mut blocking, mut passing) = (Crowd::new(), Crowd::new());
    let hand_over = HandOver::new(&place.plain()).await?;
    for who in 0..options.processes {
        blocking.push(Box::new(Blocking::new(&place.plain()).await?));
        passing.push(Box::new(hand_over.numbered(who)));
    }
    let both = [
        Sides::new("advisory", "pg_advisory_lock", blocking, place, options).await?,
        Sides::new("lease", "a hand-over by hand", passing, place, options).await?,
    ];
    let mut rows = Vec::new();
    for mut sides in both {
        for pair in 0..=options.pairs {
            progress(&format!("{}, contended: pair {pair} of {}", sides.mode, options.pairs));
            sides.measure(options, pair > 0).await?;
        }
        rows.extend(sides.rows(options.processes));
    }
    Ok(rows)
}

impl Sides {
    async fn new(
        mode: &'static str,
        hand: &'static str,
        theirs: Crowd,
        place: &Place,
        options: &Options,
    ) -> Result<Self> {
        let before = place.clients();
        let subject = Subject::open(&place.with_mode(mode))?;
        let ours = (0..options.processes).map(|_| Box::new(subject.clone()) as _).collect();
        let (drains, loops) = Default::default();
        let mut sides = Self { mode, hand, ours, theirs, connections: 0, drains, loops };
        // It listens once it had to wait.
        round(&mut sides.ours, LOCK, Duration::ZERO).await?;
        sides.connections = place.clients() - before;
        Ok(sides)
    }

    async fn measure(&mut self, options: &Options, counts: bool) -> Result<()> {
        let drains = [
            round(&mut self.ours, LOCK, Duration::ZERO).await?,
            round(&mut self.theirs, LOCK, Duration::ZERO).await?,
        ];
        let loops = [
            round(&mut self.ours, LOCK, options.length).await?,
            round(&mut self.theirs, LOCK, options.length).await?,
        ];
        for done in drains.iter().chain(&loops) {
            ensure!(!done.overlapped(), "two tasks were inside the lock at once");
        }
        // The first time warms up.
        if counts {
            self.drains.iter_mut().zip(drains).for_each(|(side, done)| side.push(done));
            self.loops.iter_mut().zip(loops).for_each(|(side, done)| side.push(done));
        }
        Ok(())
    }

    fn rows(&self, tasks: usize) -> Vec<Row> {
        let mode = self.mode;
        let both = |what: &str, rounds: &[Vec<Round>; 2], figure: fn(&Round) -> f64, goal| {
            let [ours, theirs] = rounds.each_ref().map(|rounds| figures(rounds, figure));
            Row::pairs(what, &ours, (self.hand, &theirs), goal)
        };
        let drain = format!("{mode}, drain, {tasks} tasks, ms");
        let ours = figures(&self.drains[0], Round::drain_ms);
        let ideal = figures(&self.drains[0], Round::inside_ms);
        // Of leases each hand-over waits for the disk, which no ideal does.
        let (ideal_goal, hand_goal) = match mode {
            "advisory" => (Some(Goal::AtMost(1.5)), None),
            _ => (None, Some(Goal::AtMost(1.5))),
        };
        let fairness = figures(&self.loops[0], Round::max_to_min);
        let beside = figures(&self.loops[1], Round::max_to_min)[0];
        let connections = [self.connections as f64];
        vec![
            Row::pairs(&drain, &ours, ("ideal, the time inside", &ideal), ideal_goal),
            both(&drain, &self.drains, Round::drain_ms, hand_goal),
            both("… closed loop, hand-offs/s", &self.loops, Round::handoffs_per_second, None),
            both("… hand-off p50, us", &self.loops, gap::<50>, Some(Goal::AtMost(1.5))),
            both("… hand-off p99, us", &self.loops, gap::<99>, None),
            Row::absolute(
                "… fairness, max/min per task",
                &fairness,
                format!("{} {}", self.hand, short(beside)),
                Some(Goal::AtMost(1.2)),
            ),
            Row::absolute("… connections", &connections, String::new(), Some(Goal::AtMost(2.0))),
        ]
    }
}
