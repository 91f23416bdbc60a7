//! One task, one lock that nobody else wants.

use std::path::Path;

use anyhow::Result;

use super::foreign;
use super::hand::ByHand;
use super::peers::{self, Peer};
use super::scripts::Scripts;
use crate::options::Options;
use crate::report::{Goal, Row, progress};
use crate::server::locker::Locker;
use crate::server::subject::Subject;
use crate::server::turns::cycles_per_second;

const LOCK: &str = "bench:uncontended";

/// sprag, what is sent by hand, and the other libraries in turn.
pub(crate) async fn measure(url: &str, folder: &Path, options: &Options) -> Result<Vec<Row>> {
    let mut sides: Vec<(&str, Box<dyn Locker>, Option<Goal>)> = vec![
        ("sprag", Box::new(Subject::open(url)?), None),
        ("our scripts by hand", Box::new(Scripts::new(url).await?), Some(Goal::AtLeast(0.95))),
        ("a bare fence by hand", Box::new(ByHand::new(url, true).await?), None),
        ("bare by hand", Box::new(ByHand::new(url, false).await?), Some(Goal::AtLeast(0.85))),
    ];
    for peer in Peer::ALL {
        let goal = if peer == Peer::Rslock { 0.95 } else { 1.0 };
        sides.push((
            peer.name(),
            peers::connect(peer, &[url.to_owned()]).await?,
            Some(Goal::AtLeast(goal)),
        ));
    }
    let mut figures = vec![Vec::new(); sides.len()];
    let mut others = vec![Vec::new(); foreign::ALL.len()];
    for pair in 0..=options.pairs {
        let mut turns: Vec<&mut dyn Locker> =
            sides.iter_mut().map(|(_, side, _)| &mut **side as _).collect();
        let rates = cycles_per_second(&mut turns, LOCK, options.turn()).await?;
        // The first time warms up, and does not count.
        if pair > 0 {
            figures.iter_mut().zip(rates).for_each(|(figures, rate)| figures.push(rate));
        }
        for (index, other) in foreign::ALL.iter().enumerate() {
            if pair > 0 {
                others[index].push(other.cycles_per_second(url, folder, options.turn()).await?);
            }
        }
        progress(&format!("uncontended: pair {pair} of {}", options.pairs));
    }
    let what = "uncontended acquire + release, cycles/s";
    let ours = &figures[0];
    let by_hand = sides.iter().zip(&figures).skip(1);
    let mut rows: Vec<_> = by_hand
        .map(|((name, _, goal), theirs)| Row::pairs(what, ours, (name, theirs), *goal))
        .collect();
    rows.extend(
        foreign::ALL
            .iter()
            .zip(&others)
            .map(|(other, theirs)| Row::pairs(what, ours, (other.name(), theirs), other.goal())),
    );
    Ok(rows)
}
