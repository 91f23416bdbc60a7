//! Redlock over five servers, all well and with one that hangs.

use std::time::Duration;

use anyhow::Result;
use sprag_testkit::redis_server::RedisSetup;

use super::peers::{self, Peer};
use crate::options::Options;
use crate::report::{Goal, Row, progress};
use crate::server::locker::Locker;
use crate::server::subject::Subject;
use crate::server::turns::cycles_per_second;
use crate::stats::Spread;

const LOCK: &str = "bench:quorum";
/// How many cycles make a figure with a server that hangs.
const CYCLES: usize = 100;

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
        let mut turns: Vec<&mut dyn Locker> =
            sides.iter_mut().map(|(_, side)| &mut **side as _).collect();
        let rates = cycles_per_second(&mut turns, LOCK, options.turn()).await?;
        if pair > 0 {
            healthy.iter_mut().zip(rates).for_each(|(healthy, rate)| healthy.push(rate));
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
    let (mut hung, mut well) = (Vec::new(), Vec::new());
    for _ in 0..options.pairs {
        well.push(micros(sides[1].1.as_mut()).await?);
        servers[4].stop().await;
        hung.push(micros(sides[1].1.as_mut()).await?);
        servers[4].go_on();
        servers[4].ask(&["PING"]);
    }
    rows.push(Row::pairs(
        "… one server hung, us per cycle",
        &hung,
        ("all well", &well),
        Some(Goal::AtMost(1.5)),
    ));
    Ok(rows)
}

/// How long acquire and release take, the median of some.
async fn micros(side: &mut dyn Locker) -> Result<f64> {
    let mut micros = Vec::with_capacity(CYCLES);
    for _ in 0..CYCLES {
        let visit = side.visit(LOCK, Duration::ZERO).await?;
        micros.push((visit.left - visit.wanted) as f64 / 1000.0);
    }
    Ok(Spread::of(&micros).median)
}
