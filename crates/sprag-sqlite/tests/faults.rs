//! What goes wrong on one machine, and that nobody gets a lock by it that is not theirs.
#![expect(clippy::unwrap_used, reason = "helpers of tests may")]

mod common;

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use futures::FutureExt;
use futures::executor::block_on;
use sprag_core::clock::{BootClock, Clock, ManualClock, Moment};
use sprag_core::store::{Attempt, Renewed, Request};
use sprag_core::{Fence, Loss, Store};
use sprag_sqlite::{SqliteConfig, SqliteStore};

fn beside(path: &Path, suffix: &str) -> std::path::PathBuf {
    format!("{}{suffix}", path.display()).into()
}

/// Takes the gate as a process that was stopped in the middle of a write has it.
fn take_gate(path: &Path) -> File {
    let gate = File::open(beside(path, ".gate")).unwrap();
    gate.lock().unwrap();
    gate
}

#[test]
fn a_stuck_gate_is_busy_in_time_and_looking_still_works() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let patience = Duration::from_millis(200);
    let config = SqliteConfig::new(&path).busy_timeout(patience);
    let store = SqliteStore::with_config(config.clone()).unwrap();
    let held = request("held");
    acquire(&store, &held);
    let gate = take_gate(&path);
    let start = BootClock.now();
    let error = block_on(store.try_acquire(&request("job"))).unwrap_err();
    let took = BootClock.now().since(start);
    assert!(error.is_busy() && error.is_indeterminate(), "{error:?}");
    assert!(took >= patience && took < Duration::from_secs(5), "{took:?}");
    assert!(block_on(store.inspect(&held.name)).unwrap().is_locked());
    assert!(SqliteStore::with_config(config).unwrap_err().is_busy());
    drop(gate);
    // What was answered as busy is not done later.
    assert!(!block_on(store.inspect(&name("job"))).unwrap().is_locked());
    acquire(&store, &request("job"));
}

#[test]
fn a_process_stopped_in_the_lobby_holds_nobody_up_for_long() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let config = SqliteConfig::new(&path).busy_timeout(Duration::from_secs(2));
    let store = SqliteStore::with_config(config).unwrap();
    let lobby = File::create(beside(&path, ".lobby")).unwrap();
    lobby.lock().unwrap();
    let gate = take_gate(&path);
    let wish = request("job");
    // It finds the gate taken, and the worker finds the lobby taken for good.
    let mut wishing = store.try_acquire(&wish);
    assert!(wishing.as_mut().now_or_never().is_none());
    drop(gate);
    let answer = block_on(wishing).unwrap();
    assert!(matches!(answer, Attempt::Granted(_)), "{answer:?}");
    release(&store, &wish);
    drop(lobby);
}

#[test]
fn a_dropped_request_is_not_done_later() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let store = SqliteStore::open(&path).unwrap();
    let gate = take_gate(&path);
    let wish = request("job");
    // Polled once, it waits for the gate in the worker; then its caller goes away.
    assert!(store.try_acquire(&wish).now_or_never().is_none());
    let clone = store.clone();
    let released = std::thread::spawn(move || release(&clone, &wish));
    drop(gate);
    released.join().unwrap();
    acquire(&store, &request("next"));
    assert!(!block_on(store.inspect(&name("job"))).unwrap().is_locked());
}

#[test]
fn a_deleted_gate_costs_order_and_not_safety() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let one = SqliteStore::open(&path).unwrap();
    fs::remove_file(beside(&path, ".gate")).unwrap();
    let two = SqliteStore::open(&path).unwrap();
    let (inside, done) = (AtomicU32::new(0), AtomicU32::new(0));
    let run = |store: &SqliteStore| {
        for _ in 0..300 {
            let wish = request("job");
            match block_on(store.try_acquire(&wish)) {
                Ok(Attempt::Granted(_)) => {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    done.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    while block_on(store.release(&wish.name, wish.lease)).is_err() {}
                }
                Ok(Attempt::Held(_)) => {}
                Ok(other) => panic!("{other:?}"),
                Err(error) => assert!(error.is_busy(), "{error:?}"),
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(&one));
        scope.spawn(|| run(&two));
    });
    assert!(done.into_inner() > 0);
}

#[test]
fn a_new_boot_frees_everything_and_keeps_the_fences() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    // A clock that stands at zero: only what is stored can make the fences grow.
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let boot = |id| {
        SqliteStore::with_config(SqliteConfig::new(&path).boot_id(id).clock(Arc::clone(&clock)))
    };
    let store = boot("one").unwrap();
    let old = request("job");
    let fence = acquire(&store, &old).fence;
    // Two boots at once cannot be; the holder that is there is not robbed.
    let error = boot("two").unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("boot id"), "{error}");
    assert!(matches!(renew(&store, &old), Renewed::Held(_)));
    drop(store);
    let store = boot("two").unwrap();
    assert_eq!(renew(&store, &old), Renewed::Lost(Loss::StateLost));
    assert!(acquire(&store, &request("job")).fence > fence);
}

