//! Workers that are killed or stopped, and those who come after them.

use rustix::process::{Pid, Signal, kill_process};

use crate::shared::{wait_for, wait_until};
use crate::support::Shop;

fn pid(child: &std::process::Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

#[test]
fn a_killed_worker_of_this_machine_is_freed_and_its_work_is_kept() {
    let shop = Shop::new();
    shop.place("bugs/readyfordevelopment/x-00000001");
    let (started, child) = (shop.path("started"), shop.path("child"));
    let script = format!(
        "echo half > half.txt; git add .; git commit -qm half; echo more > more.txt; \
         echo $$ > {}; touch {}; exec sleep 100",
        child.display(),
        started.display()
    );
    let mut worker = shop.start("a", &["next", "--worktree", "--", "sh", "-c", &script]);
    wait_for(&started);
    shop.work("a", &["recover"]).exits(0);
    shop.work("a", &["next", "--", "true"]).exits(75);
    worker.kill().unwrap();
    worker.wait().unwrap();
    // The guardian ends the command first; only then the claim counts as dead.
    let command = std::fs::read_to_string(&child).unwrap();
    let mut freed = String::new();
    wait_until(
        || {
            freed = shop.work("a", &["recover"]).exits(0).out;
            freed.starts_with("freed x-00000001: owner tester@")
        },
        "the claim of the dead",
    );
    assert!(!std::path::Path::new("/proc").join(command.trim()).exists(), "it still runs");
    let kept =
        freed.split_whitespace().find(|word| word.starts_with("refs/sprag/rescue/")).unwrap();
    for file in ["half.txt", "more.txt"] {
        shop.git("remote.git", &["show", &format!("{kept}:{file}")]);
    }
    shop.assert_tidy("a");
    shop.work("a", &["next", "--worktree", "--", "true"]).exits(0);
    assert_eq!(shop.items(), ["bugs/readyfortesting/x-00000001"]);
}

#[test]
fn a_stopped_worker_elsewhere_is_freed_after_its_ttl_and_finds_out() {
    let shop = Shop::new();
    shop.rules("[work]\nrun_ttl = \"3s\"\n");
    shop.clone_named("b");
    shop.place("bugs/next/x-00000001");
    let (started, go) = (shop.path("started"), shop.path("go"));
    let script = format!(
        "touch {}; while [ ! -e {} ]; do sleep 0.1; done; echo late > late.txt",
        started.display(),
        go.display()
    );
    let mut worker = shop.start("a", &["next", "--worktree", "--", "sh", "-c", &script]);
    wait_for(&started);
    kill_process(pid(&worker), Signal::STOP).unwrap();
    wait_until(
        || shop.work("b", &["recover"]).exits(0).out.starts_with("freed x-00000001"),
        "the claim of the silent",
    );
    shop.work("b", &["claim", "x"]).exits(0);
    std::fs::write(&go, "").unwrap();
    kill_process(pid(&worker), Signal::CONT).unwrap();
    assert_eq!(worker.wait().unwrap().code(), Some(76), "it has to find out");
    assert_eq!(shop.items(), ["bugs/next/x-00000001"]);
    shop.work("b", &["done", "x"]).exits(0);
    assert_eq!(shop.items(), ["bugs/inanalysis/x-00000001"]);
}

#[test]
fn a_worker_that_is_asked_to_end_gives_its_item_back() {
    let shop = Shop::new();
    shop.place("bugs/next/x-00000001");
    let started = shop.path("started");
    let script = format!("touch {}; exec sleep 100", started.display());
    let mut worker = shop.start("a", &["next", "--worktree", "--", "sh", "-c", &script]);
    wait_for(&started);
    kill_process(pid(&worker), Signal::TERM).unwrap();
    assert_eq!(worker.wait().unwrap().code(), Some(143));
    assert_eq!(shop.refs(), ["refs/heads/main"]);
    shop.assert_tidy("a");
    shop.work("a", &["next", "--", "true"]).exits(0);
}
