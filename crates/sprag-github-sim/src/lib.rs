//! A GitHub for tests: stateful and deterministic, on a real port of this machine.
//!
//! [`Simulator`] has accounts and tokens, repositories, issues with their assignees and comments,
//! references and commits. It answers as GitHub documents it, with its limits, and on demand with
//! replicas that are behind and with every kind of [`Fault`]. Time is its own: [`SimClock`].
//!
//! ```
//! use sprag_github_sim::Simulator;
//!
//! let github = Simulator::start(1);
//! github.add_token("secret", "octocat");
//! github.add_repo("octocat/locks");
//! let issue = github.add_issue("octocat/locks", "Build is red");
//! // ... a client works with `github.url()` and the token ...
//! let state = github.state();
//! let issue = state.repo("octocat/locks").and_then(|repo| repo.issue(issue)).unwrap();
//! assert!(issue.now().assignees.is_empty());
//! assert_eq!(github.counters().len(), 0);
//! ```

mod api;
mod clock;
mod counters;
mod emulate;
mod engine;
mod faults;
mod gh;
mod graphql;
mod hash;
mod http;
mod limits;
mod openapi;
mod peers;
pub mod proof;
mod simulator;
mod stamp;
mod world;

pub use clock::SimClock;
pub use counters::{Call, Counters};
pub use emulate::Emulate;
pub use faults::{Fault, FaultPlan, Target};
pub use gh::{GH_HOST, Gh};
pub use http::{Answer, Body, Request, Talk};
pub use limits::{Limits, Manner};
pub use openapi::{Checker, Violation};
pub use simulator::{Setup, Simulator};
pub use stamp::Stamp;
pub use world::{
    Access, Comment, CommentState, Commit, Fate, Git, Issue, IssueState, Level, Permission, Repo,
    User, World,
};