/// The clocks of a machine that is restarted: one begins anew, the other goes on.
#[derive(Debug)]
struct Restarted {
    boot_s: u64,
    unix_s: u64,
}

impl Clock for Restarted {
    fn now(&self) -> Moment {
        Moment::START.plus(Duration::from_secs(self.boot_s))
    }

    fn unix_micros(&self) -> u64 {
        self.unix_s * 1_000_000
    }
}

#[test]
fn a_detached_lease_lasts_over_a_reboot_until_its_time_of_day() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let boot = |id: &str, boot_s, unix_s| {
        let clock = Arc::new(Restarted { boot_s, unix_s });
        SqliteStore::with_config(SqliteConfig::new(&path).boot_id(id).clock(clock)).unwrap()
    };
    let held = |store: &SqliteStore| matches!(attempt(store, &request("job")), Attempt::Held(_));
    let store = boot("one", 5_000, 1_000_000);
    let detached = Request { detached: true, ttl: Duration::from_secs(3_600), ..request("job") };
    let bound = request("bound");
    let fence = acquire(&store, &detached).fence;
    acquire(&store, &bound);
    drop(store);
    // Half an hour later the machine has been up for a minute.
    let store = boot("two", 60, 1_001_800);
    assert!(held(&store), "it was promised for an hour");
    assert_eq!(renew(&store, &bound), Renewed::Lost(Loss::StateLost));
    drop(store);
    // Another container, with another boot id and no time passed.
    let store = boot("three", 70, 1_001_810);
    assert!(held(&store));
    drop(store);
    let store = boot("four", 20, 1_003_601);
    assert!(acquire(&store, &request("job")).fence > fence, "the hour is over");
}

#[test]
fn a_clock_that_was_set_back_makes_no_detached_lease_longer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let boot = |id: &str, boot_s, unix_s| {
        let clock = Arc::new(Restarted { boot_s, unix_s });
        SqliteStore::with_config(SqliteConfig::new(&path).boot_id(id).clock(clock)).unwrap()
    };
    let store = boot("one", 5_000, 1_000_000);
    acquire(&store, &Request { detached: true, ..request("job") });
    drop(store);
    // Back by a day.
    drop(boot("two", 60, 913_600));
    let store = boot("two", 60 + TTL.as_secs(), 913_600 + TTL.as_secs());
    acquire(&store, &request("job"));
}

/// A machine without a battery for its clock begins in 1970, and is told the time later.
#[test]
fn a_time_of_day_that_is_set_while_a_process_runs_counts_for_detached_leases() {
    #[derive(Debug)]
    struct SetLater(AtomicU64);

    impl Clock for SetLater {
        fn now(&self) -> Moment {
            Moment::START.plus(Duration::from_secs(100))
        }

        fn unix_micros(&self) -> u64 {
            self.0.load(Ordering::Relaxed) * 1_000_000
        }
    }

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let config = |id: &str| SqliteConfig::new(&path).boot_id(id);
    let clock = Arc::new(SetLater(AtomicU64::new(100)));
    let store = SqliteStore::with_config(config("one").clock(Arc::clone(&clock) as _)).unwrap();
    let [bound, first] = ["job", "job"].map(request);
    acquire(&store, &bound);
    release(&store, &bound);
    clock.0.store(1_000_000, Ordering::Relaxed);
    acquire(&store, &Request { detached: true, ..first });
    drop(store);
    let later = Restarted { boot_s: 10, unix_s: 1_000_000 + TTL.as_secs() / 2 };
    let store = SqliteStore::with_config(config("two").clock(Arc::new(later))).unwrap();
    let next = attempt(&store, &request("job"));
    assert!(matches!(next, Attempt::Held(_)), "it was promised for longer: {next:?}");
}

