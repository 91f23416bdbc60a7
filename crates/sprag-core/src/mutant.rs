//! Seeded bugs, compiled in only with `--cfg sprag_mutants`, to prove that the tests see them.
//!
//! `cargo xtask mutants` builds once with that flag and then runs the suite once per name in
//! `ALL`, with `SPRAG_MUTANT` set to it. A mutant that no test finds is a hole in the tests.

/// Is the named bug switched on? Always `false`, at no cost, in a normal build.
macro_rules! mutant {
    ($name:literal) => {{
        #[cfg(sprag_mutants)]
        let active = crate::mutant::is_active($name);
        #[cfg(not(sprag_mutants))]
        let active = false;
        active
    }};
}
pub(crate) use mutant;

/// Every seeded bug.
#[cfg(sprag_mutants)]
pub const ALL: &[&str] = &[
    "fence_not_bumped",
    "fence_forgotten_when_free",
    "blind_release",
    "renew_revives",
    "grant_to_dead_waiter",
    "steal_without_compare",
    "evict_any_fence",
    "convert_any_fence",
    "reader_barges",
    "permits_overgrant",
    "upgrade_ignores_readers",
    "expires_early",
    "release_forgets_waiters",
    "priority_ignored",
    "repeat_takes_new_fence",
    "gone_is_granted_again",
    "deadline_from_reply",
    "lease_per_client",
    "unknown_means_failed",
    "cancel_leaks",
    "lost_never_told",
    "asking_counts_as_renewal",
    "renewal_shortens",
    "renewal_undoes_upgrade",
    "downgrade_counts_when_answered",
    "fixed_lease_is_overdue",
    "floor_not_raised",
    "severed_is_held",
    "promise_ignored",
    "force_spares_heir",
    "ticket_adopted_twice",
];

/// Whether the bug named `name` is the one chosen by `SPRAG_MUTANT`.
#[cfg(sprag_mutants)]
pub fn is_active(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    debug_assert!(ALL.contains(&name), "the mutant {name} is not listed in mutant::ALL");
    CHOSEN.get_or_init(|| std::env::var("SPRAG_MUTANT").ok()).as_deref() == Some(name)
}
