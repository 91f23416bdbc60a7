//! Items on their way from an idea to production.

use sprag_work::{Claim, Claimed, ErrorKind, How, Outcome, Purpose, Source, Wanted};

use crate::support::*;

#[test]
fn an_item_goes_all_the_way_and_nothing_is_left_behind() {
    let world = World::new();
    let clone = world.clone_named("a");
    let source = world.source(&clone, "agent-1");
    assert!(source.init().unwrap());
    assert!(!source.init().unwrap());
    new_item(&source, "lostmypassword");
    let states: Vec<_> =
        drain(&source, &in_worktree()).iter().map(|done| done.to.to_string()).collect();
    assert_eq!(
        states,
        [
            "stamped",
            "bugs/next",
            "bugs/inanalysis",
            "bugs/readyfordevelopment",
            "bugs/readyfortesting",
            "bugs/signedoff",
            "bugs/archive/production"
        ]
    );
    let items = world.items();
    assert_eq!(items.len(), 1, "{items:?}");
    let stamp = items[0].strip_prefix("bugs/archive/production/lostmypassword-").unwrap();
    assert!(stamp.len() == 8 && stamp.bytes().all(|byte| byte.is_ascii_hexdigit()), "{stamp}");
    drop(source);
    assert_eq!(world.refs(), ["refs/heads/main"]);
    assert_eq!(git(&clone, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(&clone, &["branch", "--list"]).lines().count(), 1);
    assert!(!world.path("a-work").exists());
    assert_eq!(git(&clone, &["status", "--porcelain"]), "");
    assert_eq!(world.log().iter().filter(|line| line.starts_with("Merge branch")).count(), 7);
}

#[test]
fn what_the_worker_did_comes_to_main_with_the_move() {
    let world = World::new();
    let clone = world.clone_named("a");
    let source = world.source(&clone, "agent-1");
    place_item(&clone, "bugs/readyfordevelopment/x-00000001");
    let claim = source.claim_named("x-00000001", &in_worktree()).unwrap();
    let task = claim.task().clone();
    assert_eq!(task.branch.clone().unwrap(), "indevelopment-x-00000001");
    assert!(world.refs().contains(&"refs/heads/indevelopment-x-00000001".to_owned()));
    let folder = task.path().unwrap();
    assert!(folder.join("README.md").is_file());
    // One change is committed, one is not.
    std::fs::write(task.directory.join("fix.rs"), "fn fix() {}\n").unwrap();
    git(&task.directory, &["add", "."]);
    git(&task.directory, &["commit", "-qm", "fix it"]);
    std::fs::write(folder.join("analysis.md"), "why\n").unwrap();
    // Meanwhile others go on.
    let other = world.clone_named("b");
    std::fs::write(other.join("README.md"), "changed\n").unwrap();
    git(&other, &["commit", "-qam", "other"]);
    git(&other, &["push", "-q", "origin", "HEAD:main"]);
    let finished = Box::new(claim).finish(done()).unwrap();
    assert_eq!((finished.to.to_string().as_str(), finished.commits), ("bugs/readyfortesting", 2));
    let show = |path: &str| git(&world.remote(), &["show", &format!("main:{path}")]);
    assert_eq!(show("fix.rs"), "fn fix() {}");
    assert_eq!(show("docs/work/bugs/readyfortesting/x-00000001/analysis.md"), "why");
    assert_eq!(show("README.md"), "changed");
    assert_eq!(world.items(), ["bugs/readyfortesting/x-00000001"]);
    let parents = git(&world.remote(), &["rev-list", "--parents", "-1", "main"]);
    assert_eq!(parents.split(' ').count(), 3, "a merge");
}

#[test]
fn whoever_moves_the_folder_itself_is_understood() {
    let world = World::new();
    let clone = world.clone_named("a");
    let source = world.source(&clone, "agent-1");
    place_item(&clone, "stamped/x-00000001");
    let claim = source.claim_named("x", &in_worktree()).unwrap();
    let work = claim.task().directory.clone();
    std::fs::create_dir_all(work.join("docs/work/features/next")).unwrap();
    git(&work, &["mv", "docs/work/stamped/x-00000001", "docs/work/features/next/x-00000001"]);
    Box::new(claim).finish(Outcome::Done { category: None }).unwrap();
    assert_eq!(world.items(), ["features/next/x-00000001"]);
}

#[test]
fn a_pending_item_comes_back_to_where_it_was() {
    let world = World::new();
    let clone = world.clone_named("a");
    let source = world.source(&clone, "agent-1");
    place_item(&clone, "bugs/indevelopment/x-00000001");
    let pend = How { purpose: Purpose::Pend, ..How::default() };
    let claim = source.claim_named("x", &pend).unwrap();
    assert_eq!(claim.task().branch.clone().unwrap(), "pending-x-00000001");
    Box::new(claim).finish(Outcome::Pending { question: "which one?".into() }).unwrap();
    assert_eq!(world.items(), ["bugs/pending-x-00000001"]);
    assert!(source.ready(&Wanted::default()).unwrap().items.is_empty());
    let claim = source.claim_named("x", &How::default()).unwrap();
    assert_eq!(claim.task().branch.clone().unwrap(), "triaging-x-00000001");
    Box::new(claim).finish(Outcome::Resumed { category: None }).unwrap();
    assert_eq!(world.items(), ["bugs/indevelopment/x-00000001"]);
    let files = git(&world.remote(), &["ls-tree", "-r", "--name-only", "main", "docs/work/"]);
    assert!(!files.contains("item.toml"), "{files}");
}

#[test]
fn the_oldest_goes_first_unless_another_is_more_important() {
    let world = World::new();
    let clone = world.clone_named("a");
    let source = world.source(&clone, "agent-1");
    for (item, priority) in [("zebra", 0), ("apple", 0), ("urgent", 5)] {
        let new = sprag_work::NewItem { name: name(item), text: None, priority };
        source.create(&new).unwrap();
    }
    let ready = source.ready(&Wanted::default()).unwrap();
    let names: Vec<_> = ready.items.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(names, ["urgent", "zebra", "apple"]);
    let error = source
        .create(&sprag_work::NewItem { name: name("apple"), text: None, priority: 0 })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
}

#[test]
fn a_branch_that_somebody_pushed_by_hand_is_a_claim() {
    let world = World::new();
    let clone = world.clone_named("a");
    let source = world.source(&clone, "agent-1");
    place_item(&clone, "bugs/next/x-00000001");
    let ready = source.ready(&Wanted::default()).unwrap();
    git(&clone, &["push", "-q", "origin", "HEAD:refs/heads/readyforanalysis-x-00000001"]);
    // Whoever has chosen it before loses the race, by the branch alone.
    let Claimed::Passed(why) = source.claim(&ready.items[0], &How::default()).unwrap() else {
        panic!("it is claimed");
    };
    assert!(why.contains("lost race"), "{why}");
    let skipped = source.ready(&Wanted::default()).unwrap().skipped;
    assert_eq!(skipped[0].to_string(), "x-00000001 (claimed: branch readyforanalysis-x-00000001)");
    let board = source.board().unwrap();
    assert_eq!(board.rows[0].owner.as_ref().unwrap().worker, None);
    git(&clone, &["push", "-q", "origin", "--delete", "readyforanalysis-x-00000001"]);
    // Another word is a claim on the same item as well.
    git(&clone, &["push", "-q", "origin", "HEAD:refs/heads/pending-x-00000001"]);
    let Claimed::Passed(why) = source.claim(&ready.items[0], &How::default()).unwrap() else {
        panic!("it is claimed");
    };
    assert_eq!(why, "claimed: branch pending-x-00000001");
    assert_eq!(world.refs().len(), 2, "{:?}", world.refs());
}

#[test]
fn a_claim_can_outlive_its_process() {
    let world = World::new();
    let clone = world.clone_named("a");
    place_item(&clone, "bugs/readyfortesting/x-00000001");
    {
        let source = world.source(&clone, "agent-1");
        let claim = Box::new(source.claim_named("x", &in_worktree()).unwrap());
        let task = claim.keep(sprag_work::CLAIM_TTL).unwrap();
        std::fs::write(task.directory.join("report.md"), "fine\n").unwrap();
    }
    let source = world.source(&clone, "agent-1 again");
    let error = source.claim_named("x", &How::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Held);
    assert!(error.message().contains("agent-1"), "{error}");
    let claim = Box::new(source.reopen("x").unwrap());
    let finished = claim.finish(Outcome::Done { category: None }).unwrap();
    assert_eq!(finished.to.to_string(), "bugs/signedoff");
    assert_eq!(git(&world.remote(), &["show", "main:report.md"]), "fine");
    assert_eq!(world.refs(), ["refs/heads/main"]);
    assert_eq!(source.reopen("x").unwrap_err().kind(), ErrorKind::NotClaimed);
}
