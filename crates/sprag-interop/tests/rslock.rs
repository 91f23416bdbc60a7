//! rslock and we exclude each other, on one Redis server and by majority.

use std::process::Command;

use sprag_testkit::peers::exclude_each_other;

fn rslock() -> Option<Command> {
    Some(Command::new(env!("CARGO_BIN_EXE_rslock-peer")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rslock_and_we_exclude_each_other() {
    exclude_each_other(rslock, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rslock_and_we_exclude_each_other_by_majority() {
    exclude_each_other(rslock, 3).await;
}