/// `docker run -v x.db:/locks.db` shares the database and nothing beside it.
#[test]
fn a_database_that_is_mounted_without_its_directory_is_refused() {
    if std::env::var("SPRAG_SKIP").is_ok_and(|list| list.split(',').any(|name| name == "mount")) {
        return;
    }
    let (outside, inside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (database, mounted) = (outside.path().join("x.db"), inside.path().join("locks.db"));
    let _store = SqliteStore::open(&database).unwrap();
    fs::write(&mounted, "").unwrap();
    let mount = |arguments: &[&std::ffi::OsStr]| {
        std::process::Command::new(arguments[0]).args(&arguments[1..]).status().unwrap().success()
    };
    let bound = ["mount".as_ref(), "--bind".as_ref(), database.as_os_str(), mounted.as_os_str()];
    assert!(mount(&bound), "cannot mount: run as root, or set SPRAG_SKIP=mount");
    let opened = SqliteStore::open(&mounted);
    assert!(mount(&["umount".as_ref(), mounted.as_os_str()]));
    let error = opened.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("mount the directory"), "{error}");
    assert_eq!(fs::read_dir(inside.path()).unwrap().count(), 1, "nothing is made beside it");
}

#[test]
fn a_clean_up_forgets_free_records_and_no_fence() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let config = SqliteConfig::new(&path).clock(Arc::new(ManualClock::new()));
    let store = SqliteStore::with_config(config.max_free_records(10)).unwrap();
    let kept = request("kept");
    acquire(&store, &kept);
    let mut fences = vec![Fence::ZERO; 300];
    for _ in 0..3 {
        for (number, last) in fences.iter_mut().enumerate() {
            let wish = request(&format!("job/{number}"));
            let fence = acquire(&store, &wish).fence;
            assert!(fence > *last, "{fence} after {last}");
            *last = fence;
            release(&store, &wish);
        }
        store.maintain().unwrap();
        let raw = rusqlite::Connection::open(&path).unwrap();
        let rows: u32 = raw.query_row("SELECT count(*) FROM lock", [], |row| row.get(0)).unwrap();
        assert!(rows <= 11, "{rows} rows are left");
    }
    assert!(matches!(renew(&store, &kept), Renewed::Held(_)));
}

#[test]
fn whose_session_file_was_deleted_is_told_that_its_locks_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let (one, two) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let held = request("job");
    acquire(&one, &held);
    let sessions = beside(&path, ".sessions");
    let own = fs::read_dir(&sessions).unwrap().map(|entry| entry.unwrap().path()).find(|path| {
        use std::os::unix::fs::MetadataExt;
        let found = fs::metadata(path).unwrap().ino();
        found == one.session_file().metadata().unwrap().ino()
    });
    fs::remove_file(own.unwrap()).unwrap();
    assert_eq!(renew(&one, &held), Renewed::Lost(Loss::SessionDied));
    let error = block_on(one.try_acquire(&request("other"))).unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("open the store again"), "{error}");
    acquire(&two, &request("job"));
}

#[test]
fn nobody_is_robbed_when_the_folder_of_sessions_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let (one, two) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    acquire(&one, &request("job"));
    fs::rename(beside(&path, ".sessions"), beside(&path, ".moved")).unwrap();
    assert!(block_on(two.try_acquire(&request("job"))).unwrap_err().is_lost());
    assert!(block_on(two.inspect(&name("job"))).unwrap().is_locked());
}

#[test]
fn a_deleted_or_replaced_database_is_noticed() {
    for replace in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sprag.db");
        let store = SqliteStore::open(&path).unwrap();
        let held = request("job");
        acquire(&store, &held);
        for file in [path.clone(), beside(&path, "-wal"), beside(&path, "-shm")] {
            fs::remove_file(file).unwrap();
        }
        let new = replace.then(|| SqliteStore::open(&path).unwrap());
        assert_eq!(renew(&store, &held), Renewed::Lost(Loss::StateLost));
        assert!(block_on(store.try_acquire(&request("other"))).unwrap_err().is_lost());
        assert!(block_on(store.inspect(&held.name)).unwrap_err().is_lost());
        if let Some(new) = new {
            acquire(&new, &held);
        }
    }
}

#[test]
fn a_state_directory_with_a_long_path_still_wakes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x".repeat(120)).join("y".repeat(120)).join("sprag.db");
    let (one, two) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let (a, b) = (queued("job"), queued("job"));
    acquire(&one, &a);
    assert!(matches!(attempt(&two, &b), Attempt::Queued(_)));
    release(&one, &a);
    let took = wait_until_granted(&two, &b);
    assert!(took.as_millis() < 500, "{took:?}");
}

#[test]
fn extreme_lengths_of_a_lease_do_not_overflow() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("sprag.db")).unwrap();
    for (number, ttl) in
        [Duration::MAX, Duration::ZERO, Duration::from_millis(1)].iter().enumerate()
    {
        let wish = Request { ttl: *ttl, ..request(&format!("job/{number}")) };
        assert!(block_on(store.try_acquire(&wish)).is_ok());
        release(&store, &wish);
    }
}
