//! What cannot work says so, says what to type next, and loses nothing.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sprag_core::Holder;
use sprag_work::{Claim, Error, ErrorKind, GitSource, How, Outcome, Rules, Source, Wanted};

use crate::support::*;

fn refused(clone: &Path) -> Error {
    let source = GitSource::open(clone, &Rules::default(), Holder::new("agent", "here"));
    match source {
        Err(error) => error,
        Ok(source) => source.ready(&Wanted::default()).unwrap_err(),
    }
}

fn advises(error: &Error, kind: ErrorKind, command: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    let found = error.nexts().iter().any(|next| next.command.contains(command));
    assert!(found, "{error:?} does not say {command:?}");
}

#[test]
fn without_a_repository_a_remote_or_a_commit_it_is_said_what_to_do() {
    let world = World::empty();
    advises(&refused(&std::env::temp_dir()), ErrorKind::Repository, "git clone");
    git(&world.path(""), &["init", "-q", "-b", "main", "alone"]);
    advises(&refused(&world.path("alone")), ErrorKind::Repository, "git remote add origin");
    advises(&refused(&world.clone_named("a")), ErrorKind::Repository, "git push origin HEAD:main");
    let gone = world.clone_named("b");
    git(&gone, &["remote", "set-url", "origin", "/no/such/repository"]);
    advises(&refused(&gone), ErrorKind::Repository, "git remote get-url origin");
}

#[test]
fn a_dirty_checkout_on_another_branch_or_on_none_is_not_touched() {
    let world = World::new();
    let clone = world.clone_named("a");
    place_item(&clone, "bugs/next/x-00000001");
    git(&clone, &["checkout", "-q", "-b", "mine"]);
    std::fs::write(clone.join("README.md"), "not committed\n").unwrap();
    std::fs::write(clone.join("new.txt"), "not even added\n").unwrap();
    git(&clone, &["add", "new.txt"]);
    let before = git(&clone, &["status", "--porcelain", "--branch"]);
    drain(&world.source(&clone, "agent-1"), &in_worktree());
    assert_eq!(world.items(), ["bugs/archive/production/x-00000001"]);
    assert_eq!(git(&clone, &["status", "--porcelain", "--branch"]), before);
    assert_eq!(std::fs::read_to_string(clone.join("README.md")).unwrap(), "not committed\n");

    let detached = world.clone_named("b");
    git(&detached, &["checkout", "-q", "--detach"]);
    place_item_from(&world, "bugs/next/y-00000002");
    drain(&world.source(&detached, "agent-2"), &in_worktree());
    assert_eq!(git(&detached, &["rev-parse", "--abbrev-ref", "HEAD"]), "HEAD");
    assert!(world.items().contains(&"bugs/archive/production/y-00000002".to_owned()));
}

fn place_item_from(world: &World, path: &str) {
    place_item(&world.clone_named("helper"), path);
}

#[test]
fn shallow_and_partial_clones_work() {
    let world = World::new();
    git(&world.remote(), &["config", "uploadpack.allowFilter", "true"]);
    place_item_from(&world, "bugs/signedoff/x-00000001");
    let shallow = world.clone_with("a", &["--depth=1"]);
    let source = world.source(&shallow, "agent-1");
    assert_eq!(drain(&source, &in_worktree()).len(), 1);
    place_item(&world.clone_named("c"), "bugs/signedoff/y-00000002");
    let partial = world.clone_with("b", &["--filter=blob:none", "--no-checkout"]);
    let source = world.source(&partial, "agent-2");
    assert_eq!(drain(&source, &How::default()).len(), 1);
    assert_eq!(world.items().len(), 2);
}

#[test]
fn a_protected_main_is_told_and_the_work_is_kept() {
    let world = World::new();
    let clone = world.clone_named("a");
    place_item(&clone, "bugs/next/x-00000001");
    let hook = world.remote().join("hooks/update");
    std::fs::write(
        &hook,
        "#!/bin/sh\n[ $1 != refs/heads/main ] || { echo main is protected >&2; exit 1; }\n",
    )
    .unwrap();
    std::fs::set_permissions(&hook, PermissionsExt::from_mode(0o755)).unwrap();
    let source = world.source(&clone, "agent-1");
    let claim = Box::new(source.claim_named("x", &in_worktree()).unwrap());
    std::fs::write(claim.task().directory.join("fix.rs"), "fn fix() {}\n").unwrap();
    let error = claim.finish(done()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.message().contains("origin does not let main be changed"), "{error}");
    let left = world.refs().into_iter().find(|name| name.contains("unfinished/")).unwrap();
    assert_eq!(git(&world.remote(), &["show", &format!("{left}:fix.rs")]), "fn fix() {}");
    assert_eq!(world.items(), ["bugs/next/x-00000001"]);
    let error = source
        .create(&sprag_work::NewItem { name: name("y"), text: None, priority: 0 })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}

