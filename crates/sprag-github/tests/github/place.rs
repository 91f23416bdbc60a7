//! A GitHub on this machine with one repository, for each test its own.

use std::sync::Arc;
use std::time::Duration;

use sprag_core::clock::Clock;
use sprag_core::store::{Request, Takeover};
use sprag_core::{Client, Holder, LeaseId, LockName, Mode, PartyId};
use sprag_github::{GitHubConfig, GitHubStore, Token};
use sprag_github_sim::{Limits, Setup, Simulator};

pub(crate) const REPO: &str = "acme/app";
pub(crate) const TOKEN: &str = "token-of-octocat";

/// A GitHub whose clock follows the real one.
pub(crate) struct Place {
    pub(crate) github: Simulator,
    pub(crate) state: tempfile::TempDir,
    /// Whether our own budget counts.
    limits: bool,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(Setup::new(7).speed(1))
    }

    /// With a clock that only moves when it is told to.
    pub(crate) fn frozen() -> Self {
        Self::with(Setup::new(7))
    }

    fn with(setup: Setup) -> Self {
        let github = setup.checked().start();
        github.add_token(TOKEN, "octocat");
        github.add_repo(REPO);
        github.add_collaborator(REPO, "octocat", sprag_github_sim::Permission::Write);
        Self { github, state: tempfile::tempdir().unwrap(), limits: true }
    }

    /// Without limits worth the name.
    pub(crate) fn generous() -> Self {
        let place = Self { limits: false, ..Self::new() };
        place.unlimited();
        place
    }

    pub(crate) fn unlimited(&self) {
        const MANY: u64 = 1 << 40;
        self.github.limits(Limits {
            primary: MANY,
            graphql: MANY,
            points: MANY,
            graphql_points: MANY,
            content_per_minute: MANY,
            content_per_hour: MANY,
            concurrent: 10_000,
            ..Limits::GITHUB
        });
    }

    pub(crate) fn config(&self) -> GitHubConfig {
        self.config_for(REPO, TOKEN)
    }

    pub(crate) fn config_for(&self, repo: &str, token: &str) -> GitHubConfig {
        GitHubConfig::parse(repo)
            .unwrap()
            .api(self.github.url())
            .unwrap()
            .token(Token::new(token).unwrap())
            .state(Some(self.state.path().to_owned()))
            .limits(self.limits)
            .clock(self.github.clock() as Arc<dyn Clock>)
            .poll(Duration::from_millis(20)..=Duration::from_millis(200))
    }

    pub(crate) fn store(&self) -> GitHubStore {
        GitHubStore::open(&self.config()).unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(Arc::new(self.store()))
    }
}

/// Waits until something is so, with a limit.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool + Send + Sync) {
    let limit = tokio::time::Duration::from_secs(20);
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(limit, wait).await.is_ok(), "not in {limit:?}: {what}");
}

/// Asks for the lock of the first issue, without anybody who would renew it.
pub(crate) fn request(lease: u128, ttl: Duration) -> Request {
    Request {
        name: LockName::new("issue-1").unwrap(),
        lease: LeaseId::from_u128(lease),
        party: PartyId::from_u128(lease),
        mode: Mode::Exclusive,
        ttl,
        queue: false,
        priority: 0,
        holder: Holder::new(format!("worker-{lease}"), "node"),
        detached: false,
        fixed: false,
        takeover: Takeover::No,
        resize: false,
    }
}
