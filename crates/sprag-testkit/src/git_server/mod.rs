//! Real git servers for tests: a bare repository by its path, behind `git daemon`, behind
//! [`GitHttp`] and behind an sshd, with references in files or reftables.

mod http;
mod repository;
mod server;
mod ssh;

pub use http::{GitHttp, HttpFault};
pub use repository::{RefFormat, Repository, programs};
pub use server::{GitServer, Transport};

/// Whether tests with git servers were declined: `SPRAG_SKIP=git`.
pub fn skipped() -> bool {
    std::env::var("SPRAG_SKIP").is_ok_and(|list| list.split(',').any(|name| name == "git"))
}
