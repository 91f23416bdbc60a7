//! Many processes on one lock: how fast it changes hands, and whether everybody gets it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::crowd::{Crowd, Side, Task};
use crate::member::SECTION;
use crate::options::Options;
use crate::report::{Goal, Row, latency, progress};
use crate::stats::{Spread, short};
use crate::visits::Round;

/// The rounds of both sides, measured alternately.
#[derive(Debug, Default)]
struct Pairs {
    sprag: Vec<Round>,
    flock: Vec<Round>,
}

impl Pairs {
    fn sprag(&self, figure: fn(&Round) -> f64) -> Vec<f64> {
        self.sprag.iter().map(figure).collect()
    }

    fn flock(&self, figure: fn(&Round) -> f64) -> Vec<f64> {
        self.flock.iter().map(figure).collect()
    }
}

/// Drain and closed loop.
pub(crate) fn measure(folder: &Path, options: &Options) -> Result<Vec<Row>> {
    let mut crowd = Crowd::start(folder, options.processes)?;
    // The first round of each side warms up files and caches, and does not count.
    both(&mut crowd, Duration::ZERO, 1, "warming up")?;
    let drain = both(&mut crowd, Duration::ZERO, options.pairs, "drain")?;
    let closed = both(&mut crowd, options.length, options.pairs, "closed loop")?;
    drop(crowd);
    let mut rows = drain_rows(&drain, options.processes);
    rows.extend(closed_loop_rows(&closed, options.processes));
    rows.extend(request_rows(&closed));
    Ok(rows)
}

fn both(crowd: &mut Crowd, length: Duration, pairs: usize, what: &str) -> Result<Pairs> {
    let mut all = Pairs::default();
    for pair in 1..=pairs {
        progress(&format!("{what}: pair {pair} of {pairs}"));
        let flock = crowd.round(Task { side: Side::Flock, length })?;
        let sprag = crowd.round(Task { side: Side::Sprag, length })?;
        ensure!(!sprag.overlapped(), "two processes were inside the lock at once");
        all.flock.push(flock);
        all.sprag.push(sprag);
    }
    Ok(all)
}

fn drain_rows(drain: &Pairs, processes: usize) -> Vec<Row> {
    let ours = drain.sprag(Round::drain_ms);
    let ideal = vec![SECTION.as_secs_f64() * 1000.0 * processes as f64; ours.len()];
    let what = format!("drain, {processes} processes, ms");
    vec![
        Row::pairs(&what, &ours, ("ideal", &ideal), Some(Goal::AtMost(1.3))),
        Row::pairs(&what, &ours, ("flock", &drain.flock(Round::drain_ms)), None),
        gap_row(drain),
    ]
}

/// The time between one leaving and the next being inside.
fn gap_row(pairs: &Pairs) -> Row {
    let gaps = |rounds: &[Round]| {
        let mut gaps: Vec<u64> = rounds.iter().flat_map(Round::gaps_micros).collect();
        gaps.sort_unstable();
        latency(&gaps)
    };
    Row {
        what: "… hand-off, ms".to_owned(),
        ours: gaps(&pairs.sprag),
        reference: format!("flock {}", gaps(&pairs.flock)),
        value: None,
        goal: None,
    }
}

fn closed_loop_rows(closed: &Pairs, processes: usize) -> Vec<Row> {
    let rate = |figure: fn(&Round) -> f64, what: &str, goal| {
        Row::pairs(what, &closed.sprag(figure), ("flock", &closed.flock(figure)), goal)
    };
    let beside = |figure: fn(&Round) -> f64, what: &str, goal| {
        let reference = format!("flock {}", Spread::of(&closed.flock(figure)));
        Row::absolute(what, &closed.sprag(figure), reference, goal)
    };
    vec![
        rate(
            Round::handoffs_per_second,
            &format!("closed loop, {processes} processes, hand-offs/s"),
            Some(Goal::AtLeast(0.8)),
        ),
        rate(Round::handoffs_to_another_per_second, "… to another process/s", None),
        gap_row(closed),
        beside(Round::max_to_min, "… fairness, max/min per process", Some(Goal::AtMost(1.2))),
        beside(Round::longest_wait_ms, "… longest single wait, ms", None),
    ]
}

/// The longest request of all rounds counts, and not the median of the longest.
fn request_rows(closed: &Pairs) -> Vec<Row> {
    let accounts = || closed.sprag.iter().flat_map(|round| &round.accounts);
    let mut acquire: Vec<u64> = accounts().flat_map(|a| a.acquire_micros.clone()).collect();
    let mut release: Vec<u64> = accounts().flat_map(|a| a.release_micros.clone()).collect();
    acquire.sort_unstable();
    release.sort_unstable();
    let longest = acquire.last().max(release.last()).copied().unwrap_or(0) as f64 / 1000.0;
    let row = |what: &str, sorted: &[u64]| Row {
        what: what.to_owned(),
        ours: latency(sorted),
        reference: String::new(),
        value: None,
        goal: None,
    };
    let total = acquire.len() + release.len();
    let reference = format!("{} requests", short(total as f64));
    vec![
        row("… store request try_acquire, ms", &acquire),
        row("… store request release, ms", &release),
        Row::absolute(
            "… longest store request, ms",
            &[longest],
            reference,
            Some(Goal::AtMost(500.0)),
        ),
    ]
}
