//! [`Git::push`] against real repositories: who wins, who does not, and who cannot know.
#![expect(clippy::unwrap_used, reason = "helpers of tests may")]

use std::path::Path;

use sprag_git::{Git, Pushed, RefChange, Trouble};
use sprag_ledger::{Oid, RefName};

struct World {
    folder: tempfile::TempDir,
    url: String,
    git: Git,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["remote.git", "local.git"] {
            let place = path(name).to_str().unwrap().to_owned();
            Git::new().ok(["init", "--quiet", "--bare", &place]).unwrap();
        }
        let git = Git::new().repository(path("local.git"));
        let url = format!("file://{}", path("remote.git").display());
        Self { url, git, folder }
    }

    fn remote(&self) -> std::path::PathBuf {
        self.folder.path().join("remote.git")
    }

    /// A new commit, which differs from all others by its message.
    fn commit(&self, message: &str) -> Oid {
        let tree = self.git.ok_with(["hash-object", "-wt", "tree", "--stdin"], b"").unwrap();
        let name = ["-c", "user.name=a", "-c", "user.email=a@b", "commit-tree", "-m", message];
        let commit = self.git.ok(name.into_iter().chain([tree.text().as_str()])).unwrap();
        Oid::new(commit.text()).unwrap()
    }

    fn push(&self, changes: &[RefChange]) -> Vec<Pushed> {
        self.git.push(&self.url, changes, changes.len() > 1).unwrap()
    }
}

fn change(name: &str, old: Option<&Oid>, new: Option<&Oid>) -> RefChange {
    let name = RefName::new(format!("refs/sprag/{name}")).unwrap();
    RefChange { name, old: old.cloned(), new: new.cloned(), unique: true }
}

fn write_hook(remote: &Path, name: &str, script: &str) {
    let hook = remote.join("hooks").join(name);
    std::fs::write(&hook, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn a_reference_is_made_moved_and_deleted_once_each() {
    let world = World::new();
    let (a, b, c) = (world.commit("a"), world.commit("b"), world.commit("c"));
    assert_eq!(world.push(&[change("x", None, Some(&a))]), [Pushed::Done]);
    assert_eq!(world.push(&[change("x", None, Some(&b))]), [Pushed::Refused]);
    assert_eq!(world.push(&[change("x", Some(&a), Some(&b))]), [Pushed::Done]);
    assert_eq!(world.push(&[change("x", Some(&a), Some(&c))]), [Pushed::Refused]);
    assert_eq!(world.push(&[change("x", Some(&a), None)]), [Pushed::Refused]);
    assert_eq!(world.push(&[change("x", Some(&b), None)]), [Pushed::Done]);
    let tips = world.git.tips(&world.url, &[change("x", None, None).name]).unwrap();
    assert_eq!(tips, [None]);
}

#[test]
fn who_pushes_the_same_commit_later_has_not_won() {
    let world = World::new();
    let a = world.commit("a");
    assert_eq!(world.push(&[change("x", None, Some(&a))]), [Pushed::Done]);
    assert_eq!(world.push(&[change("x", None, Some(&a))]), [Pushed::UpToDate]);
}

#[test]
fn all_or_none_are_changed() {
    let world = World::new();
    let (a, b) = (world.commit("a"), world.commit("b"));
    assert_eq!(world.push(&[change("x", None, Some(&a))]), [Pushed::Done]);
    let both = [change("x", None, Some(&b)), change("y", None, Some(&b))];
    assert_eq!(world.push(&both), [Pushed::Refused, Pushed::Aborted]);
    let both = [change("x", Some(&a), Some(&b)), change("y", None, Some(&b))];
    assert_eq!(world.push(&both), [Pushed::Done, Pushed::Done]);
}

#[test]
fn a_hook_that_declines_is_no_rival() {
    let world = World::new();
    write_hook(&world.remote(), "pre-receive", "echo 'not on a friday' >&2; exit 1");
    let pushed = world.push(&[change("x", None, Some(&world.commit("a")))]);
    let [Pushed::Failed(error)] = &pushed[..] else { panic!("{pushed:?}") };
    assert_eq!(error.trouble(), Trouble::HookRefused, "{error}");
}

#[test]
fn a_stale_lock_file_is_no_rival() {
    let world = World::new();
    let folder = world.remote().join("refs/sprag");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("x.lock"), "").unwrap();
    let pushed = world.push(&[change("x", None, Some(&world.commit("a")))]);
    let [Pushed::Failed(error)] = &pushed[..] else { panic!("{pushed:?}") };
    assert_eq!(error.trouble(), Trouble::Locked, "{error}");
}

#[test]
fn a_missing_remote_is_said_to_be_missing() {
    let world = World::new();
    let changes = [change("x", None, Some(&world.commit("a")))];
    let error = world.git.push("file:///no/such.git", &changes, false).unwrap_err();
    assert_eq!(error.trouble(), Trouble::NotFound, "{error}");
}
