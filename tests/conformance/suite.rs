//! The list of cases, once, and how each becomes a test of each store. A case that is missing here is reported by the
//! compiler as never used.

/// `conformance_suite!(sqlite => SqliteWorld);` makes every case a test called `sqlite::<verb>::<case>`.
macro_rules! conformance_suite {
    ($store:ident => $world:ty) => {
        mod $store {
            use super::*;

            #[test]
            fn the_store_and_the_model_agree_along_random_sequences() {
                crate::model_test::the_store_and_the_model_agree_along_random_sequences::<$world>();
            }

            cases!($world, enqueue:
                a_new_job_is_queued_as_asked_for,
                a_job_without_options_may_start_at_once,
                a_run_at_in_the_past_means_now,
                a_delay_counts_from_the_stores_now,
                a_known_key_answers_with_its_job_unchanged,
                a_known_key_with_another_kind_or_payload_is_refused_and_nothing_is_stored,
                a_call_whose_key_is_taken_does_not_harm_those_beside_it,
                keys_stand_for_payloads_however_they_are_written,
                known_tells_what_keys_belong_to_and_stores_nothing,
                a_job_that_is_stored_already_is_answered_as_created_and_stays_one,
                a_key_is_known_wherever_its_job_stands,
                the_same_key_twice_in_one_batch_makes_one_job,
                keys_are_compared_exactly,
                jobs_without_a_key_are_never_the_same,
                a_batch_is_answered_in_the_order_given,
                a_batch_with_an_item_that_cannot_be_stored_is_refused_whole,
                a_refused_batch_does_not_harm_those_beside_it,
                a_payload_comes_back_byte_for_byte,
                the_ends_of_every_range_are_stored,
                a_full_batch_is_stored_in_one_go,
            );
            cases!($world, claim:
                a_claimed_job_is_running_under_a_lease,
                a_retrying_job_is_claimed_again_once_it_is_due,
                every_claim_has_a_token_of_its_own,
                claims_go_by_priority_then_run_at_then_id_across_queues_and_kinds,
                the_order_holds_among_the_queues_and_kinds_asked_for,
                a_claim_takes_no_more_than_it_asks_for,
                a_claim_takes_no_more_bytes_than_it_asks_for_but_one_job_at_least,
                the_order_holds_whatever_fits_into_the_bytes_asked_for,
                a_job_that_is_not_due_is_left_alone_until_it_is,
                a_queue_or_kind_that_is_not_asked_for_is_left_alone,
                only_waiting_jobs_are_claimed,
                a_lease_is_never_longer_than_the_timeout,
                the_workers_fate_makes_no_difference_to_the_answer,
                a_claim_of_a_hundred_with_one_bad_row_returns_ninety_nine,
                a_waiting_row_whose_attempts_are_used_up_is_dead_lettered_alone,
                a_row_dead_lettered_after_an_attempt_shows_the_reason_and_is_otherwise_unchanged,
                bad_rows_in_front_do_not_keep_the_others_back,
                a_row_that_cannot_be_decoded_can_still_be_looked_at_and_removed,
                a_row_put_off_beyond_all_time_is_never_due_and_keeps_nobody_back,
            );
            cases!($world, extend:
                a_heartbeat_moves_the_end_of_the_lease_and_nothing_else,
                without_a_length_a_lease_is_extended_by_what_it_was_claimed_with,
                the_length_asked_for_counts_from_now,
                no_heartbeat_moves_a_lease_past_the_timeout,
                the_timeout_counts_from_the_start_of_this_attempt,
                a_heartbeat_is_told_of_a_cancel_request_and_still_holds_the_lease,
                a_late_heartbeat_before_the_reaper_keeps_the_lease,
                a_heartbeat_for_an_attempt_that_has_ended_is_lost_and_changes_nothing,
                a_heartbeat_is_lost_after_the_reaper_and_after_the_next_claim,
                the_attempt_number_is_no_fence_for_a_heartbeat,
                a_heartbeat_with_a_token_or_job_nobody_knows_is_lost,
                a_heartbeat_with_the_token_of_another_lease_in_the_same_call_is_lost,
                two_heartbeats_for_one_lease_in_one_call_are_both_answered_and_the_newer_progress_stays,
                progress_is_stored_and_kept_until_there_is_newer,
                a_batch_of_heartbeats_is_answered_in_order_and_one_lost_harms_no_other,
            );
            cases!($world, settle:
                success_finishes_the_job_with_its_result,
                success_needs_no_result_and_takes_a_large_one,
                a_failure_with_attempts_left_is_retried_later,
                a_failure_of_the_last_attempt_is_the_dead_letter,
                a_permanent_failure_is_the_dead_letter_at_once,
                a_time_out_is_retried_like_a_failure_and_the_last_one_is_the_dead_letter,
                a_handler_may_end_its_job_as_cancelled_unasked,
                a_release_of_the_first_attempt_puts_the_job_back_in_the_queue,
                a_release_of_a_later_attempt_goes_back_to_retrying,
                a_snoozed_job_starts_again_after_its_delay_at_no_cost,
                a_released_job_keeps_all_its_attempts,
                a_failure_after_a_cancel_request_is_cancelled,
                a_permanent_failure_after_a_cancel_request_is_cancelled,
                a_time_out_after_a_cancel_request_is_cancelled,
                a_release_after_a_cancel_request_is_cancelled,
                a_snooze_after_a_cancel_request_is_cancelled,
                a_cancel_after_a_cancel_request_is_cancelled,
                a_success_after_a_cancel_request_is_a_success,
                the_last_error_is_the_newest_and_outlives_a_success,
                hostile_error_text_is_stored_cut_and_clean,
                a_batch_is_answered_in_order_and_one_lost_harms_no_other,
                a_job_whose_payload_broke_while_it_ran_can_still_be_settled,
            );
            cases!($world, retry:
                a_kind_without_a_policy_waits_1_to_3_then_1_to_9_seconds,
                a_kinds_own_window_is_used,
                fixed_delays_are_kept_to_the_microsecond_and_the_last_repeats,
                fixed_delays_with_a_jitter_are_spread_to_both_sides,
                a_built_in_kind_waits_by_its_own_policy_and_a_stored_one_wins,
                a_floor_given_by_the_handler_is_kept_and_is_no_shortcut,
                a_wait_given_by_the_handler_wins_over_the_kinds,
                each_kind_in_a_batch_waits_by_its_own_policy,
                a_changed_policy_holds_for_the_next_failure_of_old_jobs,
                attempts_given_back_do_not_lengthen_the_next_wait,
            );
            cases!($world, fence:
                a_settle_after_the_reaper_is_lost,
                a_settle_after_the_last_attempt_was_reaped_is_lost,
                a_settle_after_the_next_claim_is_lost_and_the_next_one_counts,
                a_settle_after_a_release_is_lost_although_the_number_matches,
                a_settle_after_a_snooze_is_lost_although_the_number_matches,
                a_settle_after_a_redrive_is_lost_although_the_number_matches,
                a_settle_for_a_deleted_job_is_lost,
                a_settle_with_a_token_or_job_nobody_knows_is_lost,
                the_same_settle_twice_is_answered_the_same_and_recorded_once,
                the_same_settle_is_answered_the_same_whatever_happened_since,
                the_same_final_settle_is_answered_the_same_after_a_redrive,
                a_different_outcome_for_an_ended_attempt_is_lost,
                two_settles_for_one_lease_in_one_batch_are_taken_in_order,
                a_late_settle_that_the_reaper_has_not_seen_still_counts,
            );
            cases!($world, reap:
                an_expired_job_with_attempts_left_is_retried_at_once,
                reaping_the_last_attempt_dead_letters_and_the_next_claim_works,
                a_job_that_always_dies_ends_and_never_stops_a_claim,
                an_expired_job_whose_cancel_was_requested_is_cancelled,
                a_lease_lives_up_to_its_end_and_no_longer,
                a_heartbeat_in_time_keeps_the_reaper_away,
                a_lease_held_up_to_the_timeout_is_recorded_as_timed_out,
                a_lease_that_ended_before_the_timeout_is_recorded_as_expired,
                a_time_out_on_the_last_attempt_is_the_dead_letter,
                the_oldest_expiry_is_reaped_first_and_no_more_than_asked_for,
                live_leases_are_left_alone,
                one_expired_lease_is_found_behind_a_thousand_live_ones,
                a_settled_job_is_never_reaped,
                a_paused_queue_is_reaped_too,
                a_running_row_that_cannot_be_decoded_is_reaped_like_the_others,
            );
            cases!($world, cancel:
                a_queued_job_is_cancelled_at_once,
                a_retrying_job_is_cancelled_at_once_and_keeps_its_history,
                a_running_job_is_flagged_and_goes_on,
                a_running_job_may_be_cancelled_again,
                a_finished_job_is_left_as_it_is,
                an_unknown_job_is_not_found,
                a_batch_is_answered_in_order_also_for_the_same_job_twice,
                a_job_whose_cancel_was_requested_always_ends,
            );
            cases!($world, redrive:
                a_dead_letter_is_queued_as_if_new_with_its_last_error_kept,
                a_cancelled_job_is_queued_again_and_no_longer_to_be_cancelled,
                a_job_cancelled_before_it_ran_can_be_redriven,
                a_redriven_job_has_all_its_attempts_again,
                a_redriven_job_starts_without_the_result_of_its_former_life,
                only_the_dead_can_be_redriven,
                an_unknown_job_is_not_found,
                a_job_reaped_into_the_dead_letter_can_be_redriven_and_run,
                a_batch_is_answered_in_order_also_for_the_same_job_twice,
            );
            cases!($world, delete:
                a_finished_job_is_gone_with_all_that_belongs_to_it,
                an_unfinished_job_is_refused_and_left_as_it_is,
                a_running_job_whose_cancel_was_requested_is_refused_until_it_ended,
                deleting_frees_the_key,
                a_batch_is_answered_in_order_also_for_the_same_job_twice,
            );
            cases!($world, prune:
                each_end_has_a_retention_of_its_own,
                age_counts_from_the_end_and_not_from_the_beginning,
                an_unfinished_job_is_never_pruned_however_old,
                a_step_is_bounded_and_the_next_goes_on_from_there,
                only_jobs_behind_the_given_one_are_looked_at,
                pruning_frees_the_key_and_takes_the_history_along,
                an_empty_store_has_nothing_to_prune,
            );
            cases!($world, list:
                get_answers_in_the_order_asked_for,
                an_empty_store_has_an_empty_page,
                the_newest_come_first_page_by_page_each_once,
                every_filter_and_all_of_them_together,
                an_offset_leaves_out_the_first_that_match,
                jobs_that_come_or_go_between_pages_shift_nothing,
                the_one_that_matches_is_found_behind_thousands_that_do_not,
                dead_letters_and_running_jobs_are_on_the_first_page_behind_any_number_of_others,
            );
            cases!($world, filters:
                every_filter_and_every_pair_of_them_is_what_a_plain_filter_over_all_jobs_is,
                waiting_jobs_are_listed_in_the_order_in_which_they_will_run,
                fifty_old_jobs_behind_many_finished_ones_are_on_the_first_page,
                a_page_over_thousands_of_lanes_looks_at_few_rows,
                a_page_has_no_more_bytes_than_asked_for_but_one_job_at_least,
                how_far_was_looked_is_told,
            );
            cases!($world, attempts:
                a_job_that_never_ran_has_none_and_an_unknown_one_no_history,
                a_running_attempt_is_the_last_and_has_no_end,
                every_outcome_is_recorded_in_its_word_with_its_error,
                numbers_repeat_after_a_release_a_snooze_and_a_redrive_and_all_are_kept,
                attempts_that_started_at_the_same_moment_stay_in_order,
                the_errors_of_earlier_attempts_stay_what_they_were,
                a_row_that_became_a_dead_letter_at_the_claim_keeps_its_history,
                the_start_shown_on_the_job_is_of_its_newest_attempt,
                progress_belongs_to_the_newest_attempt,
                the_newest_thousand_attempts_are_shown,
            );
            cases!($world, fields:
                a_lock_is_shown_exactly_while_the_job_runs,
                an_end_is_shown_exactly_when_the_job_has_ended,
                every_change_is_dated,
                attempts_stay_within_their_maximum_and_a_waiting_job_has_one_left,
                what_was_asked_for_never_changes,
                counts_agree_with_the_jobs_after_every_transition,
            );
            cases!($world, stats:
                an_empty_store_has_no_queues_and_answers_a_ping,
                every_queue_is_counted_by_itself_and_by_status,
                a_status_without_jobs_is_left_out,
                known_keys_and_unknown_jobs_are_not_counted,
                the_oldest_ready_is_the_longest_due_whatever_its_priority_or_kind,
                only_jobs_that_wait_and_are_due_count_as_ready,
                pages_go_by_name_and_every_queue_is_on_one_of_them,
                a_cursor_need_not_be_a_queue_that_still_exists,
                queues_asked_for_by_name_are_all_that_is_told_and_counted,
                counts_alone_and_totals_alone_can_be_asked_for,
                a_queue_is_gone_with_its_last_job_unless_it_is_paused,
                queues_that_are_gone_hide_none_that_are_there,
            );
            cases!($world, schedules:
                eight_tickers_make_one_job_of_each_tick_and_pass_over_none,
                what_was_decided_of_a_schedule_as_it_no_longer_is_changes_nothing,
                a_tick_skips_while_the_last_job_waits_runs_retries_or_is_redriven,
                a_redrive_between_look_and_tick_does_not_overlap,
                a_held_tick_starts_once_the_job_has_finished,
                the_rule_cancel_cancels_and_waits_for_the_end,
                after_a_night_it_is_caught_up_as_declared_and_bounded,
                what_falls_into_a_pause_is_not_missed,
                an_edit_names_the_revision_it_changes_and_does_what_is_due_first,
                a_tick_that_is_asked_for_runs_once_however_often,
                a_tick_that_a_person_has_run_is_not_recorded_as_missed_later,
                a_schedule_ends_and_its_deletion_leaves_its_jobs,
                one_schedule_that_cannot_be_stored_does_not_stop_the_others,
                a_job_that_its_kind_refuses_is_counted_and_the_schedule_goes_on,
                a_sync_makes_the_files_schedules_and_leaves_others_and_pauses_alone,
            );
            cases!($world, tokens:
                tokens_are_kept_as_given_and_told_by_id,
                a_token_with_a_known_id_replaces_the_old_one,
                a_revoked_token_is_gone_and_the_others_stay,
                the_last_token_with_the_scope_admin_stays_unless_it_is_said_to_go,
                that_there_was_a_token_is_known_after_the_last_is_gone,
                one_token_more_than_may_be_is_refused_and_those_there_are_can_be_replaced,
            );
            cases!($world, audit:
                each_act_has_a_row_that_says_who_what_and_how_it_was,
                a_row_that_cannot_be_written_takes_the_act_with_it,
                what_changes_nothing_writes_nothing,
                a_change_shows_both_sides_and_a_secret_that_changed_alone_is_a_change,
                a_batch_is_one_row_with_its_count_and_its_first_ids,
                no_row_has_a_payload_or_a_secret,
                the_newest_come_first_page_by_page_each_once_and_filtered,
                a_filter_that_matches_one_behind_thousands_finds_it_in_bounded_steps,
                retention_takes_the_oldest_in_bounded_steps_and_leaves_the_rest,
            );
            cases!($world, sessions:
                a_session_has_the_name_and_the_scopes_of_its_token_and_is_no_token,
                a_session_needs_a_token_that_exists_and_has_not_expired,
                a_session_of_the_settings_token_is_kept_with_its_digest,
                a_session_ends_when_it_is_idle_or_old,
                a_session_can_be_ended_and_revoking_its_token_ends_it,
                one_session_too_many_ends_the_oldest_and_none_counts_as_a_token,
                the_use_of_a_token_is_written_once_an_hour_and_of_a_session_more_often,
                what_has_expired_is_pruned_in_steps_and_the_rest_stays,
                a_token_keeps_its_end_and_its_maker,
                an_admin_token_that_has_expired_and_a_session_are_no_admin_token,
            );
            cases!($world, pause:
                nothing_is_claimed_from_a_paused_queue_until_it_is_resumed,
                asking_for_a_paused_queue_by_name_does_not_help,
                a_queue_without_jobs_can_be_paused_for_those_to_come,
                pausing_and_resuming_twice_is_the_same_as_once,
                running_jobs_of_a_paused_queue_go_on,
                a_large_paused_backlog_does_not_stand_in_the_way,
            );
            cases!($world, kinds:
                what_was_declared_comes_back_by_name,
                declaring_again_replaces_the_whole_declaration,
                a_deleted_kind_is_forgotten_and_can_be_declared_anew,
                the_jobs_of_a_deleted_kind_go_on,
                one_kind_more_than_may_be_is_refused_and_those_there_are_can_be_changed,
            );
            cases!($world, limits:
                a_queue_has_as_many_live_leases_as_allowed_whoever_claims,
                a_kind_has_as_many_live_leases_as_allowed_in_all_queues_together,
                each_group_has_as_many_live_leases_as_allowed_and_one_may_have_a_limit_of_its_own,
                a_job_starts_only_if_its_queue_its_kind_and_its_group_have_room,
                a_zombie_that_gives_back_twice_frees_one_place_as_solid_queue_did_not,
                every_outcome_gives_the_place_back_once_and_said_again_changes_nothing,
                a_lease_that_has_expired_counts_until_it_is_reaped,
                a_row_that_a_claim_ends_takes_no_place_and_gives_none_back,
                a_new_limit_counts_what_runs_already,
                a_lower_limit_stops_nothing_and_starts_nothing_before_there_is_room,
                a_limit_that_is_removed_and_set_again_is_exact,
                a_retry_has_to_find_room_again,
                a_backlog_without_room_in_front_keeps_nobody_else_back,
                prefetch_takes_no_place_of_a_limit,
                settings_come_back_as_they_were_set,
                groups_are_listed_by_key_page_by_page_each_once,
                one_more_queue_with_settings_than_may_be_is_refused_and_those_there_are_can_be_changed,
            );
            cases!($world, groups:
                a_flood_of_one_group_delays_the_first_job_of_another_by_a_round_at_most,
                of_groups_that_always_have_jobs_none_has_more_than_twice_its_share,
                claims_of_one_job_go_round_the_groups,
                a_weight_is_a_number_of_turns_for_one_of_another_group,
                a_higher_priority_goes_first_across_groups,
                within_a_group_the_order_is_priority_then_run_at_then_age,
                a_paused_group_is_left_alone_until_it_is_resumed,
                jobs_without_a_group_are_together_one_taker_of_turns,
                groups_of_many_kinds_and_queues_are_all_found,
            );
            cases!($world, rates:
                starts_are_spaced_once_the_burst_is_used,
                a_claim_that_finds_nothing_allowed_says_when_to_look_again,
                a_rate_is_used_to_95_percent_and_never_exceeded_in_any_window,
                a_cost_uses_that_much_of_the_rate,
                a_job_dearer_than_the_burst_starts_when_all_of_it_is_there_and_leaves_a_debt,
                retries_count_as_starts_and_a_release_is_not_refunded,
                kinds_and_groups_have_rates_of_their_own,
                a_job_that_another_limit_holds_back_uses_none_of_its_rates,
                a_rate_that_is_used_up_in_front_keeps_nobody_else_back,
                a_store_and_the_rule_agree_to_the_microsecond,
            );
            cases!($world, strict_order:
                a_group_runs_one_at_a_time_in_the_order_of_enqueues_whatever_kind_and_priority,
                jobs_of_one_call_are_in_the_order_of_the_call,
                groups_do_not_wait_for_each_other,
                a_first_job_that_waits_for_its_retry_keeps_the_others_waiting,
                a_first_job_that_is_planned_for_later_keeps_the_others_waiting,
                a_redriven_job_keeps_the_order_that_its_queue_had_and_its_priority,
                a_dead_or_cancelled_first_job_lets_the_next_one_go,
                a_first_job_of_a_kind_nobody_asks_for_keeps_the_others_waiting,
                a_redriven_job_is_the_first_again_and_waits_for_the_one_that_runs,
                a_lost_lease_keeps_the_place_of_its_job,
                a_change_of_the_order_holds_for_jobs_that_are_enqueued_afterwards,
                eight_claimers_never_have_two_of_a_group_and_keep_the_order,
                redrives_and_claims_at_once_never_have_two_of_a_group,
            );
            cases!($world, start_deadline:
                a_job_that_is_claimed_too_late_is_cancelled_and_not_started,
                a_job_that_starts_in_time_may_run_and_retry_past_its_deadline,
                deadlines_pass_in_a_paused_queue_too,
                a_deadline_holds_for_jobs_that_a_limit_keeps_waiting,
                a_redrive_clears_the_deadline,
                a_deadline_in_the_past_ends_a_job_at_the_next_reap,
            );
            cases!($world, unique:
                while_one_waits_another_is_answered_with_it,
                a_key_of_a_waiting_job_is_free_when_it_starts,
                a_key_of_an_unfinished_job_is_free_when_it_has_ended_however,
                a_lost_lease_of_the_last_attempt_frees_the_key,
                replacing_changes_payload_priority_and_start_of_the_one_that_waits,
                a_debounced_job_is_put_off_no_longer_than_its_longest_wait,
                a_running_job_is_not_replaced,
                a_throttle_lets_one_through_in_its_window_whatever_became_of_it,
                redrives_and_retries_never_meet_the_key,
                a_cancelled_or_deleted_job_frees_its_key,
                fifty_enqueues_with_one_unique_key_make_one_job,
                a_payload_that_replaces_one_being_claimed_is_run,
                a_batch_with_unique_jobs_is_answered_in_order_beside_others,
            );
            cases!($world, explain:
                an_unknown_job_is_not_explained,
                a_job_that_nothing_holds_is_startable,
                a_job_that_runs_or_has_ended_says_so,
                every_limit_that_is_full_is_named_with_its_numbers,
                a_rate_says_when_it_allows_the_next_start_of_this_cost,
                pauses_waits_and_several_reasons_at_once_are_all_told,
                a_queue_says_whether_anything_of_it_moves,
            );
            cases!($world, errors:
                dead_letters_with_one_cause_are_one_group,
                every_way_to_fail_permanently_has_a_group_and_cancelled_jobs_have_none,
                rows_that_cannot_be_run_have_a_group_too,
                a_name_from_the_worker_is_the_group,
                redrive_delete_and_prune_leave_what_was_seen_and_count_what_is_left,
                a_group_is_counted_by_queue,
                groups_are_listed_by_kind_queue_time_and_whether_anything_is_dead,
                pages_of_groups_come_to_the_end_without_leaving_one_out,
                a_snooze_is_told_until_it_ends,
                a_group_that_was_not_seen_for_ninety_days_is_forgotten,
                a_batch_with_a_repeated_settle_counts_each_death_once,
                deaths_and_redrives_at_once_are_counted_exactly,
                beyond_ten_thousand_groups_errors_of_a_kind_are_counted_together,
            );
            cases!($world, workers:
                a_worker_is_shown_with_what_it_said_of_itself,
                a_report_changes_only_what_it_says,
                how_long_ago_counts_from_the_stores_now,
                several_reports_are_answered_in_their_order,
                what_a_worker_holds_is_counted_and_listed,
                a_worker_that_is_silent_is_gone_unless_it_holds_a_live_lease,
                a_worker_that_beats_but_does_not_fetch_is_deaf_while_there_is_work_for_it,
                a_drain_holds_until_undrain_and_not_for_another_process,
                an_unknown_worker_is_not_told,
                workers_are_listed_by_name_page_by_page,
                workers_are_forgotten_when_they_have_not_been_seen_for_long,
                no_more_than_ten_thousand_are_kept_and_who_is_gone_makes_room,
                explain_knows_who_asks_for_a_job_and_who_has_room,
            );
            cases!($world, series:
                rows_come_back_as_they_were_written,
                a_row_that_is_written_again_is_replaced_and_that_of_another_process_is_not,
                rows_of_a_span_come_oldest_first,
                hours_that_have_ended_are_added_up_and_counted_once,
                minutes_go_after_two_days_and_hours_after_ninety,
                what_is_due_is_counted_by_queue_and_kind,
                more_than_can_be_counted_is_at_least_so_many,
                of_a_strict_group_only_the_first_job_is_due,
                a_paused_queue_says_who_paused_it_and_when,
                jobs_are_counted_by_kind_and_status_over_all_queues,
            );
            cases!($world, limit_races:
                eight_claimers_are_never_over_limits_of_one,
                eight_claimers_are_never_over_limits_of_five,
                eight_claimers_are_never_over_a_group_limit_inside_a_wider_one,
                a_limit_that_is_set_while_jobs_start_and_end_is_exact_afterwards,
            );
            cases!($world, races:
                a_cancel_at_the_moment_of_failure_always_ends_cancelled,
                a_cancel_at_the_moment_of_release_always_ends_cancelled,
                a_cancel_at_the_moment_of_success_leaves_the_success,
                a_redrive_at_the_moment_of_death_is_refused_or_done,
                a_delete_at_the_moment_of_success_is_refused_or_done,
            );
            cases!($world, operations:
                an_operation_comes_to_what_a_loop_of_single_verbs_comes_to,
                steps_follow_each_other_at_the_rate,
                what_comes_after_the_cutoff_is_left_alone_and_nothing_is_redriven_in_a_circle,
                a_cutoff_of_the_preview_keeps_to_what_was_seen,
                an_operation_changes_no_more_than_its_max,
                it_is_paused_resumed_given_another_rate_and_stopped,
                the_others_are_redriven_only_if_the_canaries_live,
                a_bad_canary_pauses_it_until_somebody_resumes_it,
                jobs_are_cancelled_deleted_moved_and_given_another_priority,
                filters_meet_only_what_they_name,
                however_many_take_steps_none_is_redriven_twice_and_none_left_out,
                operations_are_listed_newest_first_and_are_limited,
            );
            cases!($world, hooks:
                every_end_of_a_watched_job_is_one_event,
                an_end_that_nobody_watches_leaves_nothing_behind,
                only_an_end_is_an_event,
                successes_that_are_settled_together_are_told_apart_from_those_nobody_watches,
                an_event_is_delivered_to_each_hook_that_wants_it_and_to_no_other,
                a_hook_is_told_of_jobs_that_were_enqueued_since_it_was_there,
                payload_and_result_are_sent_along_if_asked_for_and_missing_if_the_job_is_gone,
                a_redriven_job_that_ends_again_is_another_event,
                however_many_resolve_each_event_is_delivered_once,
                deliveries_are_never_events_and_fifty_dead_ones_in_a_row_pause_their_hook,
                a_resolve_that_fails_delivers_nothing_and_loses_nothing,
                hooks_are_put_switched_and_deleted_and_the_audit_has_no_secret,
                an_act_that_cannot_be_audited_is_not_done_to_a_hook,
                there_are_a_hundred_hooks_at_most,
                a_watched_job_gives_back_its_place_in_a_limited_queue,
                the_trace_of_a_job_is_kept_with_it,
            );
            cases!($world, concurrency:
                eight_claimers_share_2000_jobs_without_taking_one_twice,
                fifty_enqueues_with_one_key_make_one_job,
                the_reaper_overwrites_none_of_2000_settles_in_flight,
                the_reaper_takes_no_lease_that_a_heartbeat_saved,
                thirty_two_claimers_work_off_10000_jobs_each_leased_once_at_a_time,
                producers_and_workers_at_the_same_time_lose_nothing,
                the_same_settle_from_many_callers_is_recorded_for_all_and_once,
                of_many_redrives_one_brings_the_job_back,
            );
        }
    };
}

macro_rules! cases {
    ($world:ty, $verb:ident: $($case:ident),* $(,)?) => {
        mod $verb {
            use super::*;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $case() {
                    crate::$verb::$case(&<$world as World>::new().await).await;
                }
            )*
        }
    };
}

pub(crate) use {cases, conformance_suite};
