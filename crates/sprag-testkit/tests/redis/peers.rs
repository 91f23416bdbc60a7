//! Other libraries and we exclude each other: redis-py, redlock of npm, and plain `redis-cli`.
//! Those written in Rust are in the package `sprag-interop`.

use std::path::{Path, PathBuf};
use std::process::Command;

use sprag_testkit::peers::exclude_each_other;

/// The folder with the programs of other libraries.
fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Where `cargo xtask` installs other libraries; none if their tests were declined.
fn installed(path: &str, command: &str) -> Option<PathBuf> {
    let skip = std::env::var("SPRAG_SKIP").unwrap_or_default();
    if skip.split(',').any(|name| name == "peers") {
        return None;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
    assert!(
        folder.join(path).exists(),
        "{path} is missing in target/peers; please type, at the root of the repository:\n  \
         {command}\nor leave out the tests with other libraries with SPRAG_SKIP=peers"
    );
    Some(folder.join(path))
}

fn redis_py() -> Option<Command> {
    let install = "python3 -m pip install --target target/peers/python redis==8.1.0";
    let module = installed("python/redis", install)?;
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", module.parent()?).arg(peers().join("redis_py.py"));
    Some(command)
}

fn redlock() -> Option<Command> {
    let install = "npm install --prefix target/peers/node redlock@4.2.0 ioredis@5.11.1";
    let module = installed("node/node_modules/redlock", install)?;
    let mut command = Command::new("node");
    command.env("NODE_PATH", module.parent()?).arg(peers().join("redlock.js"));
    Some(command)
}

fn redis_cli() -> Option<Command> {
    let mut command = Command::new("sh");
    command.arg(peers().join("plain.sh"));
    Some(command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py_and_we_exclude_each_other() {
    exclude_each_other(redis_py, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_of_npm_and_we_exclude_each_other() {
    exclude_each_other(redlock, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_cli_and_we_exclude_each_other() {
    exclude_each_other(redis_cli, 1).await;
}

/// Every library asks all three servers by itself, and a majority decides for all of us.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_of_npm_and_we_exclude_each_other_by_majority() {
    exclude_each_other(redlock, 3).await;
}
