//! Many tasks that want the same lock.

use std::time::Duration;

use anyhow::{Result, ensure};
use sprag_testkit::redis_server::RedisServer;

use super::hand::Token;
use super::peers::{self, Peer};
use crate::options::Options;
use crate::report::{Goal, Row, progress};
use crate::server::subject::Subject;
use crate::server::turns::{Crowd, figures, gap, round};
use crate::stats::short;
use crate::visits::Round;

pub(crate) async fn measure(server: &RedisServer, options: &Options) -> Result<Vec<Row>> {
    let url = super::url(server);
    let (mut ours, mut tokens, mut rslock) = (Crowd::new(), Crowd::new(), Crowd::new());
    let subject = Subject::open(&url)?;
    for _ in 0..options.processes {
        ours.push(Box::new(subject.clone()));
        tokens.push(Box::new(Token::new(&url).await?));
        rslock.push(peers::connect(Peer::Rslock, std::slice::from_ref(&url)).await?);
    }
    let mut rows = Vec::new();
    let mut drains: [Vec<Round>; 3] = Default::default();
    let mut loops: [Vec<Round>; 2] = Default::default();
    let mut commands = Vec::new();
    for pair in 0..=options.pairs {
        progress(&format!("contended: pair {pair} of {}", options.pairs));
        Token::new(&url).await?.put("bench:token").await?;
        let drained = [
            round(&mut ours, "bench:crowd", Duration::ZERO).await?,
            round(&mut tokens, "bench:token", Duration::ZERO).await?,
            round(&mut rslock, "bench:rslock", Duration::ZERO).await?,
        ];
        let before = scripts(server);
        let ours = round(&mut ours, "bench:crowd", options.length).await?;
        let asked = (scripts(server) - before) as f64;
        let theirs = round(&mut tokens, "bench:token", options.length).await?;
        ensure!(!ours.overlapped(), "two tasks were inside the lock at once");
        // The first time warms up, and does not count.
        if pair > 0 {
            commands.push(asked / ours.visits_in_all() as f64);
            drains.iter_mut().zip(drained).for_each(|(side, round)| side.push(round));
            loops.iter_mut().zip([ours, theirs]).for_each(|(side, round)| side.push(round));
        }
    }
    rows.extend(drain_rows(&drains, options.processes));
    rows.extend(loop_rows(&loops, options.processes));
    rows.push(Row::absolute(
        "… commands per hand-off",
        &commands,
        "BLPOP 2".into(),
        Some(Goal::AtMost(3.0)),
    ));
    Ok(rows)
}

fn drain_rows(drains: &[Vec<Round>; 3], tasks: usize) -> Vec<Row> {
    let [ours, tokens, rslock] = drains.each_ref().map(|rounds| figures(rounds, Round::drain_ms));
    // Timers of the runtime are late by up to a millisecond, which is nobody's hand-over.
    let ideal = figures(&drains[0], Round::inside_ms);
    let what = format!("drain, {tasks} tasks, ms");
    vec![
        Row::pairs(&what, &ours, ("ideal, the time inside", &ideal), Some(Goal::AtMost(1.4))),
        Row::pairs(&what, &ours, ("BLPOP", &tokens), None),
        Row::pairs(&what, &ours, ("rslock", &rslock), None),
    ]
}

fn loop_rows(loops: &[Vec<Round>; 2], tasks: usize) -> Vec<Row> {
    let [ours, theirs] = loops;
    let both = |what: &str, figure: fn(&Round) -> f64, goal| {
        let (ours, theirs) = (figures(ours, figure), figures(theirs, figure));
        Row::pairs(what, &ours, ("BLPOP", &theirs), goal)
    };
    let fairness = figures(ours, Round::max_to_min);
    let beside = format!("BLPOP {}", short(figures(theirs, Round::max_to_min)[0]));
    vec![
        both(&format!("closed loop, {tasks} tasks, hand-offs/s"), Round::handoffs_per_second, None),
        both("… hand-off p50, us", gap::<50>, Some(Goal::AtMost(1.35))),
        both("… hand-off p99, us", gap::<99>, None),
        Row::absolute("… fairness, max/min per task", &fairness, beside, Some(Goal::AtMost(1.1))),
    ]
}

/// How many scripts the server has run.
fn scripts(server: &RedisServer) -> u64 {
    let stats = server.ask(&["INFO", "commandstats"]);
    let calls = |line: &str| {
        let rest = line.strip_prefix("cmdstat_eval")?;
        rest.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok()
    };
    stats.lines().filter_map(calls).sum()
}
