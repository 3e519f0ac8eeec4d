//! Wrong stores, each with the case that must catch it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use posthaste_core::{
    Body, Event, LANES, Lane, LaneSet, Proof, Row, RowId, RowRef, Snapshot, Timestamp,
    port::{
        Access, Armed, EnqueueError, Enqueued, Filter, Held, Marked, OperateReport, Page, PruneRequest, ReadRequest,
        SchemaState, Settled, Settlement,
    },
};
use posthaste_testkit::{
    service,
    suite::store::{StoreHarness, check},
};

use crate::{
    postgres::Postgres,
    run,
    sqlite::Sqlite,
    twisted_store::{Call, MaybeHeld, Twist, Twisted, Written},
};

/// The case passes on the right store and fails on the twisted one.
fn caught(right: Arc<dyn StoreHarness>, twist: Twist, case: &str) {
    let twisted = Arc::new(Twisted { right: Arc::clone(&right), twist });
    assert_eq!(run(check(right, case)), Ok(()), "on the right store");
    let verdict = run(check(twisted, case));
    assert!(verdict.as_ref().is_err_and(|text| !text.starts_with("teardown")), "not caught: {verdict:?}");
}

macro_rules! mutants {
    ($($name:ident: $case:ident, { $($field:ident: $value:expr),* $(,)? };)*) => { $(
        #[test]
        fn $name() {
            caught(Arc::new(Sqlite), Twist { $($field: $value,)* ..Twist::default() }, stringify!($case));
        }
    )* };
}

/// The same over PostgreSQL, where the clause needs writers that overlap, or lanes.
macro_rules! mutants_of_postgres {
    ($($name:ident: $case:ident, { $($field:ident: $value:expr),* $(,)? };)*) => { $(
        #[test]
        fn $name() {
            let Some(url) = service::postgres() else { return };
            caught(Arc::new(Postgres { url }), Twist { $($field: $value,)* ..Twist::default() }, stringify!($case));
        }
    )* };
}

mutants! {
    enqueue_that_commits_at_once: port_e1_nothing_shows_before_the_commit, { after_enqueue: Some("COMMIT; BEGIN") };
    enqueue_that_survives_a_rollback: port_e1_a_rollback_hides_the_row, { after_enqueue: Some("COMMIT; BEGIN") };
    enqueue_that_leaves_the_savepoint: port_e1_report_130_a_savepoint_takes_its_rows_along, {
        after_enqueue: Some("COMMIT; BEGIN")
    };
    enqueue_that_takes_a_repeat_for_a_conflict: port_e5_a_repeat_in_one_call_is_one_row, { enqueued: repeat_refused };
    enqueue_that_compares_the_trace: port_e5_decision_25_the_trace_context_is_no_content, { enqueued: repeat_refused };
    enqueue_that_rolls_back: port_e1_a_commit_shows_the_row, { after_enqueue: Some("ROLLBACK; BEGIN") };
    enqueue_that_answers_in_reverse: port_e2_report_008_answers_come_in_the_order_of_the_events, { enqueued: reversed };
    enqueue_that_forgets_the_last_event: port_e3_report_005_a_thousand_of_one_key_keep_the_order_of_the_calls, {
        events: |events| &events[..events.len().saturating_sub(1)]
    };
    enqueue_that_never_says_existing: port_e5_report_135_a_repeat_is_a_no_op_that_says_so, { enqueued: all_new };
    enqueue_that_takes_a_conflict_for_a_repeat: port_e5_other_content_is_a_conflict_and_the_transaction_stays_usable, {
        enqueued: conflict_swallowed
    };
    enqueue_that_compares_nothing: port_e5_every_kind_of_content_counts, { enqueued: conflict_swallowed };
    enqueue_that_stops_at_no_limit: port_e6_an_event_that_breaks_a_rule_leaves_the_transaction_as_it_was, {
        enqueued: rule_swallowed
    };
    produce_that_writes_one_by_one: port_e_produce_writes_all_or_none, { one_by_one: true };
    produce_that_answers_in_reverse: port_e_produce_answers_in_order, { enqueued: reversed };
}

