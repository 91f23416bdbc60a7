//! A disk that is really full.

use sprag_testkit::small_disk::SmallDisk;

use crate::support::Shop;

#[test]
fn an_item_whose_worktree_does_not_fit_is_given_back() {
    let shop = Shop::new();
    let Some(disk) = SmallDisk::mount(shop.path("small"), "64k") else { return };
    shop.place("bugs/next/x-00000001");
    std::fs::write(shop.path("seed/large"), vec![b'x'; 1 << 20]).unwrap();
    shop.git("seed", &["add", "."]);
    shop.git("seed", &["commit", "-q", "-m", "large"]);
    shop.git("seed", &["push", "-q", "origin", "HEAD:main"]);
    shop.rules(&format!("[work]\nworktrees = {:?}\n", disk.path().display().to_string()));
    let answer = shop.work("a", &["next", "--worktree", "--", "true"]);
    assert_ne!(answer.code, Some(0), "{answer:?}");
    // Git does not tell why it cannot write.
    assert!(answer.err.contains("unable to write file large"), "{}", answer.err);
    assert!(answer.err.contains("sprag work recover"), "{}", answer.err);
    assert_eq!(shop.refs(), ["refs/heads/main"]);
    shop.assert_tidy("a");
    shop.rules("");
    shop.work("a", &["next", "--worktree", "--", "true"]).exits(0);
    assert_eq!(shop.items(), ["bugs/inanalysis/x-00000001"]);
}

#[test]
fn work_that_cannot_be_committed_for_want_of_room_is_kept_and_rescued() {
    let shop = Shop::new();
    let Some(_disk) = SmallDisk::mount(shop.path("small"), "4m") else { return };
    shop.place("bugs/next/x-00000001");
    shop.clone_named("small/b");
    let fill = shop.path("small/fill");
    let script =
        format!("echo precious > work.txt; cat /dev/zero > {} 2>/dev/null || true", fill.display());
    let answer = shop.work("small/b", &["next", "--worktree", "--", "sh", "-c", &script]);
    assert_ne!(answer.code, Some(0), "{answer:?}");
    assert!(answer.err.contains("No space left on device"), "{}", answer.err);
    assert!(answer.err.contains("sprag work recover x-00000001"), "{}", answer.err);
    assert_eq!(shop.items(), ["bugs/next/x-00000001"]);
    std::fs::remove_file(&fill).unwrap();
    let said = shop.work("small/b", &["recover"]).exits(0).out;
    let kept = said.split_whitespace().find(|word| word.starts_with("refs/sprag/rescue/"));
    let kept = kept.unwrap_or_else(|| panic!("nothing is kept: {said}"));
    assert_eq!(shop.git("remote.git", &["show", &format!("{kept}:work.txt")]), "precious");
    shop.wait_for_tidy_remote(&["small/b"], "a tidy remote");
    shop.assert_tidy("small/b");
    shop.work("small/b", &["next", "--worktree", "--", "true"]).exits(0);
}
