//! What the dead leave behind.

use std::time::Duration;

use sprag_work::{
    Claim, ErrorKind, Fate, GitClaim, GitSource, How, Outcome, Recover, Source, Wanted,
};

use crate::support::*;

fn ready(source: &GitSource) -> usize {
    source.ready(&Wanted::default()).unwrap().items.len()
}

/// Of the claims on two items that were lost, one is finished in vain and the other recovered: the
/// branch of each goes, and both items are ready again.
fn branches_of_lost_claims_go([x, _y]: [GitClaim; 2], source: &GitSource) {
    assert_eq!(ready(source), 0, "the branches are there");
    let error = Box::new(x).finish(done()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(ready(source), 1, "it takes its branch along");
    let freed = source.recover(&Recover::default()).unwrap();
    assert_eq!((freed.len(), freed[0].item.as_str()), (1, "y-00000002"));
    assert_eq!(ready(source), 2);
}

#[test]
fn who_was_counted_as_dead_finds_out_before_it_can_push_over_its_successor() {
    let world = World::new();
    let (a, b) = (world.clone_named("a"), world.clone_named("b"));
    place_item(&a, "bugs/readyfordevelopment/x-00000001");
    let source = world.source(&a, "agent-1");
    let claim = source.claim_named("x", &in_worktree()).unwrap();
    std::fs::write(claim.task().directory.join("slow.rs"), "fn slow() {}\n").unwrap();
    let other = world.source(&b, "agent-2");
    assert_eq!(other.recover(&Recover::default()).unwrap(), []);
    let all = Recover { assume_dead: true, ..Recover::default() };
    assert_eq!(other.recover(&all).unwrap_err().kind(), ErrorKind::Input);
    let one = Recover { assume_dead: true, items: vec!["x".into()], dry_run: false };
    let freed = other.recover(&one).unwrap();
    assert_eq!((freed[0].fate.clone(), freed[0].worker.as_deref()), (Fate::Freed, Some("agent-1")));
    assert_eq!(world.refs().iter().filter(|name| name.starts_with("refs/heads/")).count(), 1);
    let again = other.claim_named("x", &How::default()).unwrap();
    assert!(again.task().fence > claim.task().fence);

    // The slow one comes back.
    let error = Box::new(claim).finish(done()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(error.to_string().contains("unfinished/indevelopment-x-00000001."), "{error}");
    assert_eq!(world.items(), ["bugs/readyfordevelopment/x-00000001"]);
    let left = world.refs().into_iter().find(|name| name.contains("unfinished/")).unwrap();
    assert_eq!(git(&world.remote(), &["show", &format!("{left}:slow.rs")]), "fn slow() {}");
    // And the one that has it now is not disturbed.
    Box::new(again).finish(Outcome::Done { category: None }).unwrap();
    assert_eq!(world.items(), ["bugs/readyfortesting/x-00000001"]);
}

#[test]
fn the_branch_of_a_worker_that_was_cut_off_is_no_claim_by_hand() {
    let world = World::new();
    let (a, b) = (world.clone_named("a"), world.clone_named("b"));
    for item in ["x-00000001", "y-00000002"] {
        place_item(&a, &format!("bugs/readyfordevelopment/{item}"));
    }
    let source = world.source(&a, "agent-1").run_ttl(Duration::from_secs(2));
    let claims = ["x", "y"].map(|item| source.claim_named(item, &How::default()).unwrap());
    let away = world.path("away.git");
    std::fs::rename(world.remote(), &away).unwrap();
    wait_until(|| claims.iter().all(|claim| !claim.guard().unwrap().is_valid()), "it is lost");
    std::fs::rename(&away, world.remote()).unwrap();
    // It gives up by itself what it could not renew.
    let other = world.source(&b, "agent-2");
    let held = |name: &str| {
        let view = futures::executor::block_on(other.client().inspect(name)).unwrap();
        !view.holders.is_empty()
    };
    let names = ["work/x-00000001", "work/y-00000002"];
    wait_until(|| !names.iter().any(|name| held(name)), "both are free");
    branches_of_lost_claims_go(claims, &other);
}

#[test]
fn a_damaged_lock_keeps_no_other_item_from_being_seen_and_recovered() {
    let world = World::new();
    let (a, b) = (world.clone_named("a"), world.clone_named("b"));
    for item in ["x-00000001", "y-00000002"] {
        place_item(&a, &format!("bugs/readyfordevelopment/{item}"));
    }
    let source = world.source(&a, "agent-1");
    let _claims = ["x", "y"].map(|item| source.claim_named(item, &How::default()).unwrap());
    let other = world.source(&b, "agent-2");
    let lock = sprag_core::LockName::new("work/x-00000001").unwrap();
    let lock = sprag_ledger::RefName::lock(&lock);
    // A commit of somebody else, and something that is no commit.
    for damage in ["main", "main:README.md"] {
        git(&world.remote(), &["update-ref", lock.as_str(), damage]);
        let board = other.board().unwrap();
        let owners = board.rows.iter().filter_map(|row| row.owner.as_ref()?.worker.as_deref());
        assert_eq!(owners.collect::<Vec<_>>(), ["agent-1"], "{damage}");
        assert_eq!(other.recover(&Recover::default()).unwrap(), [], "{damage}");
    }
    let one = Recover { assume_dead: true, items: vec!["y".into()], dry_run: false };
    let freed = other.recover(&one).unwrap();
    assert_eq!((freed.len(), freed[0].fate.clone()), (1, Fate::Freed));
}

#[test]
fn a_claim_without_a_process_ends_with_its_time() {
    let world = World::new();
    let clone = world.clone_named("a");
    place_item(&clone, "bugs/readyfortesting/x-00000001");
    {
        let source = world.source(&clone, "agent-1");
        let ttl = Duration::from_secs(2);
        let how = How { ttl: Some(ttl), ..How::default() };
        let claim = Box::new(source.claim_named("x", &how).unwrap());
        claim.keep(ttl).unwrap();
    }
    let other = world.clone_named("b");
    let source = world.source(&other, "agent-2");
    assert_eq!(ready(&source), 0);
    let freed = || {
        source.recover(&Recover::default()).unwrap();
        ready(&source) > 0
    };
    wait_until(freed, "it is freed");
    assert_eq!(world.refs().iter().filter(|name| name.starts_with("refs/heads/")).count(), 1);
}

#[test]
fn recover_leaves_the_living_and_those_who_claimed_by_hand_alone() {
    let world = World::new();
    let clone = world.clone_named("a");
    for item in ["x-00000001", "y-00000002"] {
        place_item(&clone, &format!("bugs/readyfordevelopment/{item}"));
    }
    let source = world.source(&clone, "agent-1");
    let claim = source.claim_named("x", &in_worktree()).unwrap();
    git(&clone, &["push", "-q", "origin", "HEAD:refs/heads/indevelopment-y-00000002"]);
    let other = world.source(&clone, "agent-2");
    assert_eq!(other.recover(&Recover::default()).unwrap(), []);
    assert!(claim.task().directory.exists());
    Box::new(claim).finish(done()).unwrap();
    assert!(world.refs().contains(&"refs/heads/indevelopment-y-00000002".to_owned()));
}

#[test]
fn the_branch_of_a_claim_that_was_broken_goes_with_its_worker_or_with_recover() {
    let world = World::new();
    let (a, b) = (world.clone_named("a"), world.clone_named("b"));
    for item in ["x-00000001", "y-00000002"] {
        place_item(&a, &format!("bugs/readyfordevelopment/{item}"));
    }
    let source = world.source(&a, "agent-1");
    let claims = ["x", "y"].map(|item| source.claim_named(item, &How::default()).unwrap());
    let operator = world.source(&b, "operator");
    for (claim, lock) in claims.iter().zip(["work/x-00000001", "work/y-00000002"]) {
        let broken = operator.client().evict(lock, claim.task().fence, "it hangs");
        futures::executor::block_on(broken).unwrap();
    }
    branches_of_lost_claims_go(claims, &operator);
}

/// In the clone where the claim was made as well, and at once.
#[test]
fn the_branch_of_a_broken_claim_without_a_process_goes_with_recover() {
    let world = World::new();
    let clone = world.clone_named("a");
    place_item(&clone, "bugs/readyfordevelopment/x-00000001");
    let source = world.source(&clone, "agent-1");
    let claim = Box::new(source.claim_named("x", &in_worktree()).unwrap());
    let fence = claim.task().fence;
    claim.keep(Duration::from_secs(3600)).unwrap();
    let broken = source.client().evict("work/x-00000001", fence, "it hangs");
    futures::executor::block_on(broken).unwrap();
    assert_eq!(ready(&source), 0, "the branch is there");
    source.recover(&Recover::default()).unwrap();
    assert_eq!(ready(&source), 1);
}

#[test]
fn a_branch_by_hand_on_an_item_that_was_freed_is_a_claim() {
    let world = World::new();
    let (a, b) = (world.clone_named("a"), world.clone_named("b"));
    place_item(&a, "bugs/readyfordevelopment/x-00000001");
    let source = world.source(&a, "agent-1");
    let _claim = source.claim_named("x", &How::default()).unwrap();
    let other = world.source(&b, "agent-2");
    let dead = Recover { assume_dead: true, items: vec!["x".into()], dry_run: false };
    assert_eq!(other.recover(&dead).unwrap()[0].fate, Fate::Freed);
    git(&a, &["push", "-q", "origin", "HEAD:refs/heads/indevelopment-x-00000001"]);
    assert_eq!(other.recover(&Recover::default()).unwrap(), []);
    assert!(world.refs().contains(&"refs/heads/indevelopment-x-00000001".to_owned()));
}
