//! What the tests of the simulator share.

use sprag_github_sim::{Permission, Setup, Simulator, Talk};

/// The repository of all tests.
pub(crate) const REPO: &str = "octocat/locks";

/// A simulator with a repository of `octocat`, in which `worker` may push and `stranger` may not.
pub(crate) fn github() -> Simulator {
    furnished(Setup::new(1).checked().start())
}

/// The same, however it was started.
pub(crate) fn furnished(github: Simulator) -> Simulator {
    github.add_repo(REPO);
    for login in ["octocat", "worker", "stranger"] {
        github.add_token(&format!("{login}-token"), login);
    }
    github.add_collaborator(REPO, "worker", Permission::Write);
    github
}

/// Somebody who talks to it.
pub(crate) fn talk(github: &Simulator, login: &str) -> Talk {
    Talk::new(github.url(), Some(&format!("{login}-token")))
}

/// A path below the repository.
pub(crate) fn path(rest: &str) -> String {
    format!("/repos/{REPO}/{rest}")
}
