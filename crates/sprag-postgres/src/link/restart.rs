//! What becomes of the thread when something of ours panics.

use std::sync::Arc;

use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::support::eventually;
use tokio::sync::oneshot;

use super::{Call, Link};
use crate::config::{Address, PostgresConfig};

/// The thread dies, and then its connection too: who asks is answered all the same.
#[tokio::test]
async fn a_thread_that_dies_is_started_again() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let address = Address::Unix(database.folder(), database.port());
    let config = PostgresConfig::new(address, database.name()).user("postgres");
    let (tell, told) = oneshot::channel();
    let die = move |opened: sprag_core::Result<_>| {
        tell.send(opened.is_ok()).unwrap();
        panic!("as if something of ours had gone wrong");
    };
    let link = Link::start(config, &[], "sprag_nobody".into(), Arc::default(), None, die).unwrap();
    assert!(told.await.unwrap(), "not opened");
    for _ in 0..2 {
        database.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
        let answers = async || link.ask(Call::new("SELECT 'here'::text")).await.is_ok();
        eventually("it answers again", answers).await;
    }
}
