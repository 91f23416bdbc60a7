//! A full disk and a read-only one, on a small tmpfs.
#![expect(clippy::unwrap_used, reason = "helpers of tests may")]

mod common;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use common::*;
use futures::executor::block_on;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use sprag_core::Store;
use sprag_core::store::{Attempt, Released, Renewed};
use sprag_sqlite::SqliteStore;

/// A tmpfs of one mebibyte; unmounted at the end.
struct Tmpfs(PathBuf);

impl Tmpfs {
    /// `None` if the tester said so; a missing right fails the test.
    fn mount(dir: &Path) -> Option<Self> {
        let skip = std::env::var("SPRAG_SKIP").unwrap_or_default();
        if skip.split(',').any(|word| word.trim() == "mount") {
            return None;
        }
        let mounted = mount("none", dir, "tmpfs", MountFlags::empty(), c"size=1m");
        mounted.expect("a tmpfs needs root: run as root, or set SPRAG_SKIP=mount");
        Some(Self(dir.to_owned()))
    }

    /// Takes all the space that is left.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = fs::File::create(&path).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        path
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn a_full_disk_is_told_apart_and_passes() {
    let dir = tempfile::tempdir().unwrap();
    let Some(tmpfs) = Tmpfs::mount(dir.path()) else { return };
    let path = dir.path().join("sprag.db");
    let (store, other) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let held = request("held");
    let grant = acquire(&store, &held);
    assert!(block_on(other.inspect(&held.name)).unwrap().is_locked());
    let filler = tmpfs.fill();
    // What fits into the space that the files already have is still done.
    let error = (0..5000)
        .find_map(|number| block_on(store.try_acquire(&request(&format!("job/{number}")))).err())
        .expect("the disk is full at some point");
    assert!(error.is_store_full() && !error.is_indeterminate(), "{error:?}");
    // What is held is as good as before, if it cannot be renewed or given back. Nothing of either
    // is done in part.
    let renewal = [renewal_of(&held)];
    let error = block_on(store.renew(&renewal)).unwrap_err();
    assert!(error.is_store_full() && !error.is_indeterminate(), "{error:?}");
    let error = block_on(store.release(&held.name, held.lease)).unwrap_err();
    assert!(error.is_store_full() && !error.is_indeterminate(), "{error:?}");
    let seen = block_on(other.inspect(&held.name)).unwrap();
    assert_eq!(seen.holders.iter().map(|hold| hold.fence).collect::<Vec<_>>(), [grant.fence]);
    // No opening, but looking works; and the end of a session frees without any space.
    assert!(SqliteStore::open(dir.path().join("new.db")).unwrap_err().is_store_full());
    drop(store);
    assert!(!block_on(other.inspect(&held.name)).unwrap().is_locked());
    fs::remove_file(filler).unwrap();
    let again = request("held");
    let grant = acquire(&other, &again);
    assert_eq!(renew(&other, &again), Renewed::Held(grant));
}

#[test]
fn what_could_not_be_done_on_a_full_disk_is_done_later() {
    let dir = tempfile::tempdir().unwrap();
    let Some(tmpfs) = Tmpfs::mount(dir.path()) else { return };
    let store = SqliteStore::open(dir.path().join("sprag.db")).unwrap();
    let (held, waiter) = (request("held"), queued("held"));
    let grant = acquire(&store, &held);
    assert!(matches!(attempt(&store, &waiter), Attempt::Queued(_)));
    let filler = tmpfs.fill();
    let full = (0..5000).any(|_| block_on(store.renew(&[renewal_of(&held)])).is_err());
    assert!(full, "the disk is full at some point");
    assert!(block_on(store.release(&held.name, held.lease)).unwrap_err().is_store_full());
    fs::remove_file(filler).unwrap();
    assert_eq!(renew(&store, &held), Renewed::Held(grant));
    assert_eq!(release(&store, &held), Released::Freed);
    assert!(matches!(attempt(&store, &waiter), Attempt::Granted(_)), "handed over");
}

#[test]
fn a_read_only_disk_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_tmpfs) = Tmpfs::mount(dir.path()) else { return };
    let path = dir.path().join("sprag.db");
    drop(SqliteStore::open(&path).unwrap());
    mount_remount(dir.path(), MountFlags::RDONLY, c"").unwrap();
    for path in [path, dir.path().join("new/sprag.db")] {
        let error = SqliteStore::open(&path).unwrap_err();
        assert!(
            error.is_refused() && error.to_string().contains(dir.path().to_str().unwrap()),
            "{error:?}"
        );
    }
}
