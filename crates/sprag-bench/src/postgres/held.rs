//! One process that holds many locks: what it costs to keep them.

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use super::Place;
use crate::now_nanos;
use crate::options::Options;
use crate::report::{Goal, Row, progress};
use crate::server::cpu;
use crate::server::locker::TTL;
use crate::server::subject::Subject;

const LOCKS: usize = 10_000;

pub(crate) async fn measure(place: &Place, options: &Options) -> Result<Vec<Row>> {
    // Only here, as it slows functions down.
    place.server.sql("postgres", "ALTER SYSTEM SET track_functions = 'pl'");
    place.server.sql("postgres", "SELECT pg_reload_conf()");
    let mut rows = Vec::new();
    for mode in ["advisory", "lease"] {
        rows.extend(hold(place, mode, options).await?);
    }
    Ok(rows)
}

async fn hold(place: &Place, mode: &str, options: &Options) -> Result<Vec<Row>> {
    let before = place.clients();
    let subject = Subject::open(&place.with_mode(mode))?;
    let locks = stream::iter(0..LOCKS).map(|number| {
        let request = subject.locks.lock(format!("bench:held:{number}")).ttl(TTL);
        request.acquire()
    });
    let guards: Vec<_> = locks.buffered(64).try_collect().await?;
    progress(&format!("{} {mode} locks are held", guards.len()));
    // Locks that were taken one after the other are renewed together from their second renewal on. Then
    // three renewals of all of them are counted.
    let (before_that, length) =
        if options.pairs > 1 { (TTL * 2 / 3, TTL) } else { (TTL / 100, TTL / 10) };
    tokio::time::sleep(before_that).await;
    let (start, used, asked) = (now_nanos(), cpu()?, renewals(place, mode));
    tokio::time::sleep(length).await;
    let share = (cpu()? - used).as_secs_f64() / ((now_nanos() - start) as f64 / 1e9) * 100.0;
    let per_third =
        (renewals(place, mode) - asked) / (length.as_secs_f64() / TTL.as_secs_f64()) / 3.0;
    let connections = (place.clients() - before) as f64;
    let lost: Vec<_> = guards.iter().filter_map(|guard| guard.ensure_valid().err()).collect();
    ensure!(lost.is_empty(), "{} of {LOCKS} locks were lost: {}", lost.len(), lost[0]);
    ensure!(options.pairs == 1 || per_third > 0.5, "their renewals were not counted: {per_third}");
    let releases = stream::iter(guards).map(|guard| guard.release());
    releases.buffered(64).try_collect::<Vec<_>>().await?;
    let row = |what: &str, value, goal| {
        Row::absolute(what, &[value], String::new(), Some(Goal::AtMost(goal)))
    };
    Ok(vec![
        row(&format!("{mode}, 10,000 held locks, % of a core to renew them"), share, 5.0),
        row("… connections", connections, 2.0),
        row("… statements to renew them, per TTL/3", per_third, 1.5),
    ])
}

/// How often locks of a mode were renewed, however many at a time.
fn renewals(place: &Place, mode: &str) -> f64 {
    let name = if mode == "lease" { "renew_v1" } else { "renew_advisory_v1" };
    let calls = format!("SELECT sum(calls) FROM pg_stat_user_functions WHERE funcname = '{name}'");
    place.server.sql("postgres", &calls).parse().unwrap_or(0.0)
}
