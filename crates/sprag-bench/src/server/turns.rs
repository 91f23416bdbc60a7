//! Who takes turns: one alone, or many who want the same lock.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use tokio::sync::Barrier;

use super::locker::Locker;
use crate::now_nanos;
use crate::stats::percentile;
use crate::visits::{Account, Round};

/// How long everybody of a crowd stays inside.
pub(crate) const SECTION: Duration = Duration::from_millis(1);

pub(crate) type Crowd = Vec<Box<dyn Locker>>;

/// One task, one lock that nobody else wants.
pub(crate) async fn cycles_per_second(
    side: &mut dyn Locker,
    lock: &str,
    length: Duration,
) -> Result<f64> {
    let start = now_nanos();
    let end = start + u64::try_from(length.as_nanos())?;
    let mut cycles = 0_u32;
    loop {
        let visit = side.visit(lock, Duration::ZERO).await?;
        cycles += 1;
        if visit.left >= end {
            return Ok(f64::from(cycles) / ((visit.left - start) as f64 / 1e9));
        }
    }
}

/// Lets everybody go at the same time; a length of zero means to enter once.
pub(crate) async fn round(crowd: &mut Crowd, lock: &str, length: Duration) -> Result<Round> {
    let gate = Arc::new(Barrier::new(crowd.len() + 1));
    let length = u64::try_from(length.as_nanos())?;
    let tasks = std::mem::take(crowd).into_iter().map(|mut locker| {
        let (gate, lock) = (Arc::clone(&gate), lock.to_owned());
        tokio::spawn(async move {
            gate.wait().await;
            let end = now_nanos() + length;
            let mut visits = Vec::new();
            loop {
                visits.push(locker.visit(&lock, SECTION).await?);
                if now_nanos() >= end {
                    break;
                }
            }
            Ok::<_, anyhow::Error>((locker, Account { visits, ..Account::default() }))
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let started = now_nanos();
    gate.wait().await;
    let mut accounts = Vec::new();
    for done in try_join_all(tasks).await? {
        let (locker, account) = done?;
        crowd.push(locker);
        accounts.push(account);
    }
    Ok(Round { started, stopped: started + length, accounts })
}

/// A percentile of the time between two visits, in microseconds.
pub(crate) fn gap<const PERCENT: usize>(round: &Round) -> f64 {
    let mut gaps = round.gaps_micros();
    gaps.sort_unstable();
    percentile(&gaps, PERCENT) as f64
}

/// A figure of each round.
pub(crate) fn figures(rounds: &[Round], figure: fn(&Round) -> f64) -> Vec<f64> {
    rounds.iter().map(figure).collect()
}
