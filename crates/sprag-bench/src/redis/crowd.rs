//! Many tasks that want the same lock.

use std::time::Duration;

use anyhow::{Result, ensure};
use sprag_testkit::redis_server::RedisServer;

use super::hand::Token;
use super::peers::{self, Peer};
use crate::options::Options;
use crate::report::{Goal, Row, progress};
use crate::server::subject::Subject;
use crate::server::turns::{Crowd, SECTION, figures, gap, round};
use crate::stats::short;
use crate::visits::Round;

/// How many wait at a time where it is counted what a hand-off costs the server.
const SMALLER_CROWDS: [usize; 2] = [4, 16];

pub(crate) async fn measure(server: &RedisServer, options: &Options) -> Result<Vec<Row>> {
    let url = super::url(server);
    let (mut ours, mut tokens, mut rslock) = (Crowd::new(), Crowd::new(), Crowd::new());
    let mut clients = Crowd::new();
    let subject = Subject::open(&url)?;
    for _ in 0..options.processes {
        ours.push(Box::new(subject.clone()));
        clients.push(Box::new(Subject::open(&url)?));
        tokens.push(Box::new(Token::new(&url).await?));
        rslock.push(peers::connect(Peer::Rslock, std::slice::from_ref(&url)).await?);
    }
    let mut drains: [Vec<Round>; 4] = Default::default();
    let mut loops: [Vec<Round>; 3] = Default::default();
    let mut commands = Vec::new();
    for pair in 0..=options.pairs {
        progress(&format!("contended: pair {pair} of {}", options.pairs));
        Token::new(&url).await?.put("bench:token").await?;
        let drained = [
            round(&mut ours, "bench:crowd", Duration::ZERO).await?,
            round(&mut tokens, "bench:token", Duration::ZERO).await?,
            round(&mut rslock, "bench:rslock", Duration::ZERO).await?,
            round(&mut clients, "bench:clients", Duration::ZERO).await?,
        ];
        let before = scripts(server);
        let ours = round(&mut ours, "bench:crowd", options.length).await?;
        let asked = (scripts(server) - before) as f64;
        let theirs = round(&mut tokens, "bench:token", options.length).await?;
        let apart = round(&mut clients, "bench:clients", options.length).await?;
        ensure!(!ours.overlapped() && !apart.overlapped(), "two were inside the lock at once");
        // The first time warms up, and does not count.
        if pair > 0 {
            commands.push(asked / ours.visits_in_all() as f64);
            drains.iter_mut().zip(drained).for_each(|(side, round)| side.push(round));
            loops.iter_mut().zip([ours, theirs, apart]).for_each(|(side, round)| side.push(round));
        }
    }
    let [tasks, blpop, apart] = &loops;
    let mut rows = drain_rows(&drains, options.processes);
    rows.extend(loop_rows([tasks, blpop], &format!("{} tasks", options.processes), true));
    rows.push(commands_row(options.processes, &commands));
    rows.extend(smaller_crowds(server, &subject, options).await?);
    rows.extend(loop_rows([apart, blpop], &format!("{} clients", options.processes), false));
    Ok(rows)
}

fn commands_row(waiters: usize, commands: &[f64]) -> Row {
    let what = format!("… commands per hand-off, {waiters} tasks");
    Row::absolute(&what, commands, "BLPOP 2".into(), Some(Goal::AtMost(3.0)))
}

/// What a hand-off costs the server when fewer wait.
async fn smaller_crowds(
    server: &RedisServer,
    subject: &Subject,
    options: &Options,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for size in SMALLER_CROWDS.into_iter().filter(|size| *size < options.processes) {
        let mut crowd: Crowd = (0..size).map(|_| Box::new(subject.clone()) as _).collect();
        let mut commands = Vec::new();
        for _ in 0..options.pairs {
            let before = scripts(server);
            let round = round(&mut crowd, "bench:smaller", options.turn()).await?;
            commands.push((scripts(server) - before) as f64 / round.visits_in_all() as f64);
        }
        rows.push(commands_row(size, &commands));
    }
    Ok(rows)
}

fn drain_rows(drains: &[Vec<Round>; 4], tasks: usize) -> Vec<Row> {
    let [ours, tokens, rslock, clients] =
        drains.each_ref().map(|rounds| figures(rounds, Round::drain_ms));
    // Timers of the runtime are late by up to a millisecond, which is nobody's hand-over: the goal is
    // about the time that was really spent inside. What was meant stands beside it.
    let inside = |rounds: &[Round]| figures(rounds, Round::inside_ms);
    let exact = vec![tasks as f64 * SECTION.as_secs_f64() * 1000.0; ours.len()];
    let ideal = format!("ideal, {tasks} x 1 ms");
    let rows = |who: &str, ours: &[f64], rounds: &[Round], goal| {
        let what = format!("drain, {tasks} {who}, ms");
        vec![
            Row::pairs(&what, ours, ("ideal, the time inside", &inside(rounds)), goal),
            Row::pairs(&what, ours, (&ideal, &exact), None),
            Row::pairs(&what, ours, ("BLPOP", &tokens), None),
            Row::pairs(&what, ours, ("rslock", &rslock), None),
        ]
    };
    let goal = Some(Goal::AtMost(1.4));
    [rows("tasks", &ours, &drains[0], goal), rows("clients", &clients, &drains[3], None)].concat()
}

/// Ours and those who pass a token; who we are, and whether there are goals for them.
fn loop_rows([ours, theirs]: [&[Round]; 2], who: &str, goals: bool) -> Vec<Row> {
    let goal = |limit| goals.then_some(Goal::AtMost(limit));
    let both = |what: &str, figure: fn(&Round) -> f64, goal| {
        let (ours, theirs) = (figures(ours, figure), figures(theirs, figure));
        Row::pairs(what, &ours, ("BLPOP", &theirs), goal)
    };
    let fairness = figures(ours, Round::max_to_min);
    let beside = format!("BLPOP {}", short(figures(theirs, Round::max_to_min)[0]));
    vec![
        both(&format!("closed loop, {who}, hand-offs/s"), Round::handoffs_per_second, None),
        both("… hand-off p50, us", gap::<50>, goal(1.35)),
        both("… hand-off p99, us", gap::<99>, None),
        Row::absolute("… fairness, max/min", &fairness, beside, goal(1.1)),
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