mutants! {
    read_that_leaves_out_the_last_row: port_l4_pages_end_to_end_hold_every_row_once, {
        page: |_, mut page| { page.rows.pop(); page }
    };
    read_that_leaves_out_a_row_in_the_middle: port_l2_a_prefix_of_each_lane_whatever_the_limits, {
        page: |_, mut page| { if page.rows.len() > 2 { page.rows.remove(1); } page }
    };
    read_that_turns_a_lane_around: port_l2_rows_of_a_lane_ascend, {
        page: |_, mut page| { page.rows.reverse(); page }
    };
    read_that_ignores_the_cursor: port_l1_only_rows_behind_the_cursor, {
        request: |mut request| { request.from.iter_mut().for_each(|(_, cursor)| *cursor = 0); request }
    };
    read_that_includes_the_cursor: port_l1_only_rows_behind_the_cursor, {
        request: |mut request| { request.from.iter_mut().for_each(|(_, cursor)| *cursor -= 1); request }
    };
    read_of_all_lanes: port_l1_a_lane_that_was_not_asked_for_is_left_out, {
        request: |request| ReadRequest { from: (0..LANES).filter_map(Lane::new).map(|lane| (lane, 0)).collect(), ..request }
    };
    read_that_leaves_out_what_is_not_due: port_l1_decision_03_rows_that_are_not_due_are_read, {
        page: |_, mut page| { let now = page.now; page.rows.retain(|row| row.due_at <= now); page }
    };
    read_of_one_row_too_many_a_lane: port_l3_at_most_per_lane_rows_of_a_lane, {
        request: |request| ReadRequest { per_lane: request.per_lane + 1, ..request }
    };
    read_of_one_row_too_many: port_l3_at_most_max_rows_in_all, {
        request: |request| ReadRequest { max_rows: request.max_rows + 1, ..request }
    };
    read_over_the_byte_budget: port_l3_at_most_max_bytes_of_bodies, {
        request: |request| ReadRequest { max_bytes: request.max_bytes.saturating_mul(2), ..request }
    };
    read_that_stops_before_a_row_over_the_budget: port_l3_the_first_row_comes_even_if_it_is_over_the_budget, {
        page: |request, mut page| { page.rows.retain(|row| row.body.len() as u64 <= request.max_bytes); page }
    };
    read_of_bodies_of_any_size: port_l3_a_body_over_max_body_is_not_read, {
        request: |request| ReadRequest { max_body: u64::MAX >> 1, ..request }
    };
    read_that_forgets_more: port_l4_more_says_whether_rows_are_left, {
        page: |_, page| Page { more: LaneSet::EMPTY, ..page }
    };
    read_that_always_says_more: port_l_an_empty_outbox_is_an_empty_page, {
        page: |_, page| Page { more: LaneSet::ALL, ..page }
    };
    read_that_rounds_bodies_to_text: report_067_report_069_bodies_come_back_byte_for_byte, { page: lossy };
    read_that_takes_empty_for_null: report_076_null_and_empty_are_two_things, { page: empty_is_null };
    read_that_brings_dead_letters: port_l1_only_committed_rows_that_are_undelivered, {
        after: |call| (call == Call::Settle).then_some("UPDATE \"$t\" SET status = 'failed' WHERE status = 'invalid'")
    };
    read_without_headers: port_l1_every_field_comes_back_as_it_was_written, {
        page: |_, mut page| { page.rows.iter_mut().for_each(|row| row.headers.clear()); page }
    };
    read_by_another_clock: port_l_the_clock_is_the_databases_and_goes_on, {
        page: |_, page| Page { now: Timestamp::from_micros(page.now.micros() - 3_600_000_000), ..page }
    };
    read_that_trims_texts: report_067_texts_come_back_character_by_character, {
        page: |_, mut page| {
            page.rows.iter_mut().for_each(|row| row.key = row.key.as_ref().map(|key| key.trim().to_owned()));
            page
        }
    };
    read_that_hides_defects: port_l1_headers_that_are_no_map_of_strings_are_a_defect, {
        page: |_, mut page| { page.rows.iter_mut().for_each(|row| row.defect = None); page }
    };
    read_that_hides_rows_with_a_defect: port_l1_headers_that_are_no_map_of_strings_are_a_defect, {
        page: |_, mut page| { page.rows.retain(|row| row.defect.is_none()); page }
    };
}

