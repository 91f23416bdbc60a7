//! One lock among a hundred thousand references.

use anyhow::Result;
use sprag_core::LockName;
use sprag_git::{Git, GitLedger};
use sprag_ledger::{Ledger as _, RefName};
use sprag_testkit::git_server::{GitServer, Transport};

use super::{TTL, client, seconds};
use crate::options::Options;
use crate::report::{Goal, Row, progress};

const REFERENCES: usize = 100_000;
/// How many looks are one measurement.
const LOOKS: u32 = 5;

pub(crate) async fn measure(options: &Options) -> Result<Row> {
    let server = GitServer::start(Transport::Http).await;
    let name = LockName::new("bench")?;
    client(&server)?.lock("bench").ttl(TTL).acquire().await?.release().await?;
    let lock = RefName::lock(&name);
    let tip = server.repository().run(&["rev-parse", lock.as_str()]);
    progress(&format!("making {REFERENCES} references"));
    let line = |number| format!("create refs/sprag/other/{number:06} {tip}\n");
    let orders: String = (0..REFERENCES).map(line).collect();
    let git = Git::new().repository(server.repository().path()).timeout(TTL);
    git.ok_with(["update-ref", "--stdin"], orders.as_bytes())?;
    git.ok(["pack-refs", "--all"])?;
    let (url, git) = (server.git_url(), Git::new());
    let ledger = GitLedger::open(server.config())?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for pair in 0..=options.pairs {
        let look = seconds(async {
            for _ in 0..LOOKS {
                let tips = ledger.tips(std::slice::from_ref(&lock))?;
                let found = tips.into_iter().flatten().map(|tip| (lock.clone(), tip));
                anyhow::ensure!(ledger.entries(&found.collect::<Vec<_>>())?.len() == 1);
            }
            Ok(())
        });
        let look = look.await?;
        let list = seconds(async {
            for _ in 0..LOOKS {
                git.ok(["ls-remote", &url])?;
            }
            Ok(())
        });
        let list = list.await?;
        if pair > 0 {
            ours.push(f64::from(LOOKS) / look);
            theirs.push(f64::from(LOOKS) / list);
        }
        progress(&format!("100,000 references: pair {pair} of {}", options.pairs));
    }
    let what = "state of one lock among 100,000 references over HTTP, looks/s";
    Ok(Row::pairs(what, &ours, ("git ls-remote", &theirs), Some(Goal::AtLeast(20.0))))
}
