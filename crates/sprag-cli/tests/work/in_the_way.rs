//! What is in the way of a claim: folders, worktrees and branches of others and of the dead.

use crate::shared::wait_until;
use crate::support::Shop;

const BRANCH: &str = "indevelopment-x-00000001";

fn shop() -> Shop {
    let shop = Shop::new();
    shop.place("bugs/readyfordevelopment/x-00000001");
    shop
}

fn read(shop: &Shop, file: &str) -> String {
    std::fs::read_to_string(shop.path(file)).unwrap_or_default().trim().to_owned()
}

#[test]
fn a_folder_that_already_stands_there_is_left_alone() {
    let shop = shop();
    let folder = format!("a-work/{BRANCH}");
    std::fs::create_dir_all(shop.path(&folder)).unwrap();
    std::fs::write(shop.path(&format!("{folder}/mine")), "mine\n").unwrap();
    shop.work("a", &["next", "--worktree", "--", "sh", "-c", "echo x > file"]).exits(0);
    assert_eq!(read(&shop, &format!("{folder}/mine")), "mine");
    assert_eq!(shop.git("remote.git", &["show", "main:file"]), "x");
    shop.work("a", &["recover"]).exits(0);
    assert_eq!(read(&shop, &format!("{folder}/mine")), "mine");
}

#[test]
fn a_worktree_of_the_user_is_left_alone() {
    let shop = shop();
    let folder = format!("../a-work/{BRANCH}");
    shop.git("a", &["worktree", "add", "-q", "-b", BRANCH, &folder]);
    std::fs::write(shop.path(&format!("a-work/{BRANCH}/mine")), "mine\n").unwrap();
    let answer = shop.work("a", &["next", "--worktree", "--", "true"]).exits(75);
    assert!(answer.err.contains(&format!("branch {BRANCH} is checked out in ")), "{}", answer.err);
    for args in [&["recover"][..], &["recover", "x", "--assume-dead"]] {
        shop.work("a", args).exits(0);
        assert_eq!(read(&shop, &format!("a-work/{BRANCH}/mine")), "mine");
    }
    // Detached, it is not in the way of the branch either.
    shop.git(&format!("a-work/{BRANCH}"), &["checkout", "-q", "--detach"]);
    shop.work("a", &["next", "--worktree", "--", "true"]).exits(0);
    assert_eq!(read(&shop, &format!("a-work/{BRANCH}/mine")), "mine");
}

#[test]
fn a_worktree_that_the_user_took_over_is_neither_merged_nor_removed() {
    let shop = shop();
    let folder = format!("a-work/{BRANCH}");
    shop.work("a", &["claim", "x", "--worktree"]).exits(0);
    std::fs::write(shop.path(&format!("{folder}/mine")), "mine\n").unwrap();
    shop.git(&folder, &["worktree", "unlock", "."]);
    shop.git(&folder, &["worktree", "lock", "--reason", "mine", "."]);
    let answer = shop.work("a", &["done", "x"]);
    assert_ne!(answer.code, Some(0), "{answer:?}");
    assert!(answer.err.contains("is not the worktree of this claim any more"), "{}", answer.err);
    let answer = shop.work("a", &["release", "x"]).exits(0);
    assert!(answer.err.contains(&format!("{folder}: what is not of this claim")), "{}", answer.err);
    assert_eq!(read(&shop, &format!("{folder}/mine")), "mine");
}

#[test]
fn a_worktree_that_is_away_with_its_disk_is_not_forgotten() {
    let shop = shop();
    shop.git("a", &["worktree", "add", "-q", "--detach", "../disk"]);
    std::fs::rename(shop.path("disk"), shop.path("away")).unwrap();
    shop.work("a", &["next", "--worktree", "--", "true"]).exits(0);
    shop.work("a", &["recover"]).exits(0);
    std::fs::rename(shop.path("away"), shop.path("disk")).unwrap();
    shop.git("disk", &["status"]);
}

#[test]
fn a_local_branch_that_was_left_is_kept_under_another_name() {
    for verb in [&["next", "--worktree", "--", "true"][..], &["recover", "x"]] {
        let shop = shop();
        shop.git("a", &["fetch", "-q"]);
        shop.git("a", &["checkout", "-q", "-b", BRANCH, "--no-track", "origin/main"]);
        shop.git("a", &["commit", "-q", "--allow-empty", "-m", "left"]);
        shop.git("a", &["checkout", "-q", "main"]);
        let answer = shop.work("a", verb).exits(0);
        let said = format!("{}{}", answer.out, answer.err);
        let kept = said.split_whitespace().find(|word| word.starts_with("unfinished/"));
        let kept = kept.unwrap_or_else(|| panic!("nothing is kept: {said}")).trim_end_matches(':');
        assert_eq!(shop.git("a", &["log", "-1", "--format=%s", kept]), "left");
        assert_eq!(shop.git("a", &["branch", "--list", BRANCH]), "");
        shop.work("a", &["next", "--worktree", "--", "true"]).exits(0);
    }
}

