//! Goal: the layer answers as the draft of the IETF, Stripe and others' tests expect, on every store.

mod cases;
pub mod front;
mod service;
mod troubled;

/// All cases, on one store.
macro_rules! on_stores {
    ($($case:ident),+ $(,)?) => {
        mod embedded {
            $(#[test] fn $case() { crate::stores::on_embedded(|store| super::cases::$case(store)); })+
        }
        mod redis {
            $(#[test] fn $case() { crate::stores::on_redis(|store| super::cases::$case(store)); })+
        }
        mod postgres {
            $(#[test] fn $case() { crate::stores::on_postgres(|store| super::cases::$case(store)); })+
        }
    };
}

on_stores!(
    safe_methods_pass,
    requests_without_a_key_pass_unless_it_is_required,
    what_is_no_key_is_refused,
    key_is_the_same_with_quotes_and_without,
    answer_is_given_again,
    binary_and_empty_answers_are_given_again,
    refusal_by_the_service_is_remembered,
    failure_of_the_service_is_not_remembered,
    other_request_under_a_key_is_refused,
    request_that_means_the_same_is_the_same,
    request_in_progress_is_a_conflict,
    other_request_is_told_before_a_conflict,
    request_that_waits_gets_the_first_answer,
    keys_are_their_callers_own,
    keys_are_those_of_one_resource,
    hundred_at_once_are_carried_out_once,
    thousand_keys_ten_times_each_are_carried_out_once,
    client_that_goes_away_stops_nothing,
    panic_of_the_service_is_passed_on_and_releases,
    request_that_is_too_large_is_refused,
    answer_that_is_too_large_is_given_once,
    stream_arrives_bit_by_bit,
    what_is_over_is_carried_out_again,
    long_work_keeps_its_lease,
    service_is_told_its_reservation,
);
