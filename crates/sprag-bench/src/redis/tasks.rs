//! Many tasks, each with a lock of its own, over one client.

use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;

use super::hand::ByHand;
use super::scripts::Scripts;
use crate::now_nanos;
use crate::options::Options;
use crate::report::{Goal, Row, progress};
use crate::server::locker::Locker;
use crate::server::subject::Subject;

pub(crate) async fn measure(url: &str, options: &Options) -> Result<Vec<Row>> {
    let (subject, by_hand) = (Subject::open(url)?, Scripts::new(url).await?);
    let bare = ByHand::new(url, true).await?;
    let (mut ours, mut theirs, mut bares) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..=options.pairs {
        let one = cycles_per_second(&subject, "sprag", options).await?;
        let other = cycles_per_second(&by_hand, "by-hand", options).await?;
        let bare = cycles_per_second(&bare, "bare", options).await?;
        if pair > 0 {
            progress(&format!("distinct locks: pair {pair} of {}", options.pairs));
            ours.push(one);
            theirs.push(other);
            bares.push(bare);
        }
    }
    let what = format!("{} tasks on distinct locks, cycles/s", options.processes);
    let by_hand = ("our scripts by hand, one connection", theirs.as_slice());
    let bare = ("a bare fence by hand, one connection", bares.as_slice());
    let goal = Some(Goal::AtLeast(0.8));
    Ok(vec![Row::pairs(&what, &ours, by_hand, goal), Row::pairs(&what, &ours, bare, None)])
}

async fn cycles_per_second<L: Locker + Clone + 'static>(
    locker: &L,
    name: &str,
    options: &Options,
) -> Result<f64> {
    let start = now_nanos();
    let end = start + u64::try_from(options.turn().as_nanos())?;
    let tasks = (0..options.processes).map(|task| {
        let (mut locker, lock) = (locker.clone(), format!("bench:{name}:{task}"));
        tokio::spawn(async move {
            let mut cycles = 0_u32;
            while now_nanos() < end {
                locker.visit(&lock, Duration::ZERO).await?;
                cycles += 1;
            }
            Ok::<_, anyhow::Error>(cycles)
        })
    });
    let cycles: Result<Vec<u32>> = try_join_all(tasks).await?.into_iter().collect();
    let sum: u32 = cycles?.iter().sum();
    Ok(f64::from(sum) / ((now_nanos() - start) as f64 / 1e9))
}
