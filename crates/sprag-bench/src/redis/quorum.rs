//! Redlock over five servers, all well and with one that hangs.

use std::time::Duration;

use anyhow::Result;
use sprag_testkit::redis_server::RedisSetup;

use super::peers::{self, Peer};
use crate::options::Options;
use crate::report::{Goal, Row, progress};
use crate::server::locker::Locker;
use crate::server::subject::Subject;

const LOCK: &str = "bench:quorum";
/// How many cycles make a figure.
const CYCLES: usize = 200;
/// With a hung server a peer may take a second for each.
const HUNG_CYCLES: usize = 20;

pub(crate) async fn measure(options: &Options) -> Result<Vec<Row>> {
    let mut servers = Vec::new();
    for _ in 0..5 {
        servers.push(RedisSetup::new().tcp().start().await);
    }
    let urls: Vec<String> = servers.iter().map(super::url).collect();
    let hosts: Vec<_> = servers.iter().map(|s| format!("127.0.0.1:{}", s.port())).collect();
    let url = format!("redlock://{}", hosts.join(","));
    let (plain, fenced) = (Subject::open(&format!("{url}?fences=false"))?, Subject::open(&url)?);
    let mut sides: Vec<(&str, Box<dyn Locker>)> =
        vec![("sprag", Box::new(plain)), ("sprag with fences", Box::new(fenced))];
    for peer in Peer::ALL {
        sides.push((peer.name(), peers::connect(peer, &urls).await?));
    }
    let mut healthy = vec![Vec::new(); sides.len()];
    for pair in 0..=options.pairs {
        for (index, (name, side)) in sides.iter_mut().enumerate() {
            let micros = micros(side.as_mut(), &format!("{LOCK}:{name}"), CYCLES).await?;
            if pair > 0 {
                healthy[index].push(1e6 / micros);
            }
        }
        progress(&format!("Redlock: pair {pair} of {}", options.pairs));
    }
    let what = "Redlock, 5 servers, cycles/s";
    let mut rows = Vec::new();
    for ((name, _), theirs) in sides.iter().zip(&healthy).skip(2) {
        rows.push(Row::pairs(what, &healthy[0], (name, theirs), Some(Goal::AtLeast(1.0))));
    }
    rows.push(Row::pairs(
        "… with fences, cycles/s",
        &healthy[1],
        ("without", &healthy[0]),
        Some(Goal::AtLeast(0.65)),
    ));
    let before: Vec<f64> = healthy[1].iter().map(|rate| 1e6 / rate).collect();
    servers[4].stop().await;
    let mut hung = Vec::new();
    for _ in 0..options.pairs {
        hung.push(micros(sides[1].1.as_mut(), LOCK, HUNG_CYCLES).await?);
    }
    servers[4].go_on();
    rows.push(Row::pairs(
        "… one server hung, us per cycle",
        &hung,
        ("all well", &before),
        Some(Goal::AtMost(1.5)),
    ));
    Ok(rows)
}

async fn micros(side: &mut dyn Locker, lock: &str, cycles: usize) -> Result<f64> {
    let mut micros = Vec::with_capacity(cycles);
    for _ in 0..cycles {
        let visit = side.visit(lock, Duration::ZERO).await?;
        micros.push((visit.left - visit.wanted) as f64 / 1000.0);
    }
    Ok(crate::stats::Spread::of(&micros).median)
}
