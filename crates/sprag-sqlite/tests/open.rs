//! Opening: what is made, what is refused, and that refused files stay as they are.
#![expect(clippy::unwrap_used, reason = "helpers of tests may")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::*;
use sprag_core::Error;
use sprag_sqlite::SqliteStore;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Opens `path`, which must fail and change nothing in the file or beside it.
fn refused(path: &Path) -> Error {
    let before = fs::read(path).unwrap();
    let error = SqliteStore::open(path).unwrap_err();
    assert_eq!(fs::read(path).unwrap(), before, "the file was changed");
    let shown = path.to_str().unwrap();
    for beside in ["gate", "sessions"] {
        assert!(!Path::new(&format!("{shown}.{beside}")).exists(), "{beside} was made");
    }
    assert!(error.to_string().contains(shown), "{error}");
    error
}

#[test]
fn everything_is_made_and_only_for_this_user() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("a/b");
    let path = state.join("sprag.db");
    let store = SqliteStore::open(&path).unwrap();
    acquire(&store, &queued("job"));
    attempt(&store, &queued("job"));
    for folder in [dir.path().join("a"), state.clone(), state.join("sprag.db.sessions")] {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
    }
    let in_state = fs::read_dir(&state).unwrap();
    let in_sessions = fs::read_dir(state.join("sprag.db.sessions")).unwrap();
    let mut files = 0;
    for entry in in_state.chain(in_sessions).map(Result::unwrap) {
        if !entry.file_type().unwrap().is_dir() {
            assert_eq!(mode(&entry.path()), 0o600, "{}", entry.path().display());
            files += 1;
        }
    }
    // Database, log, index, gate, trail, count of force; session file and socket.
    assert_eq!(files, 8);
    drop(store);
    assert_eq!(fs::read_dir(state.join("sprag.db.sessions")).unwrap().count(), 0);
}

#[test]
fn a_foreign_file_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    for (number, text) in ["hello", &"long text ".repeat(1000)].into_iter().enumerate() {
        let path = dir.path().join(format!("notes{number}.txt"));
        fs::write(&path, text).unwrap();
        let error = refused(&path);
        assert!(error.is_corrupt() && error.to_string().contains("another path"), "{error}");
    }
}

#[test]
fn a_foreign_database_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mail.db");
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch("CREATE TABLE mail (text)").unwrap();
    drop(raw);
    let error = refused(&path);
    assert!(error.is_refused() && error.to_string().contains("another program"), "{error}");
}

#[test]
fn a_newer_database_is_refused_with_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    drop(SqliteStore::open(&path).unwrap());
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 3).unwrap();
    let before = fs::read(&path).unwrap();
    let error = SqliteStore::open(&path).unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains("upgrade"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_damaged_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let store = SqliteStore::open(&path).unwrap();
    acquire(&store, &request("job"));
    store.maintain().unwrap();
    drop(store);
    // The header is good and the pages behind it are not.
    fs::remove_file(dir.path().join("sprag.db-wal")).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[100..].fill(0xA5);
    fs::write(&path, &bytes).unwrap();
    let error = SqliteStore::open(&path).unwrap_err();
    assert!(error.is_corrupt(), "{error:?}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn places_that_cannot_be_used_are_refused_with_their_path() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let linked = dir.path().join("linked.db");
    fs::write(&linked, "").unwrap();
    fs::hard_link(&linked, dir.path().join("twin.db")).unwrap();
    let bad = [
        dir.path().to_owned(),
        file.join("below/sprag.db"),
        // Nobody may make directories there, not even root.
        "/sys/sprag-test/sprag.db".into(),
        "/proc/sprag-test/sprag.db".into(),
        linked,
    ];
    for path in bad {
        let error = SqliteStore::open(&path).unwrap_err();
        let parent = path.parent().unwrap().to_str().unwrap();
        assert!(error.is_refused(), "{}: {error:?}", path.display());
        assert!(error.to_string().contains(parent), "{error}");
    }
}

#[test]
fn one_database_is_one_store_by_whichever_link_it_is_reached() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("real/sprag.db");
    let one = SqliteStore::open(&path).unwrap();
    let link = dir.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let two = SqliteStore::open(&link).unwrap();
    assert_eq!(one.path(), two.path());
    acquire(&one, &request("job"));
    assert!(matches!(attempt(&two, &request("job")), sprag_core::store::Attempt::Held(_)));
}

#[test]
fn many_open_a_new_store_at_once() {
    // Each time somebody looks at the file while another one makes the database in it.
    (0..20).for_each(|_| open_a_new_store_many_times());
}

fn open_a_new_store_many_times() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/sprag.db");
    let open = || SqliteStore::open(&path).unwrap();
    let stores: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    acquire(&stores[0], &request("job"));
    for store in &stores[1..] {
        assert!(matches!(attempt(store, &request("job")), sprag_core::store::Attempt::Held(_)));
    }
}
