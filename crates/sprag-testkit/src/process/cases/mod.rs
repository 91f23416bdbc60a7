//! The cases that need several processes, and [`process_conformance!`](crate::process_conformance).

pub mod deadlock;
pub mod death;
pub mod exclusion;
pub mod fork;
pub mod handover;
pub mod namespaces;
pub mod pause;
pub mod waiters;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sprag_core::{Client, Store};

use super::config::TakerConfig;
use super::taker::Taker;
use crate::harness::Harness;
use crate::support::able;

/// Where several processes meet: a fresh store, and a folder for the files that locks guard.
pub struct Scene {
    /// The place under test.
    pub harness: Box<dyn Harness>,
    /// For looking at locks.
    pub store: Arc<dyn Store>,
    url: String,
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scene").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Scene {
    /// Whether waiters are known to the store, in order; if not, priorities are refused.
    async fn has_queue(&self) -> bool {
        let client = Client::new(Arc::clone(&self.store));
        able(&client, |able| able.queue, |client| client.lock("any").priority(1)).await
    }

    /// Makes a scene for takers that run `program`; `None` for a store that ends at the borders
    /// of its process, where there is nothing to test, or whose tests were declined.
    ///
    /// # Panics
    ///
    /// If there is no room for temporary files.
    pub async fn new<H: Harness>(program: &Path) -> Option<Self> {
        if H::skipped() {
            return None;
        }
        let harness: Box<dyn Harness> = Box::new(H::fresh().await);
        let url = harness.url()?;
        let store = harness.store().await;
        let folder = tempfile::tempdir().expect("there is room for temporary files");
        Some(Self { harness, store, url, program: program.to_owned(), folder })
    }

    /// How a taker on this store is started.
    pub fn config(&self) -> TakerConfig {
        TakerConfig::new(&self.program, &self.url)
    }

    /// Starts a taker.
    pub async fn taker(&self, name: &str) -> Taker {
        self.config().name(name).spawn().await
    }

    /// A file in the scene's folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The scene's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A lease for those who are going to be killed: long where the store sees a death by itself,
    /// short where it has to wait for the end of the lease.
    pub fn mortal_ttl(&self) -> Duration {
        if self.harness.sees_death() { Duration::from_secs(30) } else { self.harness.ttl() }
    }

    /// How soon after a death the next one is granted at the latest. Far above what it takes and
    /// far below [`Scene::mortal_ttl`], where the store sees deaths.
    pub fn death_is_seen_within(&self) -> Duration {
        let slack = Duration::from_secs(5);
        if self.harness.sees_death() { slack } else { self.harness.ttl() + slack }
    }
}

/// Names a module of tests for a store: one test for each case with several processes.
///
/// The second argument is the path of the program `sprag-taker`. For a store without a URL each
/// test checks that there is none.
#[macro_export]
macro_rules! process_conformance {
    ($store:ident, $harness:ty, $program:expr) => {
        $crate::process_conformance! {
            @list $store, $harness, $program;
            deadlock: a_deadlock_between_processes_has_exactly_one_victim,
            death: the_lock_of_a_killed_process_is_soon_free,
            death: processes_killed_at_any_moment_leave_nothing_behind,
            death: the_lock_of_an_aborted_process_is_soon_free,
            death: a_terminated_process_gives_its_locks_back,
            exclusion: two_processes_exclude_each_other,
            exclusion: opposite_orders_never_deadlock,
            exclusion: many_processes_in_a_hurry_keep_every_rule,
            fork: a_forked_child_has_nothing_and_breaks_nothing,
            handover: a_ticket_moves_a_lock_to_another_process,
            handover: a_detached_lease_outlives_its_process_until_its_end,
            namespaces: equal_process_ids_in_two_namespaces_are_two_processes,
            pause: a_paused_holder_knows_its_loss_and_its_late_write_is_refused,
            pause: without_fences_a_late_write_is_seen_to_lose_an_update,
            pause: a_short_pause_loses_nothing,
            pause: a_waiter_stopped_over_its_grant_does_not_believe_it,
            waiters: killed_waiters_are_passed_over,
            waiters: twenty_dead_waiters_hold_nobody_up,
        }
    };
    (@list $store:ident, $harness:ty, $program:expr; $($file:ident: $case:ident,)*) => {
        mod $store {
            use super::*;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let program = std::path::Path::new($program);
                    if let Some(scene) =
                        $crate::process::cases::Scene::new::<$harness>(program).await
                    {
                        $crate::process::cases::$file::$case(&scene).await;
                    }
                }
            )*

            #[test]
            fn every_case_is_listed() {
                $crate::process::cases::check_list(&[$((stringify!($file), stringify!($case))),*]);
            }
        }
    };
}

/// Checks that a list names every case there is, and no other.
///
/// # Panics
///
/// If it does not.
pub fn check_list(listed: &[(&str, &str)]) {
    let files = [
        ("deadlock", include_str!("deadlock.rs")),
        ("death", include_str!("death.rs")),
        ("exclusion", include_str!("exclusion.rs")),
        ("fork", include_str!("fork.rs")),
        ("handover", include_str!("handover.rs")),
        ("namespaces", include_str!("namespaces.rs")),
        ("pause", include_str!("pause.rs")),
        ("waiters", include_str!("waiters.rs")),
    ];
    let mut there = Vec::new();
    for (file, text) in files {
        let cases = text.lines().filter_map(|line| line.strip_prefix("pub async fn "));
        there.extend(cases.filter_map(|case| Some((file, case.split(['<', '(']).next()?))));
    }
    there.sort_unstable();
    let mut listed = listed.to_vec();
    listed.sort_unstable();
    assert_eq!(listed, there, "the list of process_conformance! is not the list of the cases");
}
