//! Every conformance case on locks in a git repository, with a fresh one for each.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sprag::{Abandoned, GitLedger};
use sprag_core::{LockName, Store};
use sprag_ledger::{Change, Entry, Ledger, LedgerStore, New, RefName, Settings};
use sprag_testkit::git_server::{GitServer, Transport, skipped};
use sprag_testkit::harness::{Harness, Session};
use sprag_testkit::process_conformance;

const TAKER: &str = env!("CARGO_BIN_EXE_sprag-taker");

struct Git(GitServer);

impl Git {
    fn ledger(&self) -> Arc<GitLedger> {
        Arc::new(GitLedger::open(self.0.config()).expect("git is there"))
    }
}

#[async_trait]
impl Harness for Git {
    fn skipped() -> bool {
        skipped()
    }

    async fn fresh() -> Self {
        Self(GitServer::start(Transport::File).await)
    }

    async fn session(&self) -> Arc<Session> {
        let mut settings = Settings::new("git");
        settings.capability.min_ttl = Duration::from_millis(100);
        // Each look is a process of the server.
        settings.poll = Duration::from_millis(50)..=Duration::from_millis(200);
        // The cases are about who comes after the dead.
        settings.abandoned = Abandoned::Freed;
        let store = LedgerStore::new(self.ledger(), settings).expect("a thread");
        Arc::new(Session::new(Arc::new(store) as Arc<dyn Store>, || {}))
    }

    fn url(&self) -> Option<String> {
        Some(format!("{}?abandoned=freed&poll_ms=50", self.0.url()))
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(1200)
    }

    fn times(&self, many: usize) -> usize {
        (many / 25).max(3)
    }

    fn sees_death(&self) -> bool {
        false
    }

    async fn write_record(&self, name: &LockName, text: &str) -> bool {
        let (ledger, name) = (self.ledger(), RefName::lock(name));
        let old = ledger.tips(std::slice::from_ref(&name)).expect("it can be read").remove(0);
        let entry = Entry { summary: "by hand".into(), body: text.into() };
        ledger.swap(&[Change { name, old, new: New::Entry(entry) }]).is_ok()
    }
}

sprag_testkit::conformance!(Git);

process_conformance!(processes, Git, TAKER);
