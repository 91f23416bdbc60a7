//! Who takes turns: one alone, or many who want the same lock.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use tokio::sync::Barrier;

use super::locker::Locker;
use crate::now_nanos;
use crate::stats::{Spread, percentile};
use crate::visits::{Account, Round};

/// How long everybody of a crowd stays inside.
pub(crate) const SECTION: Duration = Duration::from_millis(1);
/// How long one goes on alone before it is another's turn.
const TURN: Duration = Duration::from_millis(50);

pub(crate) type Crowd = Vec<Box<dyn Locker>>;

/// Cycles per second of each side: one task, one lock that nobody else wants. They take many short turns,
/// so that what else the machine does weighs on all of them; of a side's turns the median counts.
pub(crate) async fn cycles_per_second(
    sides: &mut [&mut dyn Locker],
    lock: &str,
    length: Duration,
) -> Result<Vec<f64>> {
    let mut rates = vec![Vec::new(); sides.len()];
    for _ in 0..length.as_millis().div_ceil(TURN.as_millis()) {
        // In any order, as each leaves the processors and the servers behind in some state.
        let mut order: Vec<usize> = (0..sides.len()).collect();
        fastrand::shuffle(&mut order);
        for number in order {
            rates[number].push(turn(sides[number], &format!("{lock}:{number}")).await?);
        }
    }
    Ok(rates.iter().map(|rates| Spread::of(rates).median).collect())
}

/// Cycles per second in one turn.
async fn turn(side: &mut dyn Locker, lock: &str) -> Result<f64> {
    let start = now_nanos();
    let end = start + u64::try_from(TURN.as_nanos())?;
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
