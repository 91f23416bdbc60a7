//! Nodes whose clocks jump.

use std::time::Duration;

use metrics_util::debugging::DebuggingRecorder;
use sprag_testkit::redis_server::{RedisServer, RedisSetup, ShiftedClock};
use sprag_testkit::support::eventually;

use super::Scene;

/// The doctor tells of a node whose clock has jumped, and it is counted under the name of the store.
#[tokio::test]
async fn a_jump_of_a_nodes_clock_is_told() {
    if RedisServer::skipped() {
        return;
    }
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    recorder.install().unwrap();
    let clock = ShiftedClock::make();
    let jumps = RedisSetup::new().tcp().clock(&clock).start().await;
    let mut nodes = RedisServer::several(2, &RedisSetup::new().tcp()).await;
    nodes.push(jumps);
    let scene = Scene::of(nodes);
    let locks = scene.locks();
    let told = async || {
        let findings = locks.store().diagnose().await.unwrap();
        let address = scene.nodes[2].address();
        let tells = |text: &str| text.contains(&address) && text.contains("jumped by -3");
        findings.iter().any(|finding| tells(&finding.text))
    };
    assert!(!told().await);
    clock.behind(Duration::from_secs(3600));
    eventually("it is told", told).await;
    let counted = snapshots.snapshot().into_vec().into_iter().map(|(key, ..)| key.key().clone());
    let mut jumps = counted.filter(|key| key.name() == "sprag_store_clock_jumps_total");
    let stores: Vec<_> = jumps.next().unwrap().labels().map(|it| it.value().to_owned()).collect();
    assert_eq!((stores.as_slice(), jumps.next()), (&["redlock".to_owned()][..], None));
}
