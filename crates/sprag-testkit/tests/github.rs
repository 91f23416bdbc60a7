//! Every conformance case on the GitHub store, with a GitHub of its own for each.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
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
            // Holders are compared whole.
            .show_node(true)
            // Records are written by hand here, and are to be believed at once.
            .lag(Duration::ZERO)
            .poll(Duration::from_millis(5)..=Duration::from_millis(40))
    }
}

#[async_trait]
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
             &notes=true&limits=false&show_node=true&poll_min_ms=5&poll_max_ms=40"
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

/// The same with a queue: what only then can be asked for.
struct Queued(GitHub);

#[async_trait]
impl Harness for Queued {
    async fn fresh() -> Self {
        Self(GitHub::fresh().await)
    }

    async fn session(&self) -> Arc<Session> {
        let store = GitHubStore::open(&self.0.config().queue(true)).unwrap();
        Arc::new(Session::new(Arc::new(store), || {}))
    }

    fn ttl(&self) -> Duration {
        self.0.ttl()
    }

    fn times(&self, many: usize) -> usize {
        many.min(20)
    }

    fn sees_death(&self) -> bool {
        false
    }
}

/// Makes one test of each case that is named.
macro_rules! queued {
    ($($file:ident { $($case:ident)+ })+) => {
        mod queued {
            $(mod $file {
                use super::super::*;

                $(#[test]
                fn $case() {
                    sprag_testkit::harness::run(async {
                        sprag_testkit::cases::$file::$case(&Queued::fresh().await).await;
                    });
                })+
            })+
        }
    };
}

queued! {
    queue {
        waiters_are_granted_in_order
        a_release_hands_over
        a_withdrawn_waiter_leaves_only_its_place
        a_release_before_the_wait_is_not_missed
        a_long_waiter_keeps_its_place
    }
    priority {
        a_higher_priority_goes_first
    }
    rw {
        readers_share_and_writers_do_not
        a_waiting_writer_is_not_overtaken
        a_dead_reader_frees_only_itself
    }
    upgrade {
        an_upgrade_waits_for_the_readers
        a_downgrade_lets_readers_in
    }
    permits {
        no_more_permits_than_there_are
        a_dead_holder_returns_its_permits
    }
    deadlock {
        a_circle_of_two_has_one_victim
    }
    contention {
        eight_sessions_exclude_each_other
        permits_mixed
    }
}
