//! What a worker leaves that is not simply merged: each row of the table in docs/work.md.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::shared::Answer;
use crate::support::Shop;

/// The folder of the one item, while it is developed.
const FOLDER: &str = "docs/work/bugs/readyfordevelopment/x-00000001";
/// A cache by its own word.
const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55";
/// What keeps a commit of a submodule from being refused.
const LOCAL: &str = "-c protocol.file.allow=always";

/// An item in a shop of its own, and a worktree folder.
fn shop() -> Shop {
    let shop = Shop::new();
    shop.place("bugs/readyfordevelopment/x-00000001");
    shop
}

/// Runs a script on the item.
fn work(shop: &Shop, script: &str) -> Answer {
    shop.work("a", &["next", "--worktree", "--", "sh", "-ec", script])
}

/// What main has in a file.
fn on_main(shop: &Shop, file: &str) -> String {
    shop.git("remote.git", &["show", &format!("main:{file}")])
}

/// The folder that an answer says is kept, which has to be there.
fn kept_folder(answer: &Answer) -> String {
    let kept = answer.err.lines().find_map(|line| line.split_once("kept in /"));
    let (_, kept) = kept.unwrap_or_else(|| panic!("nothing is kept: {}", answer.err));
    let folder = format!("/{}", kept.split_once(": ").unwrap().0);
    assert!(Path::new(&folder).is_dir(), "{folder}");
    folder
}

fn read(folder: &str, file: &str) -> String {
    std::fs::read_to_string(Path::new(folder).join(file)).unwrap_or_default().trim().to_owned()
}

/// The item is moved and its path is free for the next claim.
fn goes_on(shop: &Shop) {
    assert_eq!(shop.items(), ["bugs/readyfortesting/x-00000001"]);
    shop.work("a", &["next", "--worktree", "--", "true"]).exits(0);
    assert_eq!(shop.items(), ["bugs/signedoff/x-00000001"]);
}

#[test]
fn settings_that_hide_files_hide_none_from_the_merge() {
    let settings = [
        ("status.showUntrackedFiles", "no"),
        ("core.untrackedCache", "true"),
        ("core.fsmonitor", "true"),
        ("core.splitIndex", "true"),
        ("core.ignoreCase", "true"),
        ("core.checkStat", "minimal"),
        ("core.trustctime", "false"),
        ("core.fileMode", "false"),
        ("core.autocrlf", "input"),
        ("core.symlinks", "false"),
        ("add.ignoreErrors", "true"),
        ("diff.ignoreSubmodules", "all"),
        ("status.submoduleSummary", "true"),
        ("submodule.recurse", "true"),
        ("commit.gpgSign", "true"),
        ("gpg.program", "/bin/false"),
        ("commit.template", "/no/such/file"),
        ("user.useConfigOnly", "true"),
        ("core.logAllRefUpdates", "false"),
        ("core.bare", "true"),
    ];
    let shop = shop();
    for (key, value) in settings {
        shop.git("a", &["config", key, value]);
    }
    let script = format!(
        "mkdir empty; mkfifo pipe; echo new > new; echo other > {FOLDER}/readme.MD; echo c > {FOLDER}/README.md"
    );
    work(&shop, &script).exits(0);
    let folder = "docs/work/bugs/readyfortesting/x-00000001";
    assert_eq!(on_main(&shop, "new"), "new");
    assert_eq!(on_main(&shop, &format!("{folder}/readme.MD")), "other");
    assert_eq!(on_main(&shop, &format!("{folder}/README.md")), "c");
    shop.assert_tidy("a");
}

