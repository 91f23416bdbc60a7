//! A log that is not written at once while it is rewritten promises nothing (F26 of `docs/faults.md`).

use sprag::Locks;
use sprag_core::Level;
use sprag_testkit::redis_server::{RedisServer, RedisSetup};

#[tokio::test]
async fn a_log_that_stops_at_a_rewrite_counts_as_none() {
    if RedisServer::skipped() {
        return;
    }
    for (stops, level) in [("no", Level::LeaseExclusive), ("yes", Level::Efficiency)] {
        let setup = RedisSetup::new().set("appendonly", "yes").set("appendfsync", "always");
        let server = setup.set("no-appendfsync-on-rewrite", stops).start().await;
        let locks = Locks::open(&server.url()).unwrap();
        assert_eq!(locks.capability().level, level, "no-appendfsync-on-rewrite {stops}");
        let findings = locks.store().diagnose().await.unwrap();
        let told = findings.iter().any(|finding| finding.text.contains("is rewritten"));
        assert_eq!(told, stops == "yes", "{findings:?}");
    }
}
