//! Runs every example on each store and checks what it shows.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../examples/backoff.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod backoff;
#[path = "../examples/basic.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod basic;
#[path = "../examples/checkpoint.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod checkpoint;
#[path = "../examples/compaction.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod compaction;
#[path = "../examples/extension.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod extension;
#[path = "../examples/fencing.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod fencing;
#[path = "../examples/leader_election.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod leader_election;
#[path = "../examples/monitoring.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod monitoring;
#[cfg(feature = "sqlite")]
#[path = "../examples/quickstart.rs"]
mod quickstart;
#[path = "../examples/sorted_multi_lock.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod sorted_multi_lock;
#[path = "../examples/task_queue.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod task_queue;
#[path = "../examples/try_acquire.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod try_acquire;

mod place;

use std::time::Duration;

use place::{Place, on_each_store};

on_each_store! {
    basic_is_exclusive_while_held,
    try_acquire_skips_what_is_held,
    extension_outlives_the_ttl,
    checkpoints_have_growing_fences,
    each_leader_has_a_larger_epoch,
    compaction_is_done_or_skipped,
    each_task_is_executed_once,
    both_orders_get_both_locks,
    backoff_ends_when_it_is_free,
    monitoring_sees_the_extension,
    a_late_writer_is_refused,
}

async fn basic_is_exclusive_while_held(place: Place) {
    assert_eq!(basic::run(&place.url).await.unwrap(), (true, false));
}

async fn try_acquire_skips_what_is_held(place: Place) {
    let done = try_acquire::run(&place.url).await.unwrap();
    assert_eq!(done, ["lock held by another instance", "cleaned up"]);
}

async fn extension_outlives_the_ttl(place: Place) {
    assert_eq!(extension::run(&place.url).await.unwrap(), 6);
}

async fn checkpoints_have_growing_fences(place: Place) {
    let fences = checkpoint::run(&place.url).await.unwrap();
    assert_eq!(fences.len(), 3);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

async fn each_leader_has_a_larger_epoch(place: Place) {
    let epochs = leader_election::run(&place.url).await.unwrap();
    assert!(epochs.len() >= 2 && epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
}

async fn compaction_is_done_or_skipped(place: Place) {
    let (compacted, skipped) = compaction::run(&place.url).await.unwrap();
    assert_eq!(compacted + skipped, 6);
    assert!(compacted >= 2);
}

async fn each_task_is_executed_once(place: Place) {
    let executed = task_queue::run(&place.url).await.unwrap();
    assert_eq!(executed.len(), 8);
    assert!(executed.values().all(|&times| times == 1), "{executed:?}");
}

async fn both_orders_get_both_locks(place: Place) {
    assert_eq!(sorted_multi_lock::run(&place.url).await.unwrap(), 41);
}

async fn backoff_ends_when_it_is_free(place: Place) {
    assert!(backoff::run(&place.url).await.unwrap() >= 1);
}

async fn monitoring_sees_the_extension(place: Place) {
    let [before, after] = monitoring::run(&place.url).await.unwrap();
    assert!(before < Duration::from_secs(4) && after > Duration::from_secs(25));
}

async fn a_late_writer_is_refused(place: Place) {
    let (content, refused) = fencing::run(&place.url).await.unwrap();
    assert_eq!((&*content, &*refused), ("new", "a later holder has written already"));
}

/// The one example that uses the store in the state directory, so it gets one of its own: in a
/// child process, because the environment belongs to the whole process.
#[cfg(feature = "sqlite")]
#[test]
fn quickstart_makes_a_store_in_the_state_directory() {
    const CHILD: &str = "SPRAG_TEST_QUICKSTART";
    if std::env::var_os(CHILD).is_some() {
        return quickstart::run().unwrap();
    }
    let state = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "quickstart_makes_a_store_in_the_state_directory", "--nocapture"])
        .env(CHILD, "1")
        .env("XDG_STATE_HOME", state.path())
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("held, with fence ") && shown.contains("only one process is here"));
    assert!(state.path().join("sprag/sprag.db").is_file());
}

/// Nobody forgets to run a new example here.
#[test]
fn every_example_is_run() {
    let this = include_str!("examples.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap().file_name().into_string().unwrap();
        let name = file.strip_suffix(".rs").unwrap();
        assert!(this.contains(&format!("{name}::run(")), "{file} is not run");
    }
}
