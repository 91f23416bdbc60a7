//! What the verbs do and say.

use crate::support::Shop;

#[test]
fn an_item_goes_its_way_by_commands() {
    let shop = Shop::new();
    assert_eq!(shop.work("a", &["init"]).exits(0).out, "made docs/work/README.md on main\n");
    assert_eq!(shop.work("a", &["init"]).exits(0).out, "docs/work is on main already\n");
    let page = shop.work("a", &["init", "--dry-run"]).exits(0).out;
    assert!(page.contains("| `readyforanalysis/` | `inanalysis-{item}` |"), "{page}");
    let made = shop.work("a", &["new", "lostmypassword", "-m", "I cannot get in"]).exits(0).out;
    assert_eq!(made, "made lostmypassword in docs/work/new/lostmypassword\n");
    let stamped = shop.work("a", &["stamp"]).exits(0).out;
    assert!(stamped.starts_with("done lostmypassword-"), "{stamped}");
    let none = shop.work("a", &["advance", "lostmypassword"]).exits(64);
    assert!(none.err.contains("sprag work advance ITEM --category NAME"), "{}", none.err);
    shop.work("a", &["advance", "lostmypassword", "--category", "bugs"]).exits(0);
    shop.work("a", &["pending", "lostmypassword", "-m", "which account?"]).exits(0);
    shop.work("a", &["next", "--", "true"]).exits(75);
    let ls = shop.work("a", &["ls"]).exits(0).out;
    assert!(ls.lines().nth(1).unwrap().contains("bugs/pending"), "{ls}");
    shop.work("a", &["resume", "lostmypassword"]).exits(0);
    let items = shop.json("a", &["board"]);
    assert_eq!(items["items"][0]["state"], "next");
    assert_eq!(items["items"][0]["category"], "bugs");
    assert_eq!(items["items"][0]["owner"], serde_json::Value::Null);
    shop.assert_tidy("a");
}

#[test]
fn a_command_works_in_its_worktree_and_knows_its_item() {
    let shop = Shop::new();
    shop.place("bugs/readyfordevelopment/x-00000001");
    let script = "printf '%s\\n' $SPRAG_ITEM $SPRAG_ITEM_STATE $SPRAG_ITEM_CATEGORY $SPRAG_BRANCH \
                  > \"$SPRAG_ITEM_PATH/notes\"; test \"$PWD\" = \"$SPRAG_WORKTREE\"; \
                  test -n \"$SPRAG_TOKEN\" && cat \"$SPRAG_ITEM_PATH/README.md\"";
    let answer = shop.work("a", &["next", "--worktree", "--", "sh", "-ec", script]).exits(0);
    assert!(answer.err.contains("sprag: claimed x-00000001 (token "), "{}", answer.err);
    assert_eq!(
        answer.out,
        "bugs/readyfordevelopment/x-00000001\n\
         done x-00000001: bugs/readyfordevelopment -> bugs/readyfortesting, merged 1 commit\n"
    );
    let notes = "main:docs/work/bugs/readyfortesting/x-00000001/notes";
    assert_eq!(
        shop.git("remote.git", &["show", notes]),
        "x-00000001\nreadyfordevelopment\nbugs\nindevelopment-x-00000001"
    );
    assert_eq!(shop.refs(), ["refs/heads/main"]);
    shop.assert_tidy("a");
}

#[test]
fn a_command_that_fails_gives_the_item_back_and_its_work_is_on_a_branch() {
    let shop = Shop::new();
    shop.place("bugs/next/x-00000001");
    let script = "echo half > half.txt; exit 3";
    let answer = shop.work("a", &["next", "--worktree", "--", "sh", "-c", script]).exits(3);
    assert!(answer.out.starts_with("released x-00000001 in bugs/next, its work is on branch "));
    let branch = answer.out.trim_end().rsplit(' ').next().unwrap();
    assert_eq!(shop.git("remote.git", &["show", &format!("{branch}:half.txt")]), "half");
    assert_eq!(shop.items(), ["bugs/next/x-00000001"]);
    shop.work("a", &["next", "--", "no-such-command"]).exits(127);
    shop.work("a", &["next", "--state", "nowhere", "--", "true"]).exits(64);
    shop.work("a", &["next", "--state", "next", "--", "true"]).exits(0);
    assert_eq!(shop.items(), ["bugs/inanalysis/x-00000001"]);
    shop.assert_tidy("a");
}

#[test]
fn a_claim_is_kept_until_it_is_done_or_released() {
    let shop = Shop::new();
    shop.clone_named("b");
    shop.place("bugs/readyfortesting/x-00000001");
    let claimed = shop.json("a", &["claim", "x", "--worktree"]);
    assert_eq!(claimed["branch"], "intesting-x-00000001");
    let worktree = claimed["worktree"].as_str().unwrap().to_owned();
    let held = shop.work("b", &["claim", "x"]).exits(75);
    assert!(held.err.starts_with("error[SP001]: x-00000001 cannot be claimed"), "{}", held.err);
    assert!(held.err.contains("hint: see who has what"), "{}", held.err);
    shop.work("b", &["done", "x"]).exits(77);
    let skipped = shop.work("b", &["next", "--", "true"]).exits(75);
    assert!(
        skipped.err.contains("skipped: x-00000001 (claimed: branch intesting-x-00000001)"),
        "{}",
        skipped.err
    );
    let board = shop.json("b", &["board"]);
    assert_eq!(board["items"][0]["owner"]["detached"], true);
    shop.work("a", &["release", "x"]).exits(0);
    assert!(!std::path::Path::new(&worktree).exists());
    shop.json("a", &["claim", "x", "--worktree"]);
    std::fs::write(format!("{worktree}/report.md"), "fine\n").unwrap();
    let mut done = shop.command("a", &["done"]);
    let done = crate::shared::Answer::of(done.current_dir(&worktree).output().unwrap()).exits(0);
    assert!(done.out.ends_with("bugs/readyfortesting -> bugs/signedoff, merged 1 commit\n"));
    assert_eq!(shop.git("remote.git", &["show", "main:report.md"]), "fine");
    assert_eq!(shop.refs(), ["refs/heads/main"]);
    shop.assert_tidy("a");
    let stats = shop.json("a", &["stats"]);
    assert_eq!((&stats["active_claims"], &stats["stale"]), (&0.into(), &0.into()));
    assert_eq!(stats["success_rate"], 1.0);
}

