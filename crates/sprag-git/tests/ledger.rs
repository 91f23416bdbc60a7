//! [`GitLedger`] on a repository of this machine: what its contract says, whoever does the talking,
//! with both hashes and both ways to keep references.
#![expect(clippy::unwrap_used, reason = "helpers of tests may")]

#[path = "ledger/history.rs"]
mod history;
#[path = "ledger/hostile.rs"]
mod hostile;

use sprag_core::diagnosis::Health;
use sprag_git::{Git, GitConfig, GitLedger, Version};
use sprag_ledger::{Change, Entry, Ledger, New, Oid, RefName, Swapped};

struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let init = ["init", "--quiet", "--bare"].into_iter();
        Git::new().ok(init.chain(options.iter().copied()).chain([path])).unwrap();
        Self { folder }
    }

    fn ledger(&self, git_talks: bool) -> GitLedger {
        let url = format!("file://{}", self.folder.path().display());
        GitLedger::open(GitConfig::url(url).git_talks(git_talks)).unwrap()
    }

    fn git(&self) -> Git {
        Git::new().repository(self.folder.path())
    }
}

/// Runs on every kind of repository that this git can make, once for each who talks.
fn everywhere(test: impl Fn(&World, &GitLedger)) {
    let can_reftable = Git::new().version().unwrap() >= Version { major: 2, minor: 45, patch: 0 };
    let mut kinds = vec![vec![], vec!["--object-format=sha256"]];
    if can_reftable {
        kinds.push(vec!["--ref-format=reftable"]);
    }
    for options in kinds {
        for git_talks in [false, true] {
            let world = World::new(&options);
            test(&world, &world.ledger(git_talks));
        }
    }
}

fn name(text: &str) -> RefName {
    RefName::new(format!("refs/sprag/{text}")).unwrap()
}

fn entry(text: &str) -> Entry {
    Entry { summary: format!("{text} happened"), body: format!("{{\"a\":\"{text}\"}}") }
}

fn write(at: &str, old: Option<&Oid>, text: &str) -> Change {
    Change { name: name(at), old: old.cloned(), new: New::Entry(entry(text)) }
}

