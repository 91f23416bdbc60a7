//! One task, one lock that nobody else wants.

use anyhow::Result;
use sprag_testkit::git_server::{GitServer, Transport};

use super::by_hand::ByHand;
use super::{TTL, client, seconds};
use crate::options::Options;
use crate::report::{Goal, Row, progress};

/// How many cycles are one measurement.
const CYCLES: u32 = 10;

pub(crate) async fn measure(options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (transport, what, goal) in [
        (
            Transport::File,
            "claim + release on a local bare repository, ms",
            Some(Goal::AtMost(1.3)),
        ),
        (Transport::Http, "claim + release over HTTP, ms", None),
    ] {
        let server = GitServer::start(transport).await;
        let client = client(&server)?;
        let mut by_hand = ByHand::new(&server)?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for pair in 0..=options.pairs {
            let mine = seconds(async {
                for _ in 0..CYCLES {
                    client.lock("bench").ttl(TTL).acquire().await?.release().await?;
                }
                Ok(())
            });
            let mine = mine.await?;
            let hand = seconds(async { (0..CYCLES).try_for_each(|_| by_hand.cycle("bench")) });
            let hand = hand.await?;
            // The first time warms up, and does not count.
            if pair > 0 {
                ours.push(mine * 1000.0 / f64::from(CYCLES));
                theirs.push(hand * 1000.0 / f64::from(CYCLES));
            }
            progress(&format!("{what}: pair {pair} of {}", options.pairs));
        }
        rows.push(Row::pairs(what, &ours, ("git by hand", &theirs), goal));
    }
    Ok(rows)
}
