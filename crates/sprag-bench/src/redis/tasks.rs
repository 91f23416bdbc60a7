//! Many tasks, each with a lock of its own, over one client.

use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;

use super::hand::ByHand;
use super::peers::{self, Peer};
use super::scripts::Scripts;
use crate::now_nanos;
use crate::options::Options;
use crate::report::{Goal, Row, progress};
use crate::server::locker::Locker;
use crate::server::subject::Subject;
use crate::server::turns::Crowd;

/// Other libraries. None of those that were found has fences, and the fourth blocks its thread.
const PEERS: [Peer; 3] = [Peer::Rslock, Peer::RedisLock, Peer::DistributedLock];

/// Who is measured, and what is to be reached against it.
struct Side {
    name: String,
    crowd: Crowd,
    goal: Option<Goal>,
    figures: Vec<f64>,
}

pub(crate) async fn measure(url: &str, options: &Options) -> Result<Vec<Row>> {
    let mut sides = sides(url, options.processes).await?;
    for pair in 0..=options.pairs {
        for (index, side) in sides.iter_mut().enumerate() {
            let figure = cycles_per_second(&mut side.crowd, index, options).await?;
            if pair > 0 {
                side.figures.push(figure);
            }
        }
        progress(&format!("distinct locks: pair {pair} of {}", options.pairs));
    }
    let what = format!("{} tasks on distinct locks, cycles/s", options.processes);
    let (ours, others) = sides.split_first().expect("we are the first side");
    let row =
        |other: &Side| Row::pairs(&what, &ours.figures, (&other.name, &other.figures), other.goal);
    Ok(others.iter().map(row).collect())
}

/// We are the first.
async fn sides(url: &str, tasks: usize) -> Result<Vec<Side>> {
    let one_client = |name: &str, locker: &dyn Fn() -> Box<dyn Locker>, goal| Side {
        name: name.to_owned(),
        crowd: (0..tasks).map(|_| locker()).collect(),
        goal,
        figures: Vec::new(),
    };
    let (subject, by_hand) = (Subject::open(url)?, Scripts::new(url).await?);
    let bare = ByHand::new(url, true).await?;
    let goal = Some(Goal::AtLeast(0.8));
    let scripts = "our scripts by hand, one connection";
    let mut sides = vec![
        one_client("sprag", &|| Box::new(subject.clone()), None),
        one_client(scripts, &|| Box::new(by_hand.clone()), goal),
        one_client("a bare fence by hand, one connection", &|| Box::new(bare.clone()), None),
    ];
    for peer in PEERS {
        let (mut crowd, name) = (Crowd::new(), peer.name());
        for _ in 0..tasks {
            crowd.push(peers::connect(peer, &[url.to_owned()]).await?);
        }
        let name = format!("{name}, no fences, a client for each");
        sides.push(Side { name, crowd, goal: None, figures: Vec::new() });
    }
    Ok(sides)
}

async fn cycles_per_second(crowd: &mut Crowd, side: usize, options: &Options) -> Result<f64> {
    let start = now_nanos();
    let end = start + u64::try_from(options.turn().as_nanos())?;
    let tasks = std::mem::take(crowd).into_iter().enumerate().map(|(task, mut locker)| {
        let lock = format!("bench:{side}:{task}");
        tokio::spawn(async move {
            let mut cycles = 0_u32;
            while now_nanos() < end {
                locker.visit(&lock, Duration::ZERO).await?;
                cycles += 1;
            }
            Ok::<_, anyhow::Error>((locker, cycles))
        })
    });
    let mut sum = 0;
    for done in try_join_all(tasks).await? {
        let (locker, cycles) = done?;
        crowd.push(locker);
        sum += cycles;
    }
    Ok(f64::from(sum) / ((now_nanos() - start) as f64 / 1e9))
}