mutants! {
    mark_that_does_nothing: port_m_marked_rows_are_published, { marks: |_| vec![] };
    mark_by_id_alone: port_m3_a_row_that_came_again_under_its_id_is_not_marked, {
        marks: |rows| rows.iter().flat_map(|row| (1..9).map(|seq| RowRef { seq, ..*row })).collect()
    };
    mark_that_forgets_the_last: port_m_a_thousand_rows_in_one_call, { marks: |rows| rows[..rows.len() - 1].to_vec() };
    mark_that_moves_published_at: port_m1_repeating_keeps_published_at, {
        after: on_mark
    };
    mark_by_another_clock: port_m2_published_at_is_the_databases_clock, { after: on_mark };
    mark_that_keeps_the_error: port_m2_outstanding_and_last_error_become_absent, {
        after: |call| (call == Call::Mark).then_some("UPDATE \"$t\" SET last_error = 'old'")
    };
    mark_that_always_keeps: port_m_without_retention_marked_rows_are_deleted, {
        retention: |_| Duration::from_secs(60)
    };
    mark_that_counts_what_it_was_given: port_m1_unknown_and_repeated_ids_are_harmless, {
        marked: |marked| Marked { changed: marked.changed + 1, ..marked }
    };
    mark_that_frees_the_highest_seq: port_m_without_retention_no_seq_is_used_again, {
        after: |call| (call == Call::Mark).then_some("DELETE FROM \"$t\"")
    };
    settle_that_forgets_progress: port_s_progress_leaves_the_status, {
        after: |call| (call == Call::Settle).then_some("UPDATE \"$t\" SET outstanding = NULL")
    };
    settle_that_cuts_texts: port_s_texts_come_back_as_they_are, {
        after: |call| (call == Call::Settle).then_some("UPDATE \"$t\" SET last_error = substr(last_error, 1, 80)")
    };
    settle_that_overwrites_published: port_s1_a_published_row_is_stale_and_not_changed, {
        after: |call| (call == Call::Settle).then_some("UPDATE \"$t\" SET status = 'failed' WHERE status = 'published'")
    };
    settle_that_answers_in_reverse: port_s1_one_answer_each_in_order, {
        settled: |mut settled| { settled.reverse(); settled }
    };
    settle_that_is_always_done: port_s1_a_row_that_is_gone_is_stale, {
        settled: |settled| vec![Settled::Done; settled.len()]
    };
    settle_that_always_counts: port_s_a_retry_counts_only_if_told, { settlement: counted };
    settle_that_is_due_at_once: port_s2_a_retry_is_due_by_the_databases_clock, { settlement: due_at_once };
    settle_that_forgets_outstanding: port_s_a_retry_keeps_outstanding_unless_it_changed, {
        after: |call| (call == Call::Settle).then_some("UPDATE \"$t\" SET outstanding = NULL")
    };
    settle_that_drops_the_body_of_a_dead_letter: port_s3_an_invalid_row_keeps_everything, {
        after: |call| (call == Call::Settle).then_some("UPDATE \"$t\" SET body = NULL WHERE status = 'invalid'")
    };
    settle_whose_note_is_a_failure: port_s_a_note_changes_nothing_else, { settlement: note_as_retry };
}

