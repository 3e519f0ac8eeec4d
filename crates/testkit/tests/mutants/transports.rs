//! Wrong transports, each with the case that must catch it.

use std::sync::Arc;

use posthaste_core::{Body, Class, Failure, Message, RouteKey, Row, RowId};
use posthaste_testkit::suite::transport::check;

use crate::{
    memory::Memory,
    run,
    twisted_transport::{Twist, Twisted},
};

/// The case passes on the right transport and fails on the twisted one.
fn caught(twist: Twist, case: &str) {
    assert_eq!(run(check(Arc::new(Memory), case)), Ok(()), "on the right transport");
    let verdict = run(check(Arc::new(Twisted { right: Memory, twist }), case));
    assert!(verdict.as_ref().is_err_and(|text| !text.starts_with("teardown")), "not caught: {verdict:?}");
}

macro_rules! mutants {
    ($($name:ident: $case:ident, { $($field:ident: $value:expr),* $(,)? };)*) => { $(
        #[test]
        fn $name() {
            caught(Twist { $($field: $value,)* ..Twist::default() }, stringify!($case));
        }
    )* };
}

mutants! {
    confirms_what_it_dropped: port_p1_one_answer_a_message, { message: |n, message| (n != 3).then_some(message) };
    drops_the_last_of_a_large_batch: port_p_the_largest_batch_is_taken, { message: |n, message| (n < 49).then_some(message) };
    confirms_before_it_sends: port_p2_what_is_confirmed_has_arrived, { message: |n, message| (n > 0).then_some(message) };
    answers_in_reverse: port_p1_a_refused_message_answers_in_its_own_place, {
        answers: |mut answers| { answers.reverse(); answers }
    };
    gives_one_answer_for_all: port_p1_one_answer_a_message, { answers: |mut answers| { answers.truncate(1); answers } };
    fails_all_for_one: port_p1_a_refused_message_answers_in_its_own_place, {
        answers: |answers| match answers.iter().find(|answer| answer.is_err()) {
            Some(failed) => vec![failed.clone(); answers.len()],
            None => answers,
        }
    };
    takes_a_refusal_for_an_outage: port_p1_a_refused_message_answers_in_its_own_place, {
        answers: |answers| answers.into_iter().map(|answer| answer.map_err(|_| Failure::lost("lost"))).collect()
    };
    answers_nothing_to_concurrent_calls: port_p8_concurrent_batches_are_answered_each_on_its_own, { one_at_a_time: true };
    takes_an_outage_for_a_refusal: port_p9_an_unreachable_target_is_a_transient_failure, {
        answers: |answers| answers.into_iter().map(|answer| answer.map_err(refusal)).collect()
    };
    confirms_to_nowhere: port_p9_an_unreachable_target_is_a_transient_failure, {
        answers: |answers| vec![Ok(()); answers.len()]
    };
    cuts_what_is_too_large: port_p6_a_body_over_the_limit_is_a_permanent_failure, { message: cut };
    truncates_bodies: port_p7_a_body_of_five_megabytes_survives, { message: cut };
    sends_bodies_as_text: port_p7_bodies_survive_byte_for_byte, { message: as_text };
    reformats_json: port_p7_report_069_json_is_never_reformatted, { message: trimmed };
    takes_null_for_empty: report_076_null_and_empty_are_two_things, { message: null_is_empty };
    takes_empty_for_null: report_076_null_and_empty_are_two_things, { message: empty_is_null };
    sends_a_new_id_each_time: report_132_the_same_message_again_is_identical, { message: new_id };
    sends_another_time_each_time: report_132_the_same_message_again_is_identical, {
        message: |n, message| with_row(message, |row| {
            row.created_at = posthaste_core::Timestamp::from_micros(n as i64 * 1_000_000);
        })
    };
    drops_headers: port_p7_every_attribute_survives, { message: |_, message| with_row(message, |row| row.headers.clear()) };
    drops_the_tenant: port_p7_every_attribute_survives, { message: |_, message| with_row(message, |row| row.tenant = None) };
    makes_up_a_key: port_p7_what_is_absent_stays_absent, {
        message: |_, message| with_row(message, |row| row.key = row.key.take().or(Some(String::new())))
    };
    decodes_keys: port_p7_key_and_tenant_survive_character_by_character, {
        message: |_, message| with_row(message, |row| row.key = row.key.as_ref().map(|key| key.replace("%25", "%")))
    };
    keeps_header_values_to_ascii: port_p7_header_values_survive_character_by_character, {
        message: |_, message| with_row(message, |row| {
            row.headers.values_mut().for_each(|value| value.retain(|c| c.is_ascii()));
        })
    };
    cuts_keys: port_p7_the_longest_fields_survive, {
        message: |_, message| with_row(message, |row| row.key.as_mut().into_iter().for_each(|key| key.truncate(255)))
    };
    drops_the_charset: port_p7_a_content_type_with_parameters_survives, {
        message: |_, message| with_row(message, |row| row.content_type = "text/plain".to_owned())
    };
    ignores_the_payload: port_p7_a_payload_goes_in_place_of_the_body, {
        message: |_, message| Some(Message { payload: None, ..message })
    };
    probes_by_sending: port_h1_a_probe_sends_nothing, { probe_sends: true };
    probes_nothing: port_h1_the_probe_of_a_dead_target_fails, { probe: |_| Ok(()) };
    probes_in_vain: port_h1_a_probe_of_a_live_target_succeeds, {
        probe: |_| Err(Failure::new(Class::Transient, "down"))
    };
}

fn with_row(message: Message, change: impl FnOnce(&mut Row)) -> Option<Message> {
    let mut row = (*message.row).clone();
    change(&mut row);
    Some(Message { row: row.into(), ..message })
}

fn with_body(message: Message, change: impl FnOnce(Body) -> Body) -> Option<Message> {
    with_row(message, |row| row.body = change(std::mem::replace(&mut row.body, Body::Null)))
}

fn refusal(_: Failure) -> Failure {
    Failure::new(Class::Permanent, "refused")
}

fn cut(_: usize, message: Message) -> Option<Message> {
    with_body(message, |body| match body {
        Body::Bytes(bytes) => Body::Bytes(bytes.slice(..bytes.len().min(65_536))),
        other => other,
    })
}

fn as_text(_: usize, message: Message) -> Option<Message> {
    with_body(message, |body| match body {
        Body::Bytes(bytes) => Body::Bytes(String::from_utf8_lossy(&bytes).into_owned().into()),
        other => other,
    })
}

fn trimmed(_: usize, message: Message) -> Option<Message> {
    with_body(message, |body| match body {
        Body::Bytes(bytes) => Body::Bytes(bytes.trim_ascii().to_vec().into()),
        other => other,
    })
}

fn null_is_empty(_: usize, message: Message) -> Option<Message> {
    with_body(message, |body| if body == Body::Null { Body::Bytes(bytes::Bytes::new()) } else { body })
}

fn empty_is_null(_: usize, message: Message) -> Option<Message> {
    with_body(message, |body| if body.is_empty() { Body::Null } else { body })
}

fn new_id(_: usize, message: Message) -> Option<Message> {
    let id = RowId::generate().message_id(&RouteKey::single());
    Some(Message { id, ..message })
}
