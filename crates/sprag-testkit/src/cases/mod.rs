//! The conformance cases: what every store must do, one function per property.
//!
//! A store is tested by implementing [`Harness`](crate::harness::Harness) and calling
//! [`conformance!`](crate::conformance) in a test file: each case becomes a test of its own, on a
//! fresh place. What a store cannot do, by its capability, must be refused as unsupported; no
//! case is skipped.
//!
//! The ids in front of each case's description, such as F04 or FAULTS 2, are those of the
//! catalogue of faults; [`CATALOGUE`] says where each of them is tested.

mod catalogue;
mod journal;

pub use catalogue::{CATALOGUE, Tested, assert_every_case_is_listed};

/// Declares the case files, the list of all cases, and the macro that makes tests of them.
macro_rules! cases {
    ($dollar:tt $($file:ident { $($case:ident)+ })+) => {
        $(pub mod $file;)+

        /// Every case, by file.
        pub const CASES: &[(&str, &[&str])] =
            &[$((stringify!($file), &[$(stringify!($case)),+])),+];

        /// Makes one test of each conformance case, for the harness named.
        #[macro_export]
        macro_rules! conformance {
            ($dollar harness:ty) => {
                $(mod $file {
                    use super::*;

                    $(#[test]
                    fn $case() {
                        if <$dollar harness as $crate::harness::Harness>::skipped() {
                            return;
                        }
                        $crate::harness::run(async {
                            let harness = <$dollar harness as $crate::harness::Harness>::fresh();
                            let harness = harness.await;
                            $crate::cases::$file::$case(&harness).await;
                        });
                    })+
                })+

                #[test]
                fn every_case_is_listed() {
                    $crate::cases::assert_every_case_is_listed();
                }
            };
        }
    };
}