#[test]
fn several_workers_work_everything_off() {
    let shop = Shop::new();
    shop.rules("[work]\ncategory = \"bugs\"\n");
    for number in 0..4 {
        shop.work("a", &["new", &format!("item{number}")]).exits(0);
    }
    let script = "echo $SPRAG_ITEM_STATE >> $SPRAG_ITEM_PATH/log";
    let args = ["run", "--workers", "3", "--worktree", "--every", "1s", "--", "sh", "-c", script];
    let mut run = shop.start("a", &args);
    let all = |shop: &Shop| {
        let items = shop.items();
        items.iter().filter(|item| item.starts_with("bugs/archive/production/")).count() == 4
    };
    crate::shared::wait_until(|| all(&shop), "everything in production");
    let pid = rustix::process::Pid::from_raw(i32::try_from(run.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(143));
    for item in shop.items() {
        let log = shop.git("remote.git", &["show", &format!("main:docs/work/{item}/log")]);
        assert_eq!(log.lines().count(), 7, "{item}: {log}");
    }
    assert_eq!(shop.refs(), ["refs/heads/main"]);
    shop.assert_tidy("a");
}

/// Otherwise they would go through all items, and no service manager would wait for that.
#[test]
fn workers_that_are_asked_to_end_begin_nothing_new() {
    let shop = Shop::new();
    shop.rules("[work]\ncategory = \"bugs\"\n");
    for number in 0..4 {
        shop.work("a", &["new", &format!("item{number}")]).exits(0);
    }
    let script = "echo begun >> ../../begun; exec sleep 100";
    let args = ["run", "--workers", "2", "--worktree", "--", "sh", "-c", script];
    let mut run = shop.start("a", &args);
    let begun = || std::fs::read_to_string(shop.path("begun")).unwrap_or_default().lines().count();
    crate::shared::wait_until(|| begun() == 2, "both are at work");
    let pid = rustix::process::Pid::from_raw(i32::try_from(run.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(143));
    assert_eq!(begun(), 2);
    assert_eq!(shop.refs(), ["refs/heads/main"]);
    shop.assert_tidy("a");
}

#[test]
fn workers_have_the_configuration_that_was_named() {
    let shop = Shop::new();
    let rules = "[work]\nroot = \"items\"\ncategory = \"bugs\"\n";
    std::fs::write(shop.path("other.toml"), rules).unwrap();
    shop.work("a", &["new", "x", "--config", "../other.toml"]).exits(0);
    shop.work("a", &["run", "--config", "../other.toml", "--worktree", "--", "true"]).exits(0);
    let files = shop.git("remote.git", &["ls-tree", "-r", "--name-only", "main"]);
    assert!(files.contains("items/bugs/archive/production/x-"), "{files}");
}

#[test]
fn what_cannot_work_says_what_to_do() {
    let shop = Shop::new();
    let bad = shop.work("a", &["new", "two words"]).exits(64);
    assert!(bad.err.contains("sprag work new two-words"), "{}", bad.err);
    let outside = shop.work("tmp", &["ls"]).exits(78);
    assert!(outside.err.starts_with("error[SP090]"), "{}", outside.err);
    assert!(outside.err.contains("git clone URL"), "{}", outside.err);
    shop.rules("[work]\nlast = [\"c\"]\n[[work.step]]\nfrom = \"a\"\nclaim = \"a\"\nto = \"b\"\n");
    let flow = shop.work("a", &["ls"]).exits(78);
    assert!(flow.err.contains("a leads to \"b\", which is unknown"), "{}", flow.err);
    shop.rules("[work]\nrot = \"x\"\n");
    let rules = shop.work("a", &["ls"]).exits(78);
    assert!(rules.err.contains("config.toml:2: unknown field `rot`"), "{}", rules.err);
}

#[test]
fn a_git_that_is_too_old_is_told_before_anything_is_done() {
    let shop = Shop::new();
    shop.place("bugs/next/x-00000001");
    let old = "case \"$*\" in *version) echo git version 2.37.9; exit;; esac\nexec $real \"$@\"\n";
    let old = shop.git_that(old);
    for args in [&["ls"][..], &["next", "--", "true"], &["claim", "x"], &["recover"]] {
        let output = shop.command("a", args).env("PATH", &old).output().unwrap();
        let said = crate::shared::Answer::of(output).exits(78);
        assert!(said.err.starts_with("error[SP090]: git 2.37.9 is too old"), "{}", said.err);
        assert!(
            said.err.contains("need") && said.err.contains("git 2.38.0 or newer"),
            "{}",
            said.err
        );
        assert!(said.err.contains("git version"), "{}", said.err);
    }
    assert_eq!(shop.refs(), ["refs/heads/main"]);
}
