//! Many locks at once.

use anyhow::Result;
use futures::future::try_join_all;
use sprag_testkit::git_server::{GitServer, Transport};

use super::{TTL, client, seconds};
use crate::options::Options;
use crate::report::{Goal, Row, progress};

const CLAIMS: usize = 100;

pub(crate) async fn measure(options: &Options) -> Result<Row> {
    let server = GitServer::start(Transport::File).await;
    let (mut at_once, mut one_by_one) = (Vec::new(), Vec::new());
    for pair in 0..=options.pairs {
        // A client of its own each time, so that nobody has read anything before.
        let client = client(&server)?;
        let name = |number: usize| format!("batch-{pair}-{number}");
        let mut held = Vec::new();
        let together = seconds(async {
            let claims = (0..CLAIMS).map(|number| client.lock(name(number)).ttl(TTL).acquire());
            held = try_join_all(claims).await?;
            Ok(())
        });
        let together = together.await?;
        try_join_all(held.drain(..).map(|guard| guard.release())).await?;
        let apart = seconds(async {
            for number in 0..CLAIMS {
                held.push(client.lock(name(CLAIMS + number)).ttl(TTL).acquire().await?);
            }
            Ok(())
        });
        let apart = apart.await?;
        try_join_all(held.drain(..).map(|guard| guard.release())).await?;
        if pair > 0 {
            at_once.push(CLAIMS as f64 / together);
            one_by_one.push(CLAIMS as f64 / apart);
        }
        progress(&format!("100 claims: pair {pair} of {}", options.pairs));
    }
    let what = "100 claims in one batch, claims/s";
    Ok(Row::pairs(what, &at_once, ("one by one", &one_by_one), Some(Goal::AtLeast(8.0))))
}