cases! { $
    basic {
        a_granted_lock_is_seen_by_others
        a_second_try_reports_held
        a_released_lock_is_free_at_once
        a_second_release_changes_nothing
        an_acquire_is_recognised_by_its_lease
        a_stranger_frees_nothing
        a_task_that_holds_it_is_told_at_once
        another_task_waits_for_it
        a_stale_guard_never_frees_its_successor
        a_healthy_lock_is_not_lost
    }
    timeout {
        no_time_to_wait_means_one_try
        a_timeout_is_waited_out
        a_lock_freed_in_time_is_acquired
        without_a_limit_it_waits
        an_endless_limit_does_not_overflow
    }
    fence {
        fences_grow_over_every_kind_of_end
        a_stolen_lock_has_a_larger_fence
        fences_of_readers_and_permits
        a_paused_holder_is_stopped_by_the_fence
    }
    queue {
        waiters_are_granted_in_order
        a_release_hands_over
        a_withdrawn_waiter_leaves_only_its_place
        a_release_before_the_wait_is_not_missed
        lost_hints_only_cost_time
        a_long_waiter_keeps_its_place
        hundreds_of_timeouts_leave_nothing
        hundreds_of_cancelled_waiters_leave_nothing
    }
    priority {
        a_higher_priority_goes_first
        nobody_starves_under_higher_priorities
    }
    death {
        a_dead_holder_is_succeeded
        a_death_frees_all_of_one_session_only
        dead_waiters_are_skipped
        a_waiter_that_was_given_up_is_told
        a_waiter_without_a_session_never_owns
    }
    rw {
        readers_share_and_writers_do_not
        a_waiting_writer_is_not_overtaken
        waiting_readers_are_not_overtaken
        a_dead_reader_frees_only_itself
        each_reader_has_its_own_lease
        readers_that_come_and_go_leave_nothing
    }
    upgrade {
        two_readers_that_upgrade_do_not_hang
        an_upgrade_waits_for_the_readers
        a_cancelled_upgrade_lets_readers_in
        a_downgrade_lets_readers_in
        a_lost_reply_to_an_upgrade_is_recovered
        an_unanswered_downgrade_counts
    }
    permits {
        no_more_permits_than_there_are
        a_big_request_is_not_overtaken
        a_dead_holder_returns_its_permits
        a_lowered_number_drains
        another_number_of_permits_is_refused
    }
    lost {
        the_end_of_the_session_is_the_end_of_the_lock
        an_expired_lease_is_lost_before_it_is_free
        a_holder_that_is_cut_off_knows_it_in_time
        failed_renewals_do_not_lose_the_lock
        lost_replies_to_renewals_never_stretch_the_belief
        max_hold_gives_the_lock_up
        work_is_stopped_when_the_lock_is_lost
        a_late_renewal_never_revives
    }
    extend {
        extending_sets_the_length
        a_failed_extension_leaves_the_lock_valid
        a_shorter_extension_never_ends_it_earlier
        an_extension_never_resurrects
        renewals_are_answered_one_by_one
    }
    steal {
        a_silent_holder_is_robbed_and_told
        a_fixed_lease_is_not_robbed_before_its_end
        a_living_holder_is_not_robbed
        a_renewal_saves_from_being_robbed
        force_is_refused_unless_allowed
        force_takes_it_and_the_holder_is_told
        breaking_names_what_it_breaks
        a_repeated_break_hits_nobody_else
        an_evicted_holder_is_told_at_once
    }
    cancel {
        an_acquire_dropped_anywhere_leaves_nothing
        a_waiter_dropped_anywhere_leaves_nothing
        cancelled_between_grant_and_reply
        a_release_dropped_anywhere_is_finished
        an_extension_dropped_anywhere_leaves_the_lock
        several_locks_dropped_anywhere_leave_nothing
    }
    drops {
        dropped_in_a_task
        dropped_outside_a_runtime
        dropped_by_the_end_of_a_thread
        dropped_while_panicking
        dropped_on_another_runtime
        dropped_by_the_shutdown_of_a_runtime
        dropped_with_its_client
        forgotten_it_is_kept_until_max_hold
        a_blocked_runtime_keeps_the_lock
        an_idle_task_keeps_the_lock
    }
    faults {
        a_lost_reply_to_an_acquire_is_recovered
        a_waiters_lost_replies_are_recovered
        a_lost_reply_to_a_release_is_recovered
        a_late_release_does_not_free_the_next_hold
        late_duplicates_change_nothing
        a_very_late_duplicate_ends_by_itself
        a_store_that_is_down_is_reported
        a_store_that_hangs_is_reported
        a_lasting_error_is_told_at_once
        a_waiter_gets_over_a_short_outage
        a_timeout_is_kept_in_an_outage
    }
    deadlock {
        a_circle_of_two_has_one_victim
        a_victim_that_came_first_is_told_as_soon
        a_circle_through_nested_processes_has_one_victim
        what_runs_beside_a_nested_waiter_is_no_circle
        a_chain_has_no_victim
        a_circle_through_an_upgrade_has_one_victim
        a_circle_of_upgrades_has_one_victim
        tasks_of_one_process_are_told_apart
    }
    names {
        thousands_of_names_do_not_collide
        names_that_look_alike_are_different
        the_longest_names_work
        bad_names_are_refused
        lists_come_in_pages
    }
    limits {
        a_ttl_out_of_range_is_refused
        impossible_permits_are_refused
        a_priority_out_of_range_is_refused
        too_much_text_is_refused
        a_full_queue_refuses
    }
    multi {
        opposite_orders_never_deadlock
        they_are_taken_in_order_and_released_in_reverse
        all_or_nothing
        a_death_half_way_frees_all
        the_loss_of_one_is_told
    }
    election {
        one_leads_until_it_resigns
        a_paused_leader_is_deposed_first
    }
    detached {
        a_detached_lease_outlives_its_process
        a_ticket_carries_a_lock_over
        an_adopted_lease_is_renewed
        a_ticket_that_is_over_is_refused
        a_failed_ticket_leaves_nothing
        a_ticket_is_good_for_one
        an_adoption_that_is_not_answered_is_tried_again
    }
    shutdown {
        a_shutdown_gives_up_everything
        a_shutdown_reports_what_is_left
        what_the_store_has_freed_is_not_reported
    }
    record {
        a_damaged_record_fails_closed
        a_damaged_record_hides_no_other
        a_newer_record_fails_closed
    }
    clocks {
        a_guard_is_lost_as_soon_as_its_machine_wakes_up
        an_answer_that_was_slept_over_counts_from_its_request
        the_time_of_day_decides_nothing
    }
    audit {
        an_ordinary_tenure_is_told
        a_break_is_told
        an_expiry_is_told
        a_take_over_is_told
        a_refusal_is_told
        a_late_renewal_is_told
        a_note_is_in_nobodys_way
        the_trail_is_bounded_and_in_order
    }
    contention {
        eight_sessions_exclude_each_other
        tasks_of_one_client_exclude_each_other
        readers_and_writers_mixed
        permits_mixed
        swizzled_connections
    }
}
