//! What may happen to a worker at any time and must not make a difference.

use crate::support::Shop;

#[test]
fn a_worktree_in_the_making_is_not_taken_for_damage() {
    let shop = Shop::new();
    shop.place("bugs/readyfordevelopment/x-00000001");
    // What git 2.39 says while another one of the same clone makes a worktree.
    let (once, says) = (shop.path("once"), "fatal: bad object worktrees/y-00000002/HEAD");
    let path = shop.git_that(&format!(
        "case \" $* \" in *' fetch '*) n=fetch;; *' for-each-ref '*) n=branches;; *) n=;; esac\n\
         if [ $n ] && mkdir {once}-$n 2>/dev/null; then echo '{says}' >&2; exit 128; fi\n\
         exec $real \"$@\"\n",
        once = once.display()
    ));
    let args = ["next", "--worktree", "--", "sh", "-c", "echo done > result.txt"];
    let answer = shop.command("a", &args).env("PATH", &path).output().unwrap();
    assert!(answer.status.success(), "{answer:?}");
    assert_eq!(shop.refs(), ["refs/heads/main"]);
    let recover = shop.command("a", &["recover"]).env("PATH", &path).output().unwrap();
    assert!(recover.status.success(), "{recover:?}");
    for met in ["fetch", "branches"] {
        assert!(shop.path(&format!("once-{met}")).exists(), "{met} was not in the way");
    }
}

#[test]
fn a_commit_that_came_without_its_files_is_fetched_again() {
    let shop = Shop::new();
    shop.work("a", &["ls"]).exits(0);
    shop.place("bugs/next/x-00000001");
    // What is there while another process of this clone fetches, or after it was killed.
    let main = shop.git("remote.git", &["rev-parse", "main"]);
    let file = shop.path("commit");
    std::fs::write(&file, shop.git("remote.git", &["cat-file", "commit", "main"]) + "\n").unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(shop.git("a", &["hash-object", "-w", "-t", "commit", file]), main);
    let ls = shop.work("a", &["ls"]).exits(0).out;
    assert!(ls.contains("x-00000001"), "{ls}");
}

#[test]
fn a_worker_whose_clone_is_gone_does_not_ask_for_ever() {
    let shop = Shop::new();
    shop.place("bugs/next/x-00000001");
    let script = format!("rm -rf {}", shop.path("a/.git").display());
    let args = ["next", "--drain", "--", "sh", "-c", &script];
    let answer = shop.command("a", &args).output().unwrap();
    assert!(!answer.status.success(), "{answer:?}");
}
