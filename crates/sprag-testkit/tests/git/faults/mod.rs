//! Git servers and the way to them, broken on purpose. Each test names its scenario of
//! `docs/faults.md`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod refusals;
mod strangers;

use std::sync::Arc;
use std::time::Duration;

use sprag::{Abandoned, Client, GitConfig, GitLedger, open_git};
use sprag_ledger::{Change, Entry, Ledger, New, Oid, RefName};
use sprag_testkit::git_server::GitServer;

/// A lease that ends within a test. Long enough for ten requests under load.
const SHORT: Duration = Duration::from_secs(3);

fn ledger(server: &GitServer) -> GitLedger {
    GitLedger::open(server.config()).unwrap()
}

fn quick(config: GitConfig) -> GitConfig {
    let poll = Duration::from_millis(20)..=Duration::from_millis(100);
    config.poll(poll).abandoned(Abandoned::Freed)
}

fn client(server: &GitServer) -> Client {
    Client::new(Arc::new(open_git(quick(server.config())).unwrap()))
}

fn reference(name: &str) -> RefName {
    RefName::new(format!("refs/sprag/test/{name}")).unwrap()
}

fn entry(text: &str) -> Entry {
    Entry { summary: text.into(), body: "{}".into() }
}

fn write(name: &str, old: Option<&Oid>) -> Change {
    Change { name: reference(name), old: old.cloned(), new: New::Entry(entry(name)) }
}

fn tip(ledger: &impl Ledger, name: &str) -> Option<Oid> {
    ledger.tips(&[reference(name)]).unwrap().remove(0)
}
