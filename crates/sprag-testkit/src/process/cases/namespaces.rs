//! Processes that see other process ids than their neighbours.

use super::Scene;
use crate::process::{Answer, Ask, Command};
use crate::support::{LONG, name, now, until_unused, until_waiters};

/// Starts a program in a pid namespace of its own, where it has the number 1.
const UNSHARE: &[&str] = &["unshare", "--pid", "--fork", "--kill-child=SIGKILL", "--"];

/// F21: two processes with the same process id, in two pid namespaces and one folder, exclude
/// each other, and the death of one is seen by the other: liveness does not hang on process ids.
pub async fn equal_process_ids_in_two_namespaces_are_two_processes(scene: &Scene) {
    if !namespaces_are_allowed() {
        return;
    }
    let lock = name("report");
    let config = scene.config().through(UNSHARE);
    let mut holder = config.clone().name("holder").spawn().await;
    let mut other = config.name("other").spawn().await;
    assert_eq!((holder.own_id(), other.own_id()), (1, 1), "not in namespaces of their own");

    let held = holder.acquire(Ask::new(lock.clone(), scene.mortal_ttl())).await;
    let tried = other.ask(Command::Try(Ask::new(lock.clone(), LONG))).await;
    assert_eq!(tried, Answer::Held);
    let waiting = other.start(Command::Acquire(Ask::new(lock.clone(), LONG)));
    until_waiters(&scene.store, "report", 1).await;
    assert_eq!(holder.ask(Command::State(lock.clone())).await, Answer::Held);

    let died = now();
    // `unshare` takes its child with it.
    holder.kill().await;
    let granted = other.granted(waiting).await;
    let took = now().since(died);
    assert!(took < scene.death_is_seen_within(), "the death was seen after {took:?}");
    assert!(granted.fence > held.fence, "{granted:?} after {held:?}");
    assert_eq!(other.release(&lock).await, None);
    until_unused(&scene.store, "report").await;
}

/// Whether this machine lets us make pid namespaces. If it does not, the test fails, unless the
/// one who runs it knows.
fn namespaces_are_allowed() -> bool {
    let probe = std::process::Command::new(UNSHARE[0]).args(&UNSHARE[1..]).arg("true").output();
    let refusal = match probe {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    let skipped = std::env::var("SPRAG_SKIP").unwrap_or_default();
    assert!(
        skipped.split([',', ' ']).any(|word| word == "unshare"),
        "this machine refuses `unshare --pid --fork` ({}): run as root, or set SPRAG_SKIP=unshare \
         to go without this test",
        refusal.trim()
    );
    false
}