#[test]
fn folders_with_unfit_names_are_told_and_others_go_on() {
    let world = World::new();
    let clone = world.clone_named("a");
    place_item(&clone, "bugs/next/has a space");
    place_item(&clone, "bugs/next/größe-00000001");
    place_item(&clone, "bugs/next/twice-00000002");
    place_item(&clone, "new/twice-00000002");
    let source = world.source(&clone, "agent-1");
    let ready = source.ready(&Wanted::default()).unwrap();
    let names: Vec<_> = ready.items.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(names, ["größe-00000001"]);
    let skipped: Vec<_> = ready.skipped.iter().map(ToString::to_string).collect();
    assert!(
        skipped[0].starts_with("has a space (") && skipped[0].contains("spaces"),
        "{skipped:?}"
    );
    assert_eq!(skipped.iter().filter(|text| text.contains("same name")).count(), 2, "{skipped:?}");
    let error = source.claim_named("twice-00000002", &How::default()).unwrap_err();
    advises(&error, ErrorKind::Input, "git mv docs/work/");
    drain(&source, &How::default());
    assert!(world.items().contains(&"bugs/archive/production/größe-00000001".to_owned()));
}

#[test]
fn a_conflict_with_main_is_told_and_the_work_is_kept() {
    let world = World::new();
    let clone = world.clone_named("a");
    place_item(&clone, "bugs/next/x-00000001");
    let source = world.source(&clone, "agent-1");
    let claim = Box::new(source.claim_named("x", &in_worktree()).unwrap());
    std::fs::write(claim.task().directory.join("README.md"), "mine\n").unwrap();
    let other = world.clone_named("b");
    std::fs::write(other.join("README.md"), "theirs\n").unwrap();
    git(&other, &["commit", "-qam", "theirs"]);
    git(&other, &["push", "-q", "origin", "HEAD:main"]);
    let error = claim.finish(done()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("README.md"), "{error}");
    let left = world.refs().into_iter().find(|name| name.contains("unfinished/")).unwrap();
    assert_eq!(git(&world.remote(), &["show", &format!("{left}:README.md")]), "mine");
    assert_eq!(git(&world.remote(), &["show", "main:README.md"]), "theirs");

    // Who claimed for longer keeps the claim, brings the two together and goes on.
    let kept = Box::new(source.claim_named("x", &in_worktree()).unwrap());
    let task = kept.keep(sprag_work::CLAIM_TTL).unwrap();
    std::fs::write(task.directory.join("README.md"), "mine again\n").unwrap();
    std::fs::write(other.join("README.md"), "theirs again\n").unwrap();
    git(&other, &["commit", "-qam", "theirs again"]);
    git(&other, &["pull", "-q", "--rebase", "origin", "main"]);
    git(&other, &["push", "-q", "origin", "HEAD:main"]);
    let error = Box::new(source.reopen("x").unwrap()).finish(done()).unwrap_err();
    advises(&error, ErrorKind::Conflict, "sprag work done x-00000001");
    let mut pull = plain_git(&task.directory);
    assert!(
        !pull.args(["pull", "-q", "--no-rebase", "origin", "main"]).status().unwrap().success()
    );
    // Half of a merge is not taken for one.
    let error = Box::new(source.reopen("x").unwrap()).finish(done()).unwrap_err();
    advises(&error, ErrorKind::Conflict, "commit --all");
    std::fs::write(task.directory.join("README.md"), "both\n").unwrap();
    git(&task.directory, &["commit", "--all", "-qm", "both"]);
    Box::new(source.reopen("x").unwrap()).finish(done()).unwrap();
    assert_eq!(git(&world.remote(), &["show", "main:README.md"]), "both");
}

#[test]
fn an_item_that_somebody_moved_by_hand_is_not_moved_again() {
    let world = World::new();
    let clone = world.clone_named("a");
    place_item(&clone, "bugs/next/x-00000001");
    let source = world.source(&clone, "agent-1");
    let claim = Box::new(source.claim_named("x", &How::default()).unwrap());
    git(&clone, &["pull", "-q", "origin", "main"]);
    std::fs::create_dir_all(clone.join("docs/work/bugs/signedoff")).unwrap();
    git(&clone, &["mv", "docs/work/bugs/next/x-00000001", "docs/work/bugs/signedoff/"]);
    git(&clone, &["commit", "-qm", "by hand"]);
    git(&clone, &["push", "-q", "origin", "HEAD:main"]);
    let error = claim.finish(Outcome::Done { category: None }).unwrap_err();
    advises(&error, ErrorKind::Conflict, "sprag work ls x-00000001");
    assert_eq!(world.items(), ["bugs/signedoff/x-00000001"]);
    assert_eq!(world.refs().iter().filter(|name| name.starts_with("refs/heads/")).count(), 1);
}

#[test]
fn where_no_worktree_can_be_made_the_item_is_given_back() {
    let world = World::new();
    let clone = world.clone_named("a");
    place_item(&clone, "bugs/next/x-00000001");
    let full = world.path("full");
    std::fs::write(&full, "no folder").unwrap();
    let rules = Rules { worktrees: Some(full.display().to_string()), ..Rules::default() };
    let source = world.source_with(&clone, "agent-1", &rules);
    let error = source.claim_named("x", &in_worktree()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::System, "{error}");
    let free = world.source(&clone, "agent-2");
    assert_eq!(free.ready(&Wanted::default()).unwrap().items.len(), 1);
}
