//! Work items in a git repository, or issues on GitHub: each is claimed by one worker at a time,
//! moved on when it is done, and free again when its worker dies.
//!
//! ```text
//!   Flow (pure): states and steps      Source: where items come from      Worker: one after the other
//!                        \__ GitSource: folders on main, locks and branches on the remote __/
//!                        \__ GitHubSource: issues, locks in refs, shown on the issue _______/
//! ```
//!
//! # Examples
//!
//! ```
//! use std::path::Path;
//! use sprag_core::{Holder, LockGuard};
//! use sprag_work::{GitSource, Outcome, Rules, Task, Worker};
//!
//! fn work_off(clone: &Path) -> sprag_work::Result<usize> {
//!     let source = GitSource::open(clone, &Rules::default(), Holder::this_process())?;
//!     let mut worker = Worker::new(source, |task: &Task, claim: &LockGuard| {
//!         // ... work in task.directory for as long as the claim is valid ...
//!         match claim.is_valid() {
//!             true => Outcome::Done { category: Some("bugs".to_owned()) },
//!             false => Outcome::Failed { why: format!("{} is lost", task.item.name) },
//!         }
//!     });
//!     Ok(worker.drain(|turn| drop(turn.to_string()))?.len())
//! }
//! # let folder = tempfile::tempdir().unwrap();
//! # let git = |args: &[&str]| sprag_git::Git::new().directory(folder.path()).ok(args).unwrap();
//! # git(&["init", "-q", "--bare", "-b", "main", "remote.git"]);
//! # git(&["clone", "-q", "remote.git", "clone"]);
//! # git(&["-C", "clone", "-c", "user.name=me", "-c", "user.email=me@here", "commit", "-q", "--allow-empty", "-m", "start"]);
//! # git(&["-C", "clone", "push", "-q", "origin", "HEAD:main"]);
//! # let clone = folder.path().join("clone");
//! # let source = GitSource::open(&clone, &Rules::default(), Holder::this_process())?;
//! # let name = sprag_work::ItemName::new("lostmypassword")?;
//! # source.create(&sprag_work::NewItem { name, text: None, priority: 0 })?;
//! assert_eq!(work_off(&clone)?, 7); // From new to production.
//! # Ok::<(), sprag_work::Error>(())
//! ```

mod board;
mod error;
mod flow;
mod git;
mod github;
mod item;
mod name;
mod note;
mod repo;
mod source;
mod stats;
mod task;
mod telemetry;
mod worker;

pub use board::{Board, Owner, Row};
pub use error::{Error, ErrorKind, Next, Result};
pub use flow::{Flow, Ignored, Place, Rules, State, Step, StepRule};
pub use git::{CLAIM_TTL, Fate, GitClaim, GitSource, NewItem, RUN_TTL, Recover, Recovered};
pub use github::{After, GitHubClaim, GitHubRules, GitHubSource, Spans};
pub use item::{Item, in_order};
pub use name::ItemName;
pub use note::Note;
pub use repo::{Remote, Repo};
pub use source::{Claim, Claimed, How, Items, Purpose, Ready, Skipped, Source, Wanted};
pub use stats::Stats;
pub use task::{Finished, Issue, Leftover, Outcome, Task};
pub use worker::{Chosen, Handler, Turn, Worker, next};