/// Makes a claim in a clone whose process is gone, with work in its worktree.
fn forgotten_claim(shop: &Shop) {
    shop.work("a", &["claim", "x", "--worktree"]).exits(0);
    std::fs::write(shop.path(&format!("a-work/{BRANCH}/work")), "work\n").unwrap();
    std::fs::remove_dir_all(shop.path("a/.git/sprag/claims")).unwrap();
}

#[test]
fn the_worktree_of_a_claim_whose_note_is_lost_is_rescued_once_the_claim_is_over() {
    for verb in [&["recover"][..], &["next", "--worktree", "--", "true"]] {
        let shop = shop();
        shop.clone_named("b");
        forgotten_claim(&shop);
        // It still has the item.
        let answer = shop.work("a", &["recover"]).exits(0);
        assert_eq!(answer.out, "no claim of a dead worker was found\n");
        assert_eq!(read(&shop, &format!("a-work/{BRANCH}/work")), "work");
        shop.work("b", &["recover", "x", "--assume-dead"]).exits(0);
        let answer = shop.work("a", verb).exits(0);
        let said = format!("{}{}", answer.out, answer.err);
        let kept = said.split_whitespace().find(|word| word.starts_with("refs/sprag/rescue/"));
        let kept = kept.unwrap_or_else(|| panic!("nothing is kept: {said}")).trim_end_matches(':');
        assert_eq!(shop.git("remote.git", &["show", &format!("{kept}:work")]), "work");
        shop.assert_tidy("a");
    }
}

#[test]
fn clones_that_share_a_folder_for_worktrees_leave_each_others_alone() {
    let shop = shop();
    shop.clone_named("b");
    shop.rules("[work]\nworktrees = \"../shared\"\nrun_ttl = \"2s\"\n");
    // A crash between writing the claim and making the worktree.
    let path = shop.git_that(
        "case \" $* \" in *' worktree add '*) kill -9 $PPID; exit 1;; esac\nexec $real \"$@\"\n",
    );
    let args = ["next", "--worktree", "--", "true"];
    let died = shop.command("a", &args).env("PATH", path).output().unwrap();
    assert_eq!(died.status.code(), None, "{died:?}");
    wait_until(
        || shop.work("b", &["recover", "x", "--assume-dead"]).exits(0).out.starts_with("freed x"),
        "the claim of the dead",
    );
    let claimed = shop.json("b", &["claim", "x", "--worktree"]);
    let folder = claimed["worktree"].as_str().unwrap().to_owned();
    std::fs::write(format!("{folder}/work"), "work\n").unwrap();
    shop.work("a", &["recover"]).exits(0);
    let answer = shop.work("a", &["next", "--worktree", "--", "true"]).exits(75);
    assert!(answer.err.contains("claimed: branch"), "{}", answer.err);
    assert_eq!(std::fs::read_to_string(format!("{folder}/work")).unwrap(), "work\n");
    shop.work("b", &["done", "x"]).exits(0);
    assert_eq!(shop.git("remote.git", &["show", "main:work"]), "work");
    assert!(!shop.path("shared").exists());
}

#[test]
fn an_operator_frees_a_branch_that_was_pushed_by_hand() {
    let shop = shop();
    shop.clone_named("b");
    shop.git("b", &["commit", "-q", "--allow-empty", "-m", "by hand"]);
    shop.git("b", &["push", "-q", "origin", &format!("HEAD:{BRANCH}")]);
    assert_eq!(shop.work("a", &["recover"]).exits(0).out, "no claim of a dead worker was found\n");
    let dry = shop.work("a", &["recover", "x", "--assume-dead", "--dry-run"]).exits(0).out;
    assert!(dry.starts_with("would free x-00000001: branch"), "{dry}");
    let freed = shop.json("a", &["recover", "x", "--assume-dead"]);
    assert_eq!(freed["claims"][0]["worker"], serde_json::Value::Null, "{freed}");
    let kept = freed["claims"][0]["rescued"][0].as_str().unwrap();
    assert_eq!(shop.git("remote.git", &["log", "-1", "--format=%s", kept]), "by hand");
    shop.work("a", &["next", "--", "true"]).exits(0);
}

#[test]
fn a_claim_whose_time_is_over_is_found_and_its_owner_is_named() {
    let shop = shop();
    let claim = ["claim", "x", "--ttl", "1s", "--holder", "first"];
    shop.work("a", &claim).exits(0);
    let mut said = String::new();
    wait_until(
        || {
            said = shop.work("a", &["recover", "--holder", "second"]).exits(0).out;
            !said.starts_with("no claim")
        },
        "the time of the claim",
    );
    assert!(said.contains("owner first") && !said.contains("second"), "{said}");
    shop.work("a", &["next", "--", "true"]).exits(0);
}