mutants! {
    status_that_counts_claimed_rows_as_pending: port_i1_status_counts_by_status, {
        status: |mut status| { status.pending += status.processing; status.processing = 0; status }
    };
    status_without_an_age: port_i1_the_age_of_the_oldest_row_to_be_delivered, {
        status: |mut status| { status.oldest_pending = None; status }
    };
    status_without_deferred_types: port_i1_deferred_types_are_named, {
        status: |mut status| { status.deferred_types.clear(); status }
    };
    status_that_names_nobody: port_h_the_status_names_the_holder, {
        status: |mut status| { status.relays.clear(); status }
    };
    list_that_descends: port_i2_a_list_ascends_and_pages, { list: |mut rows| { rows.reverse(); rows } };
    list_that_loads_bodies: report_148_a_list_leaves_bodies_out, { list: with_bodies };
    list_that_ignores_the_tenant: port_i_filters_must_all_match, {
        filter: |filter| Filter { tenant: None, ..filter }
    };
    list_that_takes_an_underscore_for_a_wildcard: port_i_the_star_of_a_type_is_the_only_wildcard, {
        filter: |filter| Filter { event_type: filter.event_type.map(|glob| glob.replace('_', "*")), ..filter }
    };
    get_without_bodies: port_i_get_brings_the_body_of_any_row, {
        row: |row| row.map(|row| Row { body: Body::Null, ..row })
    };
    predecessor_that_finds_nothing: port_i_the_predecessor_is_the_first_undelivered_of_the_key, {
        predecessor: |_| None
    };
    rights_that_are_there_and_said_to_lack: port_i_the_one_who_made_an_outbox_lacks_nothing, {
        access: |access| Access { lacking: vec!["INSERT".to_owned()], ..access }
    };
}

mutants! {
    retry_that_keeps_attempts: report_088_a_retried_row_is_due_now_with_no_attempts, {
        after: |call| (call == Call::Retry).then_some("UPDATE \"$t\" SET attempts = 3")
    };
    retry_without_bound: port_o1_retry_is_bounded_and_says_how_many_match, { limit: |_| 10_000 };
    retry_that_reports_only_what_it_changed: port_o1_retry_is_bounded_and_says_how_many_match, {
        report: |report| OperateReport { matched: report.changed, ..report }
    };
    retry_that_takes_claimed_rows: port_o2_retry_leaves_claimed_and_published_rows, { before: unclaim };
    retry_that_records_nothing: port_o3_retry_records_who_and_why, {
        after: |call| (call == Call::Retry).then_some("DELETE FROM \"$t_log\"")
    };
    retry_that_puts_a_dead_letter_in_front: port_o4_a_retried_dead_letter_goes_to_the_end_of_its_outbox, {
        after: |call| (call == Call::Retry)
            .then_some("UPDATE \"$t\" SET seq = -1 WHERE seq = (SELECT max(seq) FROM \"$t\")")
    };
    discard_without_bound: port_o1_discard_is_bounded_and_says_how_many_match, { limit: |_| 10_000 };
    discard_that_takes_claimed_rows: port_o2_discard_leaves_claimed_and_published_rows, { before: unclaim };
    discard_that_records_nothing: port_o3_discard_records_who_and_why, {
        after: |call| (call == Call::Discard).then_some("DELETE FROM \"$t_log\"")
    };
    discard_that_frees_the_highest_seq: port_o_discard_lets_no_seq_be_used_again, {
        after: |call| (call == Call::Discard).then_some("DELETE FROM \"$t\"")
    };
    discard_by_another_filter_than_list: port_o_a_filter_selects_what_it_lists, {
        before: |call| (call == Call::Discard).then_some("UPDATE \"$t\" SET type = 'a_3' WHERE type = 'aX1'")
    };
    count_of_nothing: port_o_count_says_what_a_call_would_change, { count: |_| 0 };
    prune_that_takes_undelivered_rows: port_p1_undelivered_rows_are_never_pruned, {
        before: |call| (call == Call::Prune).then_some("UPDATE \"$t\" SET status = 'invalid' WHERE status = 'failed'")
    };
    prune_of_young_rows: port_p1_only_old_rows_of_the_status_are_pruned, {
        prunes: |request| PruneRequest { older_than: Duration::ZERO, ..request }
    };
    prune_without_bound: report_139_a_prune_is_bounded_and_goes_by_seq, { limit: |_| 10_000 };
    prune_that_frees_the_highest_seq: port_p2_no_seq_is_used_again_after_a_prune, {
        after: |call| (call == Call::Prune).then_some("DELETE FROM \"$t\" WHERE status = 'published'")
    };
    prunable_count_of_nothing: port_p_count_says_what_a_prune_would_delete, { count: |_| 0 };
}

