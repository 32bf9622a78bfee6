//! Goal: the layer and the proxy answer as the draft of the IETF, Stripe and others' tests expect, on every store.
//!
//! There is one list of cases for both. What only one of the two has is apart: a store behind a bad line, which is Rust
//! (`troubled`); callers by a function, for which a file has no words (`of_the_layer`); what passes through a proxy
//! (`tests/proxy`).

mod cases;
pub mod front;
mod of_the_layer;
mod service;
mod set;
mod troubled;

use front::Place;

use crate::program::Keeps;
use crate::redis_server::Server;
use crate::requests::stores::{run, shared_database};

fn postgres() -> Place {
    Place::Proxy(Keeps::Postgres(shared_database().url.clone()))
}

fn redis() -> Place {
    Place::Proxy(Keeps::Redis(Server::shared().url("")))
}

/// All cases, on the layer and the proxy, on each of the stores.
macro_rules! everywhere {
    ($($case:ident),+ $(,)?) => {
        mod layer {
            use super::{Place, cases};
            use crate::requests::stores::{on_embedded, on_postgres, on_redis};

            mod embedded {
                $(#[test] fn $case() { super::on_embedded(|store| super::cases::$case(super::Place::Layer(store))); })+
            }
            mod redis {
                $(#[test] fn $case() { super::on_redis(|store| super::cases::$case(super::Place::Layer(store))); })+
            }
            mod postgres {
                $(#[test] fn $case() { super::on_postgres(|store| super::cases::$case(super::Place::Layer(store))); })+
            }
        }
        mod proxy {
            use super::{Keeps, Place, cases, postgres as on_postgres, redis as on_redis, run};

            mod embedded {
                $(#[test] fn $case() {
                    super::run(super::cases::$case(super::Place::Proxy(super::Keeps::Embedded)));
                })+
            }
            mod redis {
                $(#[test] fn $case() { super::run(super::cases::$case(super::on_redis())); })+
            }
            mod postgres {
                $(#[test] fn $case() { super::run(super::cases::$case(super::on_postgres())); })+
            }
        }
    };
}

everywhere!(
    safe_methods_pass,
    requests_without_a_key_pass_unless_it_is_required,
    what_is_no_key_is_refused,
    key_is_the_same_with_quotes_and_without,
    answer_is_given_again,
    binary_and_empty_answers_are_given_again,
    refusal_by_the_service_is_remembered,
    failure_of_the_service_is_not_remembered,
    refusal_that_asks_to_come_again_is_not_remembered,
    failure_of_the_service_is_in_doubt_where_nothing_may_run_twice,
    failure_that_is_listed_releases_where_nothing_may_run_twice,
    refusal_that_is_listed_is_not_remembered,
    other_request_under_a_key_is_refused,
    request_that_means_the_same_is_the_same,
    request_in_progress_is_a_conflict,
    other_request_is_told_before_a_conflict,
    request_that_waits_gets_the_first_answer,
    keys_are_their_callers_own,
    keys_are_everybodys_where_that_is_chosen,
    callers_must_say_who_they_are_where_that_is_chosen,
    other_header_carries_the_key,
    chosen_headers_are_given_again,
    keys_are_those_of_one_resource,
    keys_are_those_of_one_scope,
    all_values_of_a_callers_header_count,
    hundred_at_once_are_carried_out_once,
    thousand_keys_ten_times_each_are_carried_out_once,
    client_that_goes_away_stops_nothing,
    panic_of_the_service_is_passed_on_and_releases,
    request_that_is_too_large_is_refused,
    answer_that_is_too_large_is_given_once,
    answer_with_trailers_is_given_once,
    answer_that_breaks_off_is_in_doubt,
    what_is_at_work_is_bounded_also_when_its_client_is_gone,
    bodies_are_bounded_together,
    answers_count_among_the_bodies,
    stream_arrives_bit_by_bit,
    what_is_over_is_carried_out_again,
    long_work_keeps_its_lease,
    service_is_told_its_reservation,
);
