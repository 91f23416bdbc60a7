//! One task, one lock that nobody else wants.

use anyhow::Result;

use super::Place;
use super::advisory::{Blocking, Sqlx};
use super::hand::ByHand;
use super::own::OwnStatements;
use crate::options::Options;
use crate::report::{Goal, Row, progress};
use crate::server::locker::Locker;
use crate::server::subject::Subject;
use crate::server::turns::cycles_per_second;

const LOCK: &str = "bench:uncontended";

pub(crate) async fn measure(place: &Place, options: &Options) -> Result<Vec<Row>> {
    let plain = place.plain();
    let mut sides: [Box<dyn Locker>; 6] = [
        Box::new(Subject::open(&place.with_mode("advisory"))?),
        Box::new(Sqlx::new(&plain).await?),
        Box::new(Blocking::new(&plain).await?),
        Box::new(Subject::open(&place.with_mode("lease"))?),
        Box::new(OwnStatements::new(&plain).await?),
        Box::new(ByHand::new(&plain).await?),
    ];
    let mut figures = vec![Vec::new(); sides.len()];
    for pair in 0..=options.pairs {
        let mut turns: Vec<&mut dyn Locker> =
            sides.iter_mut().map(|side| &mut **side as _).collect();
        let rates = cycles_per_second(&mut turns, LOCK, options.turn()).await?;
        // The first time warms up, and does not count.
        if pair > 0 {
            figures.iter_mut().zip(rates).for_each(|(figures, rate)| figures.push(rate));
        }
        progress(&format!("uncontended: pair {pair} of {}", options.pairs));
    }
    let goal = Some(Goal::AtLeast(0.9));
    let [advisory, sqlx, blocking, lease, same, bare] = &figures[..] else {
        anyhow::bail!("a side is missing");
    };
    let row = |kind, ours: &[f64], theirs, goal| {
        Row::pairs(&format!("{kind}, acquire + release, cycles/s"), ours, theirs, goal)
    };
    Ok(vec![
        row("advisory", advisory, ("sqlx", sqlx), goal),
        row("advisory", advisory, ("pg_advisory_lock by hand", blocking), None),
        row("lease", lease, ("the same statements by hand", same), goal),
        row("lease", lease, ("a bare upsert and update by hand", bare), None),
    ])
}