fn done(swapped: &Swapped) -> Oid {
    match swapped {
        Swapped::Done(Some(oid)) => oid.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn entries_follow_each_other_and_can_be_read() {
    everywhere(|world, ledger| {
        let first = done(&ledger.swap(&[write("a", None, "one")]).unwrap()[0]);
        let second = done(&ledger.swap(&[write("a", Some(&first), "two")]).unwrap()[0]);
        assert_eq!(ledger.tips(&[name("a"), name("b")]).unwrap(), [Some(second.clone()), None]);
        let tips = [(name("a"), second.clone()), (name("a"), first.clone())];
        assert_eq!(ledger.entries(&tips).unwrap(), [entry("two"), entry("one")]);
        let history = ledger.history(&name("a"), 10).unwrap();
        assert_eq!(history, [(second.clone(), entry("two")), (first, entry("one"))]);
        assert_eq!(ledger.history(&name("a"), 1).unwrap().len(), 1);
        assert_eq!(ledger.history(&name("b"), 1).unwrap(), []);
        // And by anybody who has git.
        let log = world.git().ok(["log", "--format=%s|%b|%an", second.as_str()]).unwrap().text();
        let lines: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(
            lines,
            ["two happened|{\"a\":\"two\"}", "|sprag", "one happened|{\"a\":\"one\"}", "|sprag"]
        );
        assert!(world.git().ok(["fsck", "--strict"]).is_ok());
    });
}

#[test]
fn a_swap_needs_what_it_expects() {
    everywhere(|_, ledger| {
        let first = done(&ledger.swap(&[write("a", None, "one")]).unwrap()[0]);
        assert_eq!(ledger.swap(&[write("a", None, "one")]).unwrap(), [Swapped::Refused]);
        let second = done(&ledger.swap(&[write("a", Some(&first), "two")]).unwrap()[0]);
        assert_eq!(ledger.swap(&[write("a", Some(&first), "x")]).unwrap(), [Swapped::Refused]);
        assert_eq!(ledger.swap(&[write("b", Some(&first), "x")]).unwrap(), [Swapped::Refused]);
        let delete =
            |old: &Oid| Change { name: name("a"), old: Some(old.clone()), new: New::Nowhere };
        assert_eq!(ledger.swap(&[delete(&first)]).unwrap(), [Swapped::Refused]);
        assert_eq!(ledger.swap(&[delete(&second)]).unwrap(), [Swapped::Done(None)]);
        assert_eq!(ledger.tips(&[name("a")]).unwrap(), [None]);
    });
}

#[test]
fn all_or_none_are_swapped() {
    everywhere(|_, ledger| {
        let first = done(&ledger.swap(&[write("a", None, "one")]).unwrap()[0]);
        let both = [write("a", None, "x"), write("b", None, "x")];
        assert_eq!(ledger.swap(&both).unwrap(), [Swapped::Refused, Swapped::Aborted]);
        assert_eq!(ledger.tips(&[name("b")]).unwrap(), [None]);
        let both = [write("a", Some(&first), "x"), write("b", None, "x")];
        let swapped = ledger.swap(&both).unwrap();
        assert_ne!(done(&swapped[0]), done(&swapped[1]));
    });
}

#[test]
fn a_branch_goes_along_unless_it_is_there() {
    everywhere(|_, ledger| {
        let at = done(&ledger.swap(&[write("base", None, "base")]).unwrap()[0]);
        let branch = |name: &str| RefName::new(format!("refs/heads/{name}")).unwrap();
        let along =
            |at: &Oid, to: &str| Change { name: branch(to), old: None, new: New::At(at.clone()) };
        let swapped = ledger.swap(&[write("a", None, "x"), along(&at, "new")]).unwrap();
        done(&swapped[0]);
        assert_eq!(swapped[1], Swapped::Done(Some(at.clone())));
        // Where somebody else put it already, at the very same commit, it is theirs.
        let swapped = ledger.swap(&[write("b", None, "x"), along(&at, "new")]).unwrap();
        assert_eq!(swapped, [Swapped::Aborted, Swapped::Refused]);
        assert_eq!(ledger.tips(&[name("b")]).unwrap(), [None]);
    });
}

#[test]
fn what_begins_the_same_is_listed_in_order() {
    everywhere(|_, ledger| {
        let changes: Vec<_> = ["x/b", "x/a", "y", "xx"].map(|at| write(at, None, at)).into();
        ledger.swap(&changes).unwrap();
        let found = ledger.list("refs/sprag/x/").unwrap();
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["refs/sprag/x/a", "refs/sprag/x/b"]);
    });
}

#[test]
fn a_hundred_at_once_are_one_push() {
    everywhere(|_, ledger| {
        let changes: Vec<_> = (0..100).map(|n| write(&format!("n{n}"), None, "x")).collect();
        let tips: Vec<_> = ledger.swap(&changes).unwrap().iter().map(done).collect();
        let named: Vec<_> = changes.iter().map(|change| change.name.clone()).zip(tips).collect();
        assert_eq!(ledger.entries(&named).unwrap().len(), 100);
    });
}

#[test]
fn what_somebody_else_wrote_there_is_told() {
    let world = World::new(&[]);
    let blob = world.git().ok_with(["hash-object", "-w", "--stdin"], b"x").unwrap().text();
    world.git().ok(["update-ref", "refs/sprag/a", &blob]).unwrap();
    let ledger = world.ledger(false);
    let tip = ledger.tips(&[name("a")]).unwrap().remove(0).unwrap();
    let error = ledger.entries(&[(name("a"), tip)]).unwrap_err();
    assert!(error.is_corrupt(), "{error}");
}

#[test]
fn a_remote_is_found_by_its_name() {
    let world = World::new(&[]);
    let clone = tempfile::tempdir().unwrap();
    let here = Git::new().directory(clone.path());
    here.ok(["init", "--quiet"]).unwrap();
    let open = |name: &str| GitLedger::open(GitConfig::remote(name, clone.path()));
    let error = open("origin").unwrap_err();
    assert!(error.message().contains("git remote add origin URL"), "{error}");
    here.ok(["remote", "add", "origin", world.folder.path().to_str().unwrap()]).unwrap();
    done(&open("origin").unwrap().swap(&[write("a", None, "one")]).unwrap()[0]);
    assert_eq!(world.ledger(false).tips(&[name("a")]).unwrap().len(), 1);
    let nowhere = tempfile::tempdir().unwrap();
    let error = GitLedger::open(GitConfig::remote("origin", nowhere.path())).unwrap_err();
    assert!(error.message().contains("is in no git repository"), "{error}");
}

#[test]
fn a_remote_that_is_well_is_told_to_be() {
    everywhere(|_, ledger| {
        let findings = ledger.diagnose().unwrap();
        let well = findings.iter().all(|finding| finding.health == Health::Good);
        assert!(well && findings.len() == 4, "{findings:?}");
    });
}

#[test]
fn passwords_are_not_shown() {
    for git_talks in [false, true] {
        let config = GitConfig::url("http://me:hunter2@127.0.0.1:1/x").git_talks(git_talks);
        let ledger = GitLedger::open(config).unwrap();
        let error = ledger.tips(&[name("a")]).unwrap_err();
        let shown = format!("{ledger:?} {error} {error:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn a_missing_repository_is_said_to_be_missing() {
    for git_talks in [false, true] {
        let config = GitConfig::url("file:///no/such.git").git_talks(git_talks);
        let ledger = GitLedger::open(config).unwrap();
        let error = ledger.tips(&[name("a")]).unwrap_err();
        assert!(error.is_refused() && error.to_string().contains("check the path"), "{error}");
        assert!(ledger.swap(&[write("a", None, "x")]).unwrap_err().is_refused());
    }
}