mutants! {
    schema_that_is_always_current: port_d_a_place_without_a_schema_says_so, { schema: |_| SchemaState::Current };
    schema_that_guesses_at_a_newer_one: port_d2_a_newer_schema_is_refused, { migrated: |_| Ok(()) };
    migrate_that_starts_anew: port_d3_a_current_schema_and_its_rows_stay, {
        after: |call| (call == Call::Migrate).then_some("DELETE FROM \"$t\"")
    };
    statements_that_make_nothing: port_d_its_statements_make_it_from_nothing, { statements: |_| String::new() };
    hold_for_everybody: port_h1_decision_12_one_relay_holds_an_outbox, { held: |_| Some(Box::new(Granted)) };
    hold_that_is_never_released: port_h1_released_it_is_free_at_once, { held: stuck };
    hold_that_is_lost_at_once: port_h_what_is_held_is_not_lost, { held: |held| held.map(|_| Box::new(Granted) as _) };
    wakeups_that_sleep: port_w2_every_commit_after_arming_wakes, { sleeps: true };
}

mutants_of_postgres! {
    snapshot_that_hides_open_writers: port_l5_decision_02_an_open_writer_is_seen_in_progress, {
        page: |_, page| Page { proof: Proof::Snapshot(Snapshot { xmin: u64::MAX, xmax: u64::MAX, in_progress: vec![] }), ..page }
    };
    snapshot_missing_from_an_empty_page: port_l5_decision_02_an_empty_page_sees_open_writers_too, {
        page: |_, page| if page.rows.is_empty() { Page { proof: Proof::Snapshot(Snapshot::default()), ..page } } else { page }
    };
    snapshot_without_its_list: port_l5_rows_appear_behind_a_page_only_from_writers_it_saw, {
        page: |_, mut page| {
            if let Proof::Snapshot(snapshot) = &mut page.proof { snapshot.in_progress.clear(); }
            page
        }
    };
    read_with_one_cursor_for_all_lanes: port_l1_each_lane_has_its_own_cursor, {
        request: |mut request| {
            let lowest = request.from.iter().map(|(_, cursor)| *cursor).min().unwrap_or(0);
            request.from.iter_mut().for_each(|(_, cursor)| *cursor = lowest);
            request
        }
    };
    more_of_lanes_that_are_done: port_l4_more_names_the_lanes_that_have_rows_left, {
        page: |request, mut page| {
            if !page.more.is_empty() { page.more = request.from.iter().map(|(lane, _)| *lane).collect(); }
            page
        }
    };
    relay_that_sleeps_past_a_writer_under_way: port_w2_a_writer_under_way_is_not_slept_through, {
        armed: |_| Armed::Yes
    };
    mark_that_names_no_transaction: port_m_the_transaction_that_marks_ends_with_it, {
        marked: |marked| Marked { transaction: None, ..marked }
    };
    lane_by_another_rule: decision_06_the_lane_of_a_key_is_the_same_in_both_forms, {
        page: |_, mut page| { page.rows.iter_mut().for_each(|row| row.lane = Lane::of_id(row.id)); page }
    };
}

