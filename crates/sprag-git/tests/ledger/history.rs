//! What locks leave in a repository, and what damage there hides.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use sprag_core::entropy::OsEntropy;
use sprag_core::store::{Attempt, Listing, Released, Request, Takeover};
use sprag_core::{AuditQuery, Holder, LeaseId, LockName, Mode, PartyId, Store};
use sprag_ledger::{Ledger, LedgerStore, RefName, Settings};

use super::World;

const CHAIN: u64 = 6;

fn store(world: &World, git_talks: bool) -> LedgerStore {
    let mut settings = Settings::new("git");
    settings.chain = CHAIN;
    LedgerStore::new(Arc::new(world.ledger(git_talks)), settings).unwrap()
}

fn request(name: &str) -> Request {
    Request {
        name: LockName::new(name).unwrap(),
        lease: LeaseId::random(&OsEntropy),
        party: PartyId::random(&OsEntropy),
        mode: Mode::Exclusive,
        ttl: Duration::from_secs(600),
        queue: false,
        priority: 0,
        holder: Holder::new("worker", "here"),
        detached: false,
        fixed: false,
        takeover: Takeover::No,
        resize: false,
    }
}

fn acquire(store: &LedgerStore, request: &Request) -> u64 {
    match block_on(store.try_acquire(request)).unwrap() {
        Attempt::Granted(grant) => grant.fence.get(),
        other => panic!("{other:?}"),
    }
}

fn cycles(store: &LedgerStore, fences: std::ops::RangeInclusive<u64>) {
    for fence in fences {
        let request = request("deploy");
        assert_eq!(acquire(store, &request), fence);
        let released = block_on(store.release(&request.name, request.lease)).unwrap();
        assert_eq!(released, Released::Freed);
    }
}

fn lock(name: &str) -> RefName {
    RefName::lock(&LockName::new(name).unwrap())
}

fn commits(world: &World) -> u64 {
    world
        .git()
        .ok(["rev-list", "--count", lock("deploy").as_str()])
        .unwrap()
        .text()
        .parse()
        .unwrap()
}

#[test]
fn what_can_be_reached_of_a_lock_is_bounded() {
    for options in [&[][..], &["--object-format=sha256"]] {
        let world = World::new(options);
        // Who does the talking makes no difference to the hash.
        let talks: &[bool] = if options.is_empty() { &[false, true] } else { &[false] };
        for &git_talks in talks {
            let store = store(&world, git_talks);
            let first = if git_talks { 11 } else { 1 };
            cycles(&store, first..=first + 9);
            assert!(commits(&world) <= CHAIN, "{} commits", commits(&world));
            let told = block_on(store.audit(&AuditQuery::default())).unwrap();
            let fences: Vec<_> = told.iter().map(|entry| entry.fence.get()).collect();
            let last = first + 9;
            assert!(fences.len() >= 12 && fences.is_sorted() && fences.ends_with(&[last, last]));
        }
        world.git().ok(["fsck", "--strict"]).unwrap();
        let told = format!("{:?}", world.ledger(false).diagnose().unwrap());
        assert!(told.contains("1 locks and 0 sessions are kept, with "), "{told}");
        assert!(told.contains(&format!("{} commits as the history", commits(&world))), "{told}");
    }
}

/// A server whose rules forbid forced pushes.
#[test]
fn a_server_that_takes_no_forced_push_keeps_the_history() {
    let world = World::new(&[]);
    let hook = world.folder.path().join("hooks/update");
    let rule =
        "#!/bin/sh\n case $2$3 in *0000000000*) ;; *) git merge-base --is-ancestor $2 $3;; esac\n";
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, rule).unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for git_talks in [false, true] {
        let first = if git_talks { 7 } else { 1 };
        cycles(&store(&world, git_talks), first..=first + 5);
    }
    assert_eq!(commits(&world), 24);
}

/// One damaged reference of a lock or a session hides no other, whoever does the talking.
#[test]
fn a_damaged_object_hides_no_other_lock() {
    for git_talks in [false, true] {
        let world = World::new(&[]);
        let git = world.git();
        let writer = store(&world, false);
        for name in ["blob", "foreign", "garbage", "good", "missing"] {
            acquire(&writer, &request(name));
        }
        // A reference to something that is no commit, and to a commit of somebody else.
        let blob = git.ok_with(["hash-object", "-w", "--stdin"], b"?").unwrap().text();
        let tree = git.ok(["rev-parse", &format!("{}^{{tree}}", lock("good"))]).unwrap().text();
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let made = ["commit-tree", &tree, "-m", "hello"];
        let foreign = git.ok(who.into_iter().chain(made)).unwrap().text();
        git.ok(["update-ref", lock("blob").as_str(), &blob]).unwrap();
        git.ok(["update-ref", lock("foreign").as_str(), &foreign]).unwrap();
        // Objects that the disk has lost.
        let object = |name: &str| {
            let oid = git.ok(["rev-parse", lock(name).as_str()]).unwrap().text();
            world.folder.path().join("objects").join(&oid[..2]).join(&oid[2..])
        };
        let (garbage, missing) = (object("garbage"), object("missing"));
        let reader = store(&world, git_talks);
        let listed = || {
            let page = block_on(reader.list(&Listing::default())).unwrap();
            let names = page.locks.into_iter().map(|lock| lock.name.as_str().to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(listed(), ["garbage", "good", "missing"], "{git_talks}");
        // The lock that is damaged is refused, and no other lock with it.
        for name in ["blob", "foreign"] {
            let error = block_on(reader.try_acquire(&request(name))).unwrap_err();
            assert!(error.is_corrupt(), "{name}: {error}");
        }
        assert_eq!(acquire(&reader, &request("new")), 1);
        let told = block_on(reader.audit(&AuditQuery::default())).unwrap();
        assert!(told.iter().any(|entry| entry.name.as_str() == "good"), "{told:?}");
        // Nor does a session that is damaged.
        let session = RefName::session(writer.session());
        git.ok(["update-ref", session.as_str(), &blob]).unwrap();
        let wish = Request { takeover: Takeover::Overdue(Duration::ZERO), ..request("good") };
        let attempt = block_on(reader.try_acquire(&wish)).unwrap();
        assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");
        assert_eq!(block_on(reader.tidy(Duration::from_secs(600))).unwrap(), 0);
        // With these git itself takes no push any more. What is good can still be seen.
        fs::remove_file(missing).unwrap();
        fs::remove_file(&garbage).unwrap();
        fs::write(&garbage, "garbage").unwrap();
        let fresh = store(&world, git_talks);
        let page = block_on(fresh.list(&Listing::default())).unwrap();
        let names: Vec<_> = page.locks.iter().map(|lock| lock.name.as_str()).collect();
        assert_eq!(names, ["good", "new"], "{git_talks}");
    }
}
