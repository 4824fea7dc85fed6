//! The suite, tested: every bug planted in the program (`src/planted.rs`) is brought to life, and the test that guards
//! against it must fail, for the right reason.
//!
//! One row per bug. It never looks at what the bug does: it starts this test program again with only that test, in the
//! quick size, and reads how it ended.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::scale::MACHINE;
use crate::stage::ended_by;

/// Longer than any quick scenario takes, also one that waits in vain.
const TIMEOUT: Duration = Duration::from_secs(300);

macro_rules! planted_bugs {
    ($($name:ident: $bug:ident, $test:literal, $reason:literal;)*) => {
        const BUGS: &[&str] = &[$(stringify!($bug)),*];
        $(
            #[test]
            fn $name() {
                assert_caught(stringify!($bug), $test, $reason);
            }
        )*
    };
}

// What the suite catches: the bug, the test that must fail with it, and a word of the reason it must give.
planted_bugs! {
    an_answer_before_the_sync_is_caught:
        AnswerBeforeSync, "power_cut::f1_no_acknowledged_job_is_missing_after_a_power_cut", "missing";
    a_store_that_never_syncs_is_caught:
        SyncOff, "sync_order::f2_every_201_leaves_after_the_sync_that_covers_its_job", "answered before the sync";
    a_failed_sync_that_is_ignored_is_caught:
        SyncErrorIgnored, "io_error::f3_a_failed_sync_is_said_ends_the_process_and_loses_nothing_acknowledged",
        "it goes on although a sync has failed";
    a_full_disk_answered_as_a_fault_of_ours_is_caught:
        FullIsInternal, "disk_full::f4_a_full_disk_is_503_storage_full_said_once_a_minute_and_over_when_there_is_room",
        "a full disk is answered with";
    a_line_for_every_failed_poll_is_caught:
        EveryPollIsLogged, "disk_full::f4_a_full_disk_is_503_storage_full_said_once_a_minute_and_over_when_there_is_room",
        "not one a minute";
    a_batch_committed_in_halves_is_caught:
        BatchInHalves, "batches::f8_a_batch_is_stored_whole_or_not_at_all_wherever_the_process_dies", "stored in part";
    a_crash_that_costs_no_attempt_is_caught:
        CrashesCostNothing, "killers::f24_jobs_that_kill_their_process_stop_after_their_attempts_on_sqlite",
        "after its attempts are used up";
    a_bad_row_that_fails_its_claim_is_caught:
        BadRowFailsClaim, "poison::f25_one_bad_row_fails_alone_and_kinds_nobody_asked_for_are_left",
        "failed the whole claim";
    error_text_of_any_length_is_caught:
        ErrorTextUncut, "hostile_text::f26_hostile_text_is_cut_or_refused_and_leaves_nothing_running",
        "error text is not cut";
    a_reaper_that_looks_at_the_first_page_only_is_caught:
        ReapFirstPageOnly, "poison::f27_an_expired_lease_is_reaped_behind_ten_thousand_and_one_live_ones",
        "never reaped";
    retries_in_step_are_caught:
        RetriesInStep, "poison::f28_jobs_that_fail_at_once_are_not_tried_again_at_once", "do not spread out";
    a_delay_by_the_hosts_clock_is_caught:
        HostClock, "clocks::f30_hosts_ten_minutes_off_change_no_lease_no_backoff_and_no_delay_on_postgres",
        "follows the host's clock";
    a_lock_that_is_not_waited_for_is_caught:
        LocksNotWaitedFor, "sqlite_file::f39_sixty_four_clients_do_not_notice_another_program_that_holds_the_lock_for_five_seconds",
        "another program's lock reached a user";
    a_log_that_never_shrinks_is_caught:
        LogNeverShrinks, "sqlite_file::f40_the_log_shrinks_again_after_a_reader_that_was_held_open_under_load",
        "does not shrink";
    a_second_owner_of_the_file_is_caught:
        TwoOwners, "sqlite_file::f41_a_second_server_is_refused_and_a_backup_is_whole", "was not refused";
    leases_left_behind_by_the_clock_are_caught:
        ClockStepsIgnored, "clocks::f31_no_lease_ends_and_nothing_runs_twice_when_the_clock_of_a_server_is_set",
        "live leases were reaped";
    delays_left_behind_by_the_clock_are_caught:
        DelaysLeftBehind, "clocks::f31_no_lease_ends_and_nothing_runs_twice_when_the_clock_of_a_server_is_set",
        "a delay was left behind";
    a_settle_without_the_fence_is_caught_on_sqlite: SettleUnfenced,
        "zombies::f12_a_worker_stopped_for_three_leases_changes_nothing_when_it_wakes_on_sqlite", "a stale settle";
    a_settle_without_the_fence_is_caught_on_postgresql: SettleUnfenced,
        "zombies::f12_a_worker_stopped_for_three_leases_changes_nothing_when_it_wakes_on_postgresql", "a stale settle";
    a_live_lease_that_is_reaped_is_caught_on_sqlite: LiveLeasesReaped,
        "leases::f17_a_job_of_four_leases_runs_to_its_end_once_on_sqlite", "a live lease was reaped";
    a_live_lease_that_is_reaped_is_caught_on_postgresql: LiveLeasesReaped,
        "leases::f17_a_job_of_four_leases_runs_to_its_end_once_on_postgresql", "a live lease was reaped";
    a_claim_that_nobody_checks_is_caught: LeasesUnchecked,
        "leases::g6_a_lease_that_outlived_its_first_end_is_reaped_at_its_last", "is never reaped";
    a_reaper_that_forgets_live_leases_is_caught: LiveChecksDropped,
        "leases::g6_a_lease_that_outlived_its_first_end_is_reaped_at_its_last", "is never reaped";
    a_job_that_is_leased_twice_is_caught_on_sqlite: JobLeasedTwice,
        "leases::f21_thirty_two_claimers_lease_no_job_twice_on_sqlite", "leased twice";
    a_job_that_is_leased_twice_is_caught_on_postgresql: JobLeasedTwice,
        "leases::f21_thirty_two_claimers_lease_no_job_twice_on_postgresql", "leased twice";
    a_key_that_is_ignored_is_caught: KeyIgnored,
        "link::f5_an_enqueue_whose_answer_was_lost_is_stored_once_and_its_replay_is_marked_on_sqlite", "not two";
    a_key_that_swallows_another_job_is_caught_on_sqlite: KeySwallowsJobs,
        "link::g2_a_key_never_swallows_another_job_on_sqlite", "a job was swallowed";
    a_key_that_swallows_another_job_is_caught_on_postgresql: KeySwallowsJobs,
        "link::g2_a_key_never_swallows_another_job_on_postgresql", "a job was swallowed";
    an_answer_before_the_commit_is_caught: AnswerBeforeCommit,
        "kill::f6_f8_f10_a_server_on_sqlite_killed_at_random_loses_nothing_and_runs_nothing_without_a_cause", "lost: ";
    retries_without_end_are_caught: RetriesNeverEnd,
        "leases::g3_a_job_that_always_fails_is_started_as_often_as_allowed_and_no_more", "too many starts";
    a_retry_that_no_claim_looks_for_is_caught: RetriesForgotten,
        "leases::g3_a_job_that_always_fails_is_started_as_often_as_allowed_and_no_more",
        "waited in vain for the job to be given up";
    a_cause_that_is_forgotten_is_caught_on_sqlite: CauseForgotten,
        "link::f11_a_claim_whose_answer_was_lost_comes_back_with_the_cause_recorded_on_sqlite", "the cause recorded";
    a_cause_that_is_forgotten_is_caught_on_postgresql: CauseForgotten,
        "kill::f10_the_job_of_a_worker_killed_after_its_claim_runs_again_with_the_cause_recorded", "without a record";
    heartbeats_that_wait_behind_new_jobs_are_caught: WorkersBehindEnqueues,
        "overload::f9_heartbeats_and_settles_do_not_queue_behind_new_jobs", "waited behind";
    a_shutdown_that_abandons_its_jobs_is_caught: ShutdownAbandons,
        "shutdown::f19_a_server_told_to_stop_under_load_leaves_nothing_running_and_spends_no_attempt_on_sqlite",
        "left running";
    a_worker_known_by_its_name_only_is_caught: WorkerByName,
        "leases::f20_two_processes_with_the_same_settings_are_two_workers", "these identities";
    a_reaper_that_never_runs_is_caught: ReaperNeverRuns,
        "kill::f10_the_job_of_a_worker_killed_after_its_claim_runs_again_with_the_cause_recorded",
        "waited in vain: a dead worker's job is run again";
    a_cancelled_job_that_is_tried_again_is_caught: CancelledIsRetried,
        "leases::f22_a_cancel_at_any_moment_ends_the_job_on_sqlite", "a cancelled job ends";
    a_running_job_that_is_deleted_is_caught: RunningDeleted,
        "leases::f23_a_running_job_cannot_be_deleted", "a running job was deleted";
    a_repeated_settle_that_is_answered_otherwise_is_caught: RepeatIsLost,
        "leases::f15_a_late_settle_counts_and_the_same_again_gets_the_same_answer_on_sqlite", "the same settle again";
    a_deadlock_that_is_not_tried_again_is_caught: ConflictsNotRetried,
        "database::f35_a_deadlock_with_another_client_is_tried_again_and_reaches_nobody", "a deadlock reached the caller";
    claims_that_look_from_the_beginning_are_caught: MarksIgnored,
        "database::f36_claims_stay_flat_while_another_client_holds_back_vacuum", "do not stay flat";
    counts_that_are_looked_at_from_the_beginning_are_caught: MarksIgnored,
        "database::f36_counts_stay_flat_while_another_client_holds_back_vacuum", "do not stay flat";
    changes_of_open_transactions_that_are_passed_over_are_caught: OpenChangesPassed,
        "database::f36_a_job_of_a_transaction_that_was_open_for_long_is_counted", "is not counted";
    a_short_queue_for_new_connections_is_caught: ShortBacklog,
        "overload::f9_a_thousand_clients_that_come_at_once_all_get_a_connection_at_once", "were let in";
    workers_that_wait_behind_everybody_are_caught: NoWorkerThreads,
        "overload::f9_workers_and_probes_are_answered_while_every_thread_that_serves_others_is_busy", "not answered";
    a_log_failure_that_ends_the_process_is_caught: LogFailureIsFatal,
        "logs::f48_a_server_whose_log_is_on_a_full_disk_goes_on", "the server is gone";
    an_unknown_outcome_that_is_denied_is_caught: OutcomeForgotten,
        "link::f7_a_commit_whose_outcome_is_unknown_is_a_503_that_says_so_and_the_same_key_resolves_it",
        "nothing was changed";
    a_writer_that_panics_is_caught: WriterPanics,
        "leases::f23_a_running_job_cannot_be_deleted", "may or may not be stored";
    a_writer_whose_death_goes_unnoticed_is_caught: WriterDeathUnnoticed,
        "unwritable::planted::a_server_whose_writer_thread_has_died_is_not_ready_and_ends_with_an_error",
        "it goes on although nothing can be written any more";
    a_heartbeat_answered_by_its_token_alone_is_caught: HeartbeatByToken,
        "leases::g4_a_heartbeat_with_the_token_of_another_lease_is_lost", "with another lease's token";
    a_last_admin_token_that_two_processes_delete_is_caught: LastAdminDeleted,
        "tokens::two_processes_that_delete_the_last_two_admin_tokens_in_the_same_moment_leave_one_on_postgresql",
        "both of the last two";
    a_last_admin_token_that_is_deleted_is_caught_on_sqlite: LastAdminDeleted,
        "tokens::of_the_last_two_admin_tokens_one_stays_whoever_deletes_them_at_once", "both of the last two";
    answers_without_a_budget_are_caught_on_sqlite: AnswersUnbudgeted,
        "memory_attacks::s31_answers_that_are_never_read_do_not_fill_the_memory_on_sqlite", "answers nobody reads took";
    answers_without_a_budget_are_caught_on_postgresql: AnswersUnbudgeted,
        "memory_attacks::s31_answers_that_are_never_read_do_not_fill_the_memory_on_postgresql",
        "answers nobody reads took";
    an_address_that_takes_every_connection_is_caught: OneAddressTakesAll,
        "memory_attacks::s31_one_address_cannot_take_every_connection_on_sqlite", "a good client was turned away";
    guesses_without_a_throttle_are_caught: GuessesUnthrottled,
        "guesses::s7_six_hundred_who_guess_at_once_have_few_tokens_judged_and_a_good_client_does_not_notice",
        "guesses were judged";
    queues_without_a_cap_are_caught: QueuesUncapped,
        "made_up_queues::s30_names_made_up_without_end_begin_as_many_queues_as_there_may_be_and_a_good_client_does_not_notice",
        "queues were begun";
    payloads_checked_on_the_runtime_are_caught: PayloadsCheckedOnRuntime,
        "payload_attacks::s28_expensive_payloads_from_several_clients_cost_no_lease_no_probe_and_no_memory_on_sqlite",
        "probes wait";
    a_check_without_a_budget_is_caught: CheckBudgetIgnored,
        "payload_attacks::s28_expensive_payloads_from_several_clients_cost_no_lease_no_probe_and_no_memory_on_sqlite",
        "memory grew by";
    a_name_that_is_not_judged_is_caught: JudgeBeforeResolveOnly,
        "outbound::s17_a_name_that_leads_inside_does_not_get_there", "an internal service was reached by its name";
    a_literal_address_that_is_not_judged_is_caught: LiteralsUnjudged,
        "outbound::s17_a_literal_address_in_any_spelling_does_not_get_inside",
        "an internal service was reached by its address";
    a_redirect_that_is_followed_is_caught: RedirectFollowed,
        "outbound::s18_a_redirect_is_an_answer_and_nobody_goes_there", "a redirect was followed";
    ticks_that_are_passed_over_are_caught_on_sqlite: NextFromNow,
        "schedules::f44_the_only_process_killed_between_due_and_tick_loses_no_tick_and_doubles_none_on_sqlite",
        "ticks without a job";
    ticks_that_are_passed_over_are_caught_on_postgresql: NextFromNow,
        "schedules::f44_the_only_process_killed_between_due_and_tick_loses_no_tick_and_doubles_none_on_postgresql",
        "ticks without a job";
    ticks_that_share_a_key_are_caught: TickKeyWithoutTick,
        "schedules::f44_one_process_makes_one_job_of_each_tick_and_passes_over_none_on_sqlite", "ticks without a job";
    missed_ticks_made_up_for_without_end_are_caught: CatchUpUnbounded,
        "schedules::f44_a_night_without_a_server_is_made_up_for_as_declared_and_no_further_on_sqlite",
        "jobs for the ticks";
    jobs_of_a_schedule_that_overlap_are_caught_on_sqlite: OverlapUnseen,
        "schedules::f44_no_schedule_but_one_that_allows_it_has_two_unfinished_jobs_on_sqlite", "unfinished at once";
    jobs_of_a_schedule_that_overlap_are_caught_on_postgresql: OverlapUnseen,
        "schedules::f44_no_schedule_but_one_that_allows_it_has_two_unfinished_jobs_on_postgresql", "unfinished at once";
    an_operation_that_goes_in_circles_is_caught_on_sqlite: RedrivenInCircles,
        "operations::f49_a_killed_redrive_goes_on_where_it_was_and_redrives_each_job_once_on_sqlite", "redriven twice";
    an_operation_that_goes_in_circles_is_caught_on_postgresql: RedrivenInCircles,
        "operations::f49_a_killed_redrive_goes_on_where_it_was_and_redrives_each_job_once_on_postgresql", "redriven twice";
    a_place_given_back_without_the_fence_is_caught_on_sqlite: GiveBackUnfenced,
        "limits::f43_the_zombie_of_solid_queue_761_gives_no_place_back_a_second_time_on_sqlite", "given back twice";
    a_place_given_back_without_the_fence_is_caught_on_postgresql: GiveBackUnfenced,
        "limits::f43_the_zombie_of_solid_queue_761_gives_no_place_back_a_second_time_on_postgresql", "given back twice";
    a_dead_letter_that_keeps_its_place_is_caught_on_sqlite: DeadLettersKeepPlace,
        "limits::f43_a_dead_letter_gives_its_place_back_on_sqlite", "never free again";
    a_dead_letter_that_keeps_its_place_is_caught_on_postgresql: DeadLettersKeepPlace,
        "limits::f43_a_dead_letter_gives_its_place_back_on_postgresql", "never free again";
    leases_that_are_counted_and_not_locked_are_caught: UsageUnlocked,
        "limit_storms::f43_eight_claimers_of_four_processes_with_reaps_and_zombies_are_never_over_a_limit_on_postgresql", "over the limit";
    a_share_that_is_ignored_is_caught_on_sqlite: ShareIgnored,
        "limit_turns::f43_a_flood_of_one_group_does_not_take_all_of_a_claim_on_sqlite", "took the turns of others";
    a_share_that_is_ignored_is_caught_on_postgresql: ShareIgnored,
        "limit_turns::f43_a_flood_of_one_group_does_not_take_all_of_a_claim_on_postgresql", "took the turns of others";
    a_turn_that_is_not_passed_on_is_caught_on_sqlite: TurnNotAdvanced,
        "limit_turns::f43_claims_of_one_job_go_round_the_groups_on_sqlite", "was not passed on";
    a_turn_that_is_not_passed_on_is_caught_on_postgresql: TurnNotAdvanced,
        "limit_turns::f43_claims_of_one_job_go_round_the_groups_on_postgresql", "was not passed on";
    a_rate_without_a_time_to_look_again_is_caught_on_sqlite: RateWithoutLookAgain,
        "limit_turns::f43_a_rate_under_saturation_is_used_to_95_percent_and_never_exceeded_on_sqlite", "little of the rate is used";
    a_redriven_job_that_its_group_of_errors_still_counts_is_caught: RedriveKeepsGroup,
        "errors::groups_of_errors_count_what_is_dead", "are dead";
    ends_that_leave_the_outbox_before_they_are_deliveries_are_caught_on_sqlite: OutboxApart,
        "hooks::f50_a_process_killed_between_an_end_and_its_delivery_loses_no_event_and_doubles_none_on_sqlite",
        "every end has its deliveries";
    ends_that_leave_the_outbox_before_they_are_deliveries_are_caught_on_postgresql: OutboxApart,
        "hooks::f50_two_processes_killed_between_an_end_and_its_delivery_lose_no_event_and_double_none_on_postgresql",
        "every end has its deliveries";
}

