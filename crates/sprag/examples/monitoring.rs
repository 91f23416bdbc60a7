//! Watches locks: how long the wait was, how much time is left, and the metrics of the client.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use sprag::{DistributedLock, Locks};
use tracing::{info, warn};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Any recorder of the `metrics` crate does, such as one for Prometheus.
    let recorder = DebuggingRecorder::new();
    let metrics = recorder.snapshotter();
    recorder.install()?;

    let folder = tempfile::tempdir()?;
    run(&format!("sqlite:{}/locks.db", folder.path().display())).await?;

    for (key, _, _, value) in metrics.snapshot().into_vec() {
        let (name, labels) = key.key().clone().into_parts();
        let labels: Vec<_> = labels.iter().map(metrics::Label::value).collect();
        let value = match value {
            DebugValue::Counter(count) => count.to_string(),
            DebugValue::Gauge(level) => level.to_string(),
            DebugValue::Histogram(samples) => format!("{} samples", samples.len()),
        };
        println!("{} {labels:?} = {value}", name.as_str());
    }
    Ok(())
}

/// Tells how long the lock was good before and after it was extended.
pub(crate) async fn run(url: &str) -> anyhow::Result<[Duration; 2]> {
    let lock = Locks::open(url)?;

    let start = lock.clock().now();
    let mut guard = lock.acquire("resource", Duration::from_secs(4)).await?;
    let waited = lock.clock().now().since(start);
    info!(resource = "resource", wait_ms = waited.as_millis(), "lock acquired");
    println!("waited {waited:?}");

    let before = guard.time_remaining();
    if before < Duration::from_secs(5) {
        warn!("lock about to expire, extending");
        lock.extend(&mut guard, Duration::from_secs(30)).await?;
    }
    let after = guard.time_remaining();
    println!("good for {before:.1?}, after the extension for {after:.1?}");

    let view = lock.inspect("resource").await?;
    for holder in &view.holders {
        println!("held by {} with fence {}", holder.holder.worker_id, holder.fence);
    }
    lock.release(guard).await?;
    Ok([before, after])
}
