//! What the client counts has the names and labels that docs/metrics.md promises.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metrics_util::debugging::DebuggingRecorder;
use sprag::{Locks, Strategy};

type Labels = BTreeSet<String>;

/// Name and labels of each metric, from the first table of the document.
fn documented() -> BTreeMap<String, Labels> {
    let document = include_str!("../../../docs/metrics.md");
    // Those of work items are not the client's.
    let ours = |line: &&str| line.starts_with("| `sprag_") && !line.starts_with("| `sprag_work_");
    let rows = document.lines().filter(ours);
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let labels = cells[3].split(' ').map(|label| label.trim_matches('`').to_owned());
        (cells[1].trim_matches('`').to_owned(), labels.collect())
    })
    .collect()
}

#[tokio::test]
async fn what_is_counted_is_documented() {
    let recorder = DebuggingRecorder::new();
    let metrics = recorder.snapshotter();
    recorder.install().unwrap();

    let locks = Locks::builder("memory:").allow_force(true).open().unwrap();
    let request = || locks.lock("x").own_party().no_renewal();
    // Acquired and extended, acquired after a wait, taken by force, broken, lost.
    let short = Duration::from_millis(300);
    let mut guard = request().ttl(short).acquire().await.unwrap();
    guard.extend(short).await.unwrap();
    let next = request().acquire().await.unwrap();
    let mut thief = request().strategy(Strategy::ForceAcquire).acquire().await.unwrap();
    locks.evict("x", thief.fence(), "test").await.unwrap();
    thief.extend(short).await.unwrap_err();
    drop((guard, next, thief));

    let documented = documented();
    let mut seen = BTreeSet::new();
    for (key, ..) in metrics.snapshot().into_vec() {
        let (name, labels) = key.key().clone().into_parts();
        let labels: Labels = labels.iter().map(|label| label.key().to_owned()).collect();
        assert_eq!(documented.get(name.as_str()), Some(&labels), "{}", name.as_str());
        seen.insert(name.as_str().to_owned());
    }
    // The others need a store that fails, or more time than a test should take.
    let rest =
        ["sprag_deadlocks_total", "sprag_store_clock_jumps_total", "sprag_store_retries_total"]
            .map(str::to_owned);
    let all: BTreeSet<_> = seen.into_iter().chain(rest).collect();
    assert_eq!(all, documented.into_keys().collect());
}