#[track_caller]
fn assert_caught(bug: &str, test: &str, reason: &str) {
    let _share = MACHINE.blocking_read();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("STEADFAST_PLANTED_BUG", bug)
        .env_remove("STEADFAST_FAULTS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let hearing = [heard(stdout), heard(stderr)];
    let status = ended_by(Instant::now() + TIMEOUT, &mut child);
    let status = status.unwrap_or_else(|| panic!("{bug}: {test} (process {pid}) goes on and on"));
    let said = hearing.map(|hearing| hearing.join().unwrap()).join("\n");
    assert!(said.contains("running 1 test"), "{bug}: there is no test {test}\n{said}");
    if let Some(line) = said.lines().find(|line| line.contains("was NOT TESTED")) {
        eprintln!("{line}; nor was it shown that it catches {bug}");
        return;
    }
    assert!(!status.success(), "{bug} is alive, and {test} has not noticed\n{said}");
    assert!(said.contains(reason), "{bug}: {test} failed, but not because of {reason:?}\n{said}");
}

fn heard(mut pipe: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = pipe.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    })
}

#[test]
fn every_planted_bug_has_its_row() {
    let source = include_str!("../../src/planted.rs");
    let variants = source.split_once("enum Bug {").unwrap().1.split_once("\n}").unwrap().0;
    let variants: Vec<_> =
        variants.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).collect();
    assert!(!variants.is_empty());
    for variant in variants {
        let variant = variant.trim_end_matches(',');
        assert!(BUGS.contains(&variant), "nothing shows that the suite catches {variant}: it needs a row here");
    }
}