fn reversed(_: &[Event], written: Written) -> Written {
    written.map(|mut rows| {
        rows.reverse();
        rows
    })
}

fn all_new(_: &[Event], written: Written) -> Written {
    written.map(|rows| rows.into_iter().map(|row| Enqueued { existing: false, ..row }).collect())
}

fn repeat_refused(_: &[Event], written: Written) -> Written {
    let rows = written?;
    match rows.iter().position(|row| row.existing) {
        Some(index) => Err(EnqueueError::Conflict { index, id: rows[index].id }),
        None => Ok(rows),
    }
}

fn conflict_swallowed(events: &[Event], written: Written) -> Written {
    match written {
        Err(EnqueueError::Conflict { .. }) => Ok(pretended(events)),
        written => written,
    }
}

fn rule_swallowed(events: &[Event], written: Written) -> Written {
    match written {
        Err(EnqueueError::Event { .. }) => Ok(pretended(events)),
        written => written,
    }
}

fn pretended(events: &[Event]) -> Vec<Enqueued> {
    let ids = events.iter().map(|event| event.id.unwrap_or_else(RowId::generate));
    ids.map(|id| Enqueued { id, lane: Lane::of_id(id), existing: true }).collect()
}

fn lossy(_: &ReadRequest, mut page: Page) -> Page {
    for row in &mut page.rows {
        if let Body::Bytes(bytes) = &row.body {
            row.body = Body::Bytes(String::from_utf8_lossy(bytes).into_owned().into());
        }
    }
    page
}

fn empty_is_null(_: &ReadRequest, mut page: Page) -> Page {
    page.rows.iter_mut().filter(|row| row.body.is_empty()).for_each(|row| row.body = Body::Null);
    page
}

fn on_mark(call: Call) -> Option<&'static str> {
    (call == Call::Mark)
        .then_some("UPDATE \"$t\" SET published_at = published_at + 3600000000 WHERE published_at IS NOT NULL")
}

fn unclaim(call: Call) -> Option<&'static str> {
    matches!(call, Call::Retry | Call::Discard)
        .then_some("UPDATE \"$t\" SET status = 'failed' WHERE status = 'processing'")
}

fn counted(settlement: Settlement) -> Settlement {
    match settlement {
        Settlement::Retry { id, due_in, error, outstanding, .. } => {
            Settlement::Retry { id, due_in, counted: true, error, outstanding }
        }
        other => other,
    }
}

fn due_at_once(settlement: Settlement) -> Settlement {
    match settlement {
        Settlement::Retry { id, counted, error, outstanding, .. } => {
            Settlement::Retry { id, due_in: Duration::ZERO, counted, error, outstanding }
        }
        other => other,
    }
}

fn note_as_retry(settlement: Settlement) -> Settlement {
    match settlement {
        Settlement::Note { id, error } => {
            Settlement::Retry { id, due_in: Duration::ZERO, counted: false, error, outstanding: None }
        }
        other => other,
    }
}

fn with_bodies(rows: Vec<Row>) -> Vec<Row> {
    rows.into_iter().map(|row| Row { body: Body::Bytes(Bytes::from_static(b"1")), ..row }).collect()
}

/// Granted to anybody, and lost at once.
struct Granted;

#[async_trait]
impl Held for Granted {
    async fn lost(&mut self) -> String {
        "lost".to_owned()
    }

    async fn release(self: Box<Self>) {}
}

/// Held for ever.
struct Stuck(Option<Box<dyn Held>>);

#[async_trait]
impl Held for Stuck {
    async fn lost(&mut self) -> String {
        std::future::pending().await
    }

    async fn release(mut self: Box<Self>) {
        std::mem::forget(self.0.take());
    }
}

fn stuck(held: MaybeHeld) -> MaybeHeld {
    held.map(|held| Box::new(Stuck(Some(held))) as _)
}
