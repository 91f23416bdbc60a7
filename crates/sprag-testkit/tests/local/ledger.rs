//! Every conformance case on a ledger in memory: what git remotes and GitHub share.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sprag_core::{LockName, Store};
use sprag_ledger::{
    Abandoned, Change, Entry, Ledger, LedgerStore, MemoryLedger, New, RefName, Settings,
};
use sprag_testkit::harness::{Harness, Session};

struct InMemory(MemoryLedger);

fn settings() -> Settings {
    let mut settings = Settings::new("ledger");
    settings.capability.min_ttl = Duration::from_millis(100);
    settings.poll = Duration::from_millis(5)..=Duration::from_millis(40);
    // The cases are about who comes after the dead; that they may stay is tested in the crate.
    settings.abandoned = Abandoned::Freed;
    settings
}

#[async_trait]
impl Harness for InMemory {
    async fn fresh() -> Self {
        Self(MemoryLedger::default())
    }

    async fn session(&self) -> Arc<Session> {
        let store = LedgerStore::new(Arc::new(self.0.clone()), settings());
        let store: Arc<dyn Store> = Arc::new(store.expect("a thread"));
        Arc::new(Session::new(store, || {}))
    }

    fn sees_death(&self) -> bool {
        false
    }

    async fn write_record(&self, name: &LockName, text: &str) -> bool {
        let name = RefName::lock(name);
        let old = self.0.tips(std::slice::from_ref(&name)).expect("memory").remove(0);
        let entry = Entry { summary: "by hand".into(), body: text.into() };
        self.0.swap(&[Change { name, old, new: New::Entry(entry) }]).is_ok()
    }
}

sprag_testkit::conformance!(InMemory);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_one_process_drains_and_one_more_is_refused() {
    let ledger = InMemory::fresh().await;
    let most = ledger.client().await.capability().max_waiters;
    sprag_testkit::crowd::tasks_of_one_process_drain(&ledger, most).await;
}
