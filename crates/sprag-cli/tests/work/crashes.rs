//! kill -9 at every step: a `git` that kills whoever called it.

use std::ffi::OsString;

use crate::support::{Shop, is_full};

/// How many steps there are to die at, at least: a claim, a worktree, a merge.
const STEPS: usize = 20;

/// A `git` that counts its calls, and at one of them kills its caller, before or after it has done
/// its work.
fn deadly(shop: &Shop, step: usize, before: bool) -> OsString {
    let count = shop.path("count");
    let (first, last) = if before { ("kill -9 $PPID", ":") } else { (":", "kill -9 $PPID") };
    shop.git_that(&format!(
        "n=$(cat {count} 2>/dev/null || echo 0); n=$((n+1)); echo $n > {count}\n\
         if [ $n -eq {step} ]; then {first}; $real \"$@\"; r=$?; {last}; exit $r; fi\n\
         exec $real \"$@\"\n",
        count = count.display()
    ))
}

fn crash(step: usize, before: bool) -> bool {
    let shop = Shop::new();
    shop.rules("[work]\nrun_ttl = \"5s\"\n");
    shop.place("bugs/readyfordevelopment/x-00000001");
    let path = deadly(&shop, step, before);
    let script = "echo done > result.txt";
    let mut command = shop.command("a", &["next", "--worktree", "--", "sh", "-c", script]);
    let ended = command.env("PATH", path).output().unwrap().status;
    let died = ended.code().is_none();
    let what = format!("killed at step {step}, before: {before}, {ended:?}");
    // Whatever it was, somebody clears up and the work goes on.
    let limit = 60;
    for turn in 0..=limit {
        shop.work("a", &["recover"]).exits(0);
        if shop.items() == ["bugs/readyfortesting/x-00000001"] {
            break;
        }
        assert!(turn < limit, "{what}: {:?} {:?}", shop.items(), shop.refs());
        let args =
            ["next", "--worktree", "--state", "readyfordevelopment", "--", "sh", "-c", script];
        let answer = shop.work("a", &args);
        // On a busy machine a short lease may be lost; that is no harm either.
        assert!(matches!(answer.code, Some(0 | 75 | 76)), "{what}: {answer:?}");
    }
    shop.work("a", &["recover"]).exits(0);
    assert_eq!(shop.git("remote.git", &["show", "main:result.txt"]), "done", "{what}");
    let merges = shop.git("remote.git", &["log", "--merges", "--format=%s", "main"]);
    assert_eq!(merges.lines().count(), 1, "{what}: {merges}");
    // Work that was left on a branch on purpose may stay.
    for branch in shop.refs() {
        if branch.starts_with("refs/heads/unfinished/") {
            shop.git("remote.git", &["update-ref", "-d", &branch]);
        }
    }
    shop.wait_for_tidy_remote(&["a"], &what);
    shop.assert_tidy("a");
    died
}

#[test]
fn whoever_is_killed_at_any_step_leaves_nothing_that_is_not_cleared_up() {
    let full = is_full();
    let mut deaths = 0;
    let mut step = 1;
    // Until it lives to its end.
    loop {
        let died = [true, false].map(|before| crash(step, before));
        deaths += died.iter().filter(|died| **died).count();
        if died == [false, false] {
            break;
        }
        step += if full { 1 } else { 13 };
    }
    assert!(step >= STEPS, "only {step} steps: does it still kill?");
    assert!(deaths > 0);
}