#[test]
fn hooks_of_the_clone_do_not_stop_what_is_saved() {
    let shop = shop();
    let hooks = shop.path("hooks");
    std::fs::create_dir(&hooks).unwrap();
    for name in ["pre-commit", "commit-msg", "pre-push", "reference-transaction"] {
        let script = "#!/bin/sh\ncase \"$(pwd)\" in *-work/*) exit 1;; esac\n";
        std::fs::write(hooks.join(name), script).unwrap();
        std::fs::set_permissions(hooks.join(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let script = format!("echo new > new; git config core.hooksPath {}", hooks.display());
    work(&shop, &script).exits(0);
    assert_eq!(on_main(&shop, "new"), "new");
}

#[test]
fn files_that_git_was_told_to_take_for_unchanged_are_merged() {
    for flag in ["--skip-worktree", "--assume-unchanged"] {
        let shop = shop();
        let file = format!("{FOLDER}/README.md");
        work(&shop, &format!("git update-index {flag} {file}; echo {flag} > {file}")).exits(0);
        let file = "docs/work/bugs/readyfortesting/x-00000001/README.md";
        assert_eq!(on_main(&shop, file), flag);
        shop.assert_tidy("a");
    }
}

#[test]
fn in_a_sparse_checkout_what_is_not_there_is_not_deleted() {
    let shop = shop();
    shop.git("seed", &["checkout", "-q", "main"]);
    for folder in ["in", "out"] {
        std::fs::create_dir(shop.path(&format!("seed/{folder}"))).unwrap();
        std::fs::write(shop.path(&format!("seed/{folder}/file")), "before\n").unwrap();
    }
    shop.git("seed", &["add", "."]);
    shop.git("seed", &["commit", "-qm", "folders"]);
    shop.git("seed", &["push", "-q", "origin", "HEAD:main"]);
    shop.git("a", &["pull", "-q"]);
    shop.git("a", &["sparse-checkout", "set", "in"]);
    work(&shop, "test ! -e out; echo after > in/file; mkdir out; echo new > out/new").exits(0);
    assert_eq!(on_main(&shop, "in/file"), "after");
    assert_eq!(on_main(&shop, "out/file"), "before");
    assert_eq!(on_main(&shop, "out/new"), "new");
    shop.assert_tidy("a");
}

#[test]
fn ignored_files_keep_the_folder_and_caches_do_not() {
    let shop = shop();
    shop.git("seed", &["config", "core.excludesFile", "/dev/null"]);
    std::fs::write(shop.path("excludes"), "by-user\n").unwrap();
    let excludes = shop.path("excludes").display().to_string();
    shop.git("a", &["config", "core.excludesFile", &excludes]);
    let script = format!(
        "printf '.env\\ntarget\\n' > .gitignore; echo secret > .env; echo mine > by-user; \
         echo local >> $(git rev-parse --git-path info/exclude); echo too > local; \
         mkdir target; echo '{TAG}' > target/CACHEDIR.TAG; mkdir empty"
    );
    let answer = work(&shop, &script).exits(0);
    let folder = kept_folder(&answer);
    assert!(
        answer.err.contains("files that git ignores: .env, by-user, local\n"),
        "{}",
        answer.err
    );
    for (file, text) in [(".env", "secret"), ("by-user", "mine"), ("local", "too")] {
        assert_eq!(read(&folder, file), text);
    }
    goes_on(&shop);
}

#[test]
fn ignored_files_that_are_removed_are_said() {
    let shop = shop();
    let cache = format!("echo out > .gitignore; mkdir out; echo '{TAG}' > out/CACHEDIR.TAG");
    let answer = work(&shop, &cache).exits(0);
    assert!(answer.err.contains("removed, as git ignores it: out/\n"), "{}", answer.err);
    shop.assert_tidy("a");
    shop.rules("[work]\nignored = \"discard\"\n");
    let answer = work(&shop, "mkdir out; echo big > out/big").exits(0);
    assert!(answer.err.contains("removed, as git ignores it: out/\n"), "{}", answer.err);
    shop.assert_tidy("a");
}

#[test]
fn a_repository_in_the_worktree_is_kept_with_its_commits() {
    let shop = shop();
    let script = "git init -q inner; cd inner; echo x > file; git add .; git commit -qm inner; \
                  git init -q ../none; echo y > ../none/file; echo merged > ../merged";
    let answer = work(&shop, script).exits(0);
    let folder = kept_folder(&answer);
    assert!(answer.err.contains("the repository inner, none\n"), "{}", answer.err);
    assert_eq!(shop.git(&format!("{folder}/inner"), &["log", "--format=%s"]), "inner");
    assert_eq!(read(&folder, "none/file"), "y");
    assert_eq!(on_main(&shop, "merged"), "merged");
    let tree = shop.git("remote.git", &["ls-tree", "-r", "main"]);
    assert!(!tree.contains("inner"), "{tree}");
    goes_on(&shop);
}

/// A shop whose repository has a submodule, `lib`.
fn shop_with_submodule() -> Shop {
    let shop = shop();
    shop.git("", &["init", "-q", "-b", "main", "--bare", "lib.git"]);
    shop.git("", &["clone", "-q", "lib.git", "lib"]);
    shop.git("lib", &["commit", "-q", "--allow-empty", "-m", "lib"]);
    shop.git("lib", &["push", "-q", "origin", "HEAD:main"]);
    let url = shop.path("lib.git").display().to_string();
    let config: Vec<_> = LOCAL.split(' ').collect();
    shop.git("seed", &[&config[..], &["submodule", "--quiet", "add", &url, "lib"]].concat());
    shop.git("seed", &["commit", "-qm", "submodule"]);
    shop.git("seed", &["push", "-q", "origin", "HEAD:main"]);
    shop
}

fn in_submodule(script: &str) -> String {
    format!("git {LOCAL} submodule --quiet update --init; {script}")
}

#[test]
fn a_submodule_without_work_goes_with_the_worktree() {
    let shop = shop_with_submodule();
    work(&shop, &in_submodule("echo x > file")).exits(0);
    assert_eq!(on_main(&shop, "file"), "x");
    shop.assert_tidy("a");
}

#[test]
fn a_commit_of_a_submodule_that_is_pushed_is_merged() {
    let shop = shop_with_submodule();
    let script = "cd lib; git commit -q --allow-empty -m more; git push -q origin HEAD:main";
    work(&shop, &in_submodule(script)).exits(0);
    let more = shop.git("lib.git", &["rev-parse", "main"]);
    assert!(shop.git("remote.git", &["ls-tree", "main", "lib"]).contains(&more));
    shop.assert_tidy("a");
}

#[test]
fn a_commit_of_a_submodule_that_nobody_else_has_stops_the_merge() {
    let shop = shop_with_submodule();
    let script = in_submodule("cd lib; echo x > file; git add .; git commit -qm only-here");
    let answer = work(&shop, &script);
    assert_ne!(answer.code, Some(0), "{answer:?}");
    assert!(answer.err.contains("lib has commits that none of its remotes has"), "{}", answer.err);
    let folder = kept_folder(&answer);
    let subject = ["log", "-1", "--format=%s"];
    assert_eq!(shop.git(&format!("{folder}/lib"), &subject), "only-here");
    assert_eq!(shop.items(), ["bugs/readyfordevelopment/x-00000001"]);
    work(&shop, "true").exits(0);
    goes_on(&shop);
}

#[test]
fn changes_in_a_submodule_are_kept() {
    let shop = shop_with_submodule();
    let answer = work(&shop, &in_submodule("echo x > lib/file")).exits(0);
    let folder = kept_folder(&answer);
    assert!(answer.err.contains("changes in the submodule lib"), "{}", answer.err);
    assert_eq!(read(&folder, "lib/file"), "x");
    goes_on(&shop);
}

#[test]
fn commits_that_are_on_no_branch_are_merged() {
    let shop = shop();
    let script = "echo one > one; git add .; git commit -qm one; git checkout -q --detach; \
                  echo two > two; git add .; git commit -qm two; echo three > three";
    work(&shop, script).exits(0);
    for file in ["one", "two", "three"] {
        assert_eq!(on_main(&shop, file), file);
    }
    shop.assert_tidy("a");
}

#[test]
fn commits_of_the_branch_are_merged_where_an_older_one_is_checked_out() {
    let shop = shop();
    let script = "echo one > one; git add .; git commit -qm one; git bisect start -q; \
                  git checkout -q --detach HEAD~1";
    work(&shop, script).exits(0);
    assert_eq!(on_main(&shop, "one"), "one");
    shop.assert_tidy("a");
}

#[test]
fn commits_of_two_minds_are_both_left_on_branches() {
    let shop = shop();
    let script = "echo one > one; git add .; git commit -qm one; \
                  git checkout -q --detach HEAD~1; echo two > two";
    let answer = work(&shop, script);
    assert_ne!(answer.code, Some(0), "{answer:?}");
    let refs = shop.refs();
    let left: Vec<_> = refs.iter().filter(|name| name.contains("/unfinished/")).collect();
    assert_eq!(left.len(), 2, "{refs:?}");
    for name in &left {
        assert!(answer.err.contains(name.trim_start_matches("refs/heads/")), "{}", answer.err);
    }
    shop.git("remote.git", &["show", &format!("{}:two", left[0])]);
    shop.git("remote.git", &["show", &format!("{}:one", left[1])]);
    shop.assert_tidy("a");
}

#[test]
fn an_unfinished_operation_is_kept_with_its_folder() {
    let start = "echo one > one; git add .; git commit -qm one; git checkout -q -b side HEAD~1; \
                 echo other > one; git add .; git commit -qm other; ";
    for (operation, command) in [
        ("rebase", "git rebase -q indevelopment-x-00000001"),
        ("merge", "git merge -q indevelopment-x-00000001"),
        ("cherry-pick", "git cherry-pick indevelopment-x-00000001"),
        ("revert", "git revert indevelopment-x-00000001"),
        ("am", "git format-patch -1 --stdout indevelopment-x-00000001 | git am -q"),
    ] {
        let shop = shop();
        let answer = work(&shop, &format!("{start}{command} > ../out 2>&1 || true"));
        assert_ne!(answer.code, Some(0), "{answer:?}");
        assert!(answer.err.contains(&format!("an unfinished {operation}")), "{}", answer.err);
        assert!(answer.err.contains(&format!("{operation} --abort")), "{}", answer.err);
        let folder = kept_folder(&answer);
        shop.git(&folder, &[operation, "--abort"]);
        work(&shop, "true").exits(0);
        goes_on(&shop);
    }
}

#[test]
fn what_stays_in_the_clone_is_said() {
    let shop = shop();
    let script = "echo a > stashed; git add .; git stash -q; \
                  echo b > undone; git add .; git commit -qm undone; git reset -q --hard HEAD~1; \
                  git checkout -q -b topic; echo c > topic; git add .; git commit -qm topic; \
                  git checkout -q -; git tag mine; git notes add -m note; echo d > merged";
    let answer = work(&shop, script).exits(0);
    let word = |after: &str| {
        let rest = answer.err.split_once(after).unwrap_or_else(|| panic!("{}", answer.err)).1;
        rest.split([':', ' ']).next().unwrap().to_owned()
    };
    let show = |what: &str| shop.git("a", &["show", what]);
    assert!(show(&format!("{}:stashed", word("stash "))).ends_with('a'));
    let undone = format!("refs/sprag/undone/{}", word("refs/sprag/undone/"));
    assert_eq!(show(&format!("{undone}:undone")), "b");
    assert_eq!(show(&format!("{}:topic", word("kept in branch "))), "c");
    show("mine");
    shop.git("a", &["notes", "show", "mine"]);
    assert_eq!(on_main(&shop, "merged"), "d");
    goes_on(&shop);
}

#[test]
fn what_git_cannot_read_stops_the_command_and_is_kept() {
    let filter = [("filter.broken.clean", "false"), ("filter.broken.required", "true")];
    let endings = [("core.autocrlf", "input"), ("core.safecrlf", "true")];
    for settings in [filter, endings] {
        let shop = shop();
        for (key, value) in settings {
            shop.git("a", &["config", key, value]);
        }
        let script = "echo '*.bin filter=broken' > .gitattributes; printf 'a\\r\\nb\\n' > file.bin";
        let answer = work(&shop, script);
        assert_ne!(answer.code, Some(0), "{answer:?}");
        assert!(answer.err.contains("sprag work recover x-00000001"), "{}", answer.err);
        assert_eq!(shop.items(), ["bugs/readyfordevelopment/x-00000001"]);
        let said = shop.work("a", &["recover"]).exits(0);
        let folder = kept_folder(&Answer { err: said.out.clone(), ..said });
        assert_eq!(read(&folder, "file.bin"), "a\r\nb");
        work(&shop, "true").exits(0);
        assert_eq!(read(&folder, "file.bin"), "a\r\nb");
        goes_on(&shop);
    }
}

#[test]
fn an_index_that_a_killed_git_left_locked_is_not_in_the_way() {
    let shop = shop();
    work(&shop, "echo x > file; touch $(git rev-parse --git-path index.lock)").exits(0);
    assert_eq!(on_main(&shop, "file"), "x");
    shop.assert_tidy("a");
}

#[test]
fn a_worktree_that_its_worker_broke_is_kept_or_its_commits_are_merged() {
    let shop = shop();
    let answer = work(&shop, "echo x > file; rm .git").exits(0);
    assert_eq!(read(&kept_folder(&answer), "file"), "x");
    let answer = work(&shop, "echo y > f; git add .; git commit -qm y; rm -r \"$PWD\"").exits(0);
    assert_eq!(on_main(&shop, "f"), "y", "{answer:?}");
}

/// As a hook of git does it: its variables name another repository.
#[test]
fn a_worker_does_not_hear_of_the_repository_of_a_hook() {
    let shop = shop();
    let mut command =
        shop.command("a", &["next", "--worktree", "--", "sh", "-ec", "echo x > f; git add f"]);
    command.env("GIT_DIR", shop.path("seed/.git")).env("GIT_WORK_TREE", shop.path("seed"));
    command.env("GIT_INDEX_FILE", shop.path("seed/.git/index"));
    Answer::of(command.output().unwrap()).exits(0);
    assert_eq!(on_main(&shop, "f"), "x");
    assert_eq!(shop.git("seed", &["status", "--porcelain"]), "");
}

#[test]
fn a_path_with_spaces_and_a_folder_that_cannot_be_written() {
    let shop = shop();
    shop.rules("[work]\nworktrees = \"../all the work\"\n");
    work(&shop, "echo x > 'a file'").exits(0);
    assert_eq!(on_main(&shop, "a file"), "x");
    shop.rules("[work]\nworktrees = \"/proc/none\"\n");
    let answer = work(&shop, "true");
    assert!(answer.err.contains("cannot make /proc/none"), "{}", answer.err);
    assert_eq!(shop.refs(), ["refs/heads/main"]);
}
