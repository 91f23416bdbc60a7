//! Every conformance case on the GitHub store, with a GitHub of its own for each.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use sprag::sprag_github::{Abandoned, GitHubConfig, GitHubStore, Token};
use sprag_core::LockName;
use sprag_github_sim::{Limits, Permission, Setup, Simulator};
use sprag_ledger::{Change, Entry, New, RefName};
use sprag_testkit::harness::{Harness, Session};
use sprag_testkit::process_conformance;

const TAKER: &str = env!("CARGO_BIN_EXE_sprag-taker");
const TOKEN: &str = "token-of-octocat";
const MANY: u64 = 1 << 40;

/// Its limits are generous: the cases are about locks. What limits do is tested in the crate.
struct GitHub {
    github: Simulator,
    folder: tempfile::TempDir,
}

impl GitHub {
    fn config(&self) -> GitHubConfig {
        GitHubConfig::new("acme", "app")
            .unwrap()
            .api(self.github.url())
            .unwrap()
            .token(Token::new(TOKEN).unwrap())
            .state(None)
            // The cases are about who comes after the dead; that they may stay is tested elsewhere.
            .abandoned(Abandoned::Freed)
            .notes(true)
            .limits(false)
            // Records are written by hand here, and are to be believed at once.
            .lag(Duration::ZERO)
            .poll(Duration::from_millis(5)..=Duration::from_millis(40))
    }
}

impl Harness for GitHub {
    async fn fresh() -> Self {
        let github = Setup::new(7).speed(1).start();
        github.limits(Limits {
            primary: MANY,
            graphql: MANY,
            points: MANY,
            graphql_points: MANY,
            concurrent: 100_000,
            ..Limits::GITHUB
        });
        github.add_token(TOKEN, "octocat");
        github.add_repo("acme/app");
        github.add_collaborator("acme/app", "octocat", Permission::Write);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), TOKEN).unwrap();
        Self { github, folder }
    }

    async fn session(&self) -> Arc<Session> {
        let store = GitHubStore::open(&self.config()).unwrap();
        Arc::new(Session::new(Arc::new(store), || {}))
    }

    fn url(&self) -> Option<String> {
        let (api, folder) = (self.github.url(), self.folder.path().display());
        Some(format!(
            "github://acme/app?api={api}&token_file={folder}/token&state={folder}&abandoned=freed\
             &notes=true&limits=false&poll_min_ms=5&poll_max_ms=40"
        ))
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(1200)
    }

    fn sees_death(&self) -> bool {
        false
    }

    async fn write_record(&self, name: &LockName, text: &str) -> bool {
        let store = GitHubStore::open(&self.config()).unwrap();
        let (ledger, name) = (Arc::clone(store.ledger().unwrap().ledger()), RefName::lock(name));
        let text = text.to_owned();
        let write = move || {
            let old = ledger.tips(std::slice::from_ref(&name)).unwrap().remove(0);
            let entry = Entry { summary: "by hand".into(), body: text };
            ledger.swap(&[Change { name, old, new: New::Entry(entry) }]).is_ok()
        };
        std::thread::spawn(write).join().unwrap()
    }
}

sprag_testkit::conformance!(GitHub);

process_conformance!(processes, GitHub, TAKER);
