//! Goal: values are right, and a partition's series end with its task.

use super::*;
use crate::dedup::{Reason, Verdict};
use crate::observe::Pace;
use crate::record::TopicPartition;
use std::time::Duration;

mod documented;

fn set_all(lane: &LaneMetrics, task: &TaskMetrics) {
    lane.processing(Duration::from_millis(2));
    lane.commit(Duration::from_millis(30));
    lane.transaction(TransactionResult::Committed);
    lane.rebalance();
    lane.dead_letters(3);
    lane.epoch_changes(0);
    lane.takeover("released");
    task.records(Verdict::Duplicate, Reason::Seen, 5);
    task.keyless(6);
    task.keyless(0);
    task.lag(12, 3.5);
    task.lag_measured_at(4_000);
    task.restore_remaining(8);
    task.restored(40);
    task.restoring(&pace(200, 800));
    task.walked(100, &pace(100, 300));
    task.removed(7);
    task.state(100, 4096);
    task.stream_time(1_500);
    task.committed_at(2_250);
    task.clock_behind(120_500);
}

/// A pace after one second, with this much done and remaining.
fn pace(done: u64, remaining: u64) -> Pace {
    let mut pace = Pace::begin(Duration::ZERO, done + remaining);
    pace.at(Duration::from_secs(1), done, remaining);
    pace
}

/// The value of the series with exactly this name and these labels, if there is one.
fn value(metrics: &Metrics, series: &str) -> Option<f64> {
    let text = metrics.render();
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn lanes_of_a_gate_add_up_and_leave_nothing_held_behind() {
    let metrics = Metrics::new();
    let (mut one, mut two) = (metrics.gate("payments"), metrics.gate("payments"));
    one.answered(Duration::from_millis(2), [5, 2, 1]);
    two.answered(Duration::from_millis(4), [1, 0, 3]);
    two.unasked(7);
    one.held(true);
    two.held(true);
    let of = |name: &str| value(&metrics, &format!("{name}{{topology=\"payments\"}}"));
    let answers = |answer: &str| {
        value(&metrics, &format!("ratchet_gate_answers_total{{answer=\"{answer}\",topology=\"payments\"}}"))
    };
    assert_eq!(["first", "own", "elsewhere"].map(answers), [Some(6.0), Some(2.0), Some(4.0)]);
    assert_eq!(of("ratchet_gate_duration_seconds_sum"), Some(0.006));
    assert_eq!((of("ratchet_gate_unasked_total"), of("ratchet_gate_held")), (Some(7.0), Some(2.0)));
    one.held(false);
    drop(two);
    assert_eq!(of("ratchet_gate_held"), Some(0.0));
}

#[test]
fn values_are_in_base_units_under_their_labels() {
    let metrics = Metrics::new();
    let (lane, task) = (metrics.lane("payments"), metrics.task("payments", &TopicPartition::new("in", 2)));
    set_all(&lane, &task);
    task.records(Verdict::Duplicate, Reason::Seen, 2);
    metrics.refused_topics("payments", 3);
    metrics.refused_topics("payments", 2);
    let partition = r#"{partition="2",topic="in",topology="payments"}"#;
    let of = |name: &str, labels: &str| value(&metrics, &format!("{name}{labels}"));
    let records = r#"{reason="seen",topic="in",topology="payments",verdict="duplicate"}"#;
    assert_eq!(of("ratchet_records_total", records), Some(7.0));
    assert_eq!(of("ratchet_keyless_records_total", r#"{topic="in",topology="payments"}"#), Some(6.0));
    assert_eq!(of("ratchet_lag_records", partition), Some(12.0));
    assert_eq!(of("ratchet_lag_seconds", partition), Some(3.5));
    assert_eq!(of("ratchet_clock_behind_seconds", partition), Some(120.5));
    metrics.panicked();
    assert_eq!(of("ratchet_panics_total", ""), Some(1.0));
    assert_eq!(of("ratchet_restored_records_total", partition), Some(40.0));
    assert_eq!(of("ratchet_restore_remaining_records", partition), Some(800.0));
    assert_eq!(of("ratchet_restore_remaining_seconds", partition), Some(4.0));
    assert_eq!(of("ratchet_sweep_walked_entries_total", partition), Some(100.0));
    assert_eq!(of("ratchet_sweep_removed_entries_total", partition), Some(7.0));
    assert_eq!(of("ratchet_sweep_remaining_entries", partition), Some(300.0));
    assert_eq!(of("ratchet_sweep_remaining_seconds", partition), Some(3.0));
    assert_eq!(of("ratchet_state_bytes", partition), Some(4096.0));
    assert_eq!(of("ratchet_stream_time_timestamp_seconds", partition), Some(1.5));
    assert_eq!(of("ratchet_last_commit_timestamp_seconds", partition), Some(2.25));
    assert_eq!(of("ratchet_commit_duration_seconds_sum", r#"{topology="payments"}"#), Some(0.03));
    assert_eq!(of("ratchet_dead_letters_total", r#"{topology="payments"}"#), Some(3.0));
    assert_eq!(of("ratchet_refused_topics", r#"{topology="payments"}"#), Some(2.0));
    assert_eq!(of("ratchet_transactions_total", r#"{result="committed",topology="payments"}"#), Some(1.0));
    assert_eq!(of("ratchet_transactions_total", r#"{result="unknown",topology="payments"}"#), Some(0.0));
    assert_eq!(of("ratchet_takeovers_total", r#"{kind="released",topology="payments"}"#), Some(1.0));
}

#[test]
fn calls_are_counted_by_outcome_and_class() {
    let metrics = Metrics::new();
    let of_lanes = [(); 2].map(|()| metrics.calls("payments", "http", (&["done", "again"], &["settled", "unknown"])));
    let of = |name: &str, labels: &str| value(&metrics, &format!("{name}{{{labels}topology=\"payments\"}}"));
    let outcome = |outcome: &str| of("ratchet_effects_total", &format!("outcome=\"{outcome}\",sink=\"http\","));
    let class = |class: &str| of("ratchet_effect_attempts_total", &format!("class=\"{class}\",sink=\"http\","));
    assert_eq!((outcome("unavailable"), class("again")), (Some(0.0), Some(0.0)), "what was never met is shown as 0");
    let [mut first, mut second] = of_lanes;
    let mut settled = Settled { done: 5, rejected: 4, conflict: 3, in_doubt: 2, unavailable: 1, duplicate_result: 6 };
    settled += settled;
    first.settled(settled);
    second.settled(Settled { done: 1, in_doubt: 1, ..Settled::default() });
    let all = ["done", "rejected", "conflict", "in_doubt", "unavailable", "duplicate_result"].map(outcome);
    assert_eq!(all, [11.0, 8.0, 6.0, 5.0, 2.0, 12.0].map(Some));
    assert_eq!(of("ratchet_effects_in_doubt", ""), Some(5.0));
    first.attempt(0, Some(Duration::from_millis(250)));
    first.attempt(1, None);
    second.attempt(1, Some(Duration::from_millis(500)));
    assert_eq!((class("done"), class("again")), (Some(1.0), Some(2.0)));
    assert_eq!(of("ratchet_effect_duration_seconds_count", ""), Some(2.0), "one of them was never on the wire");
    assert_eq!(of("ratchet_effect_duration_seconds_sum", ""), Some(0.75));
    for (count, is_held) in [(3, true), (2, true)] {
        first.in_flight(count);
        first.held(is_held);
    }
    second.in_flight(4);
    second.held(true);
    assert_eq!((of("ratchet_effects_in_flight", ""), of("ratchet_sink_held", "")), (Some(6.0), Some(2.0)));
    first.blocked(true);
    assert_eq!(of("ratchet_handlers_blocked", ""), Some(1.0));
    first.command(1);
    second.command(1);
    first.commands_waiting(2);
    second.commands_waiting(1);
    let commands = ["settled", "unknown"].map(|word| of("ratchet_commands_total", &format!("outcome=\"{word}\",")));
    assert_eq!(commands, [Some(0.0), Some(2.0)]);
    assert_eq!(of("ratchet_commands_waiting", ""), Some(3.0));
    drop(first);
    assert_eq!((of("ratchet_effects_in_flight", ""), of("ratchet_sink_held", "")), (Some(4.0), Some(1.0)));
}

#[test]
fn unknown_values_are_not_shown_as_zero() {
    let metrics = Metrics::new();
    let task = metrics.task("payments", &TopicPartition::new("in", 0));
    task.stream_time(-1);
    let text = metrics.render();
    assert!(!text.contains("ratchet_stream_time") && !text.contains("ratchet_lag_records{"), "{text}");
}

#[test]
fn partitions_series_end_with_its_last_handle() {
    let metrics = Metrics::new();
    let partition = TopicPartition::new("in", 7);
    let first = metrics.task("payments", &partition);
    first.lag(1, 1.0);
    first.restored(9);
    // the partition moves to another lane of this process, whose handle is created before the old one is dropped
    let second = metrics.task("payments", &partition);
    second.lag(2, 2.0);
    drop(first);
    assert!(metrics.render().contains(r#"ratchet_lag_records{partition="7",topic="in",topology="payments"} 2"#));
    second.records(Verdict::Forwarded, Reason::First, 1);
    drop(second);
    let text = metrics.render();
    assert!(!text.contains(r#"partition="7""#), "{text}");
    assert!(text.contains("ratchet_records_total{"), "series without a partition stay\n{text}");
}

#[test]
fn tasks_are_counted_by_phase() {
    let metrics = Metrics::new();
    let _lane = metrics.lane("payments");
    let tasks: Vec<_> = (0..3).map(|number| metrics.task("payments", &TopicPartition::new("in", number))).collect();
    let of = |state: &str| value(&metrics, &format!(r#"ratchet_tasks{{state="{state}",topology="payments"}}"#));
    assert_eq!(of("settling"), Some(3.0));
    tasks[0].phase(Phase::Restoring);
    tasks[1].phase(Phase::Running);
    tasks[1].phase(Phase::Running);
    assert_eq!((of("settling"), of("restoring"), of("running")), (Some(1.0), Some(1.0), Some(1.0)));
    drop(tasks);
    for phase in Phase::ALL {
        assert_eq!(of(phase.as_str()), Some(0.0), "{}", phase.as_str());
    }
}

#[test]
fn estimate_is_shown_once_it_is_known() {
    let metrics = Metrics::new();
    let task = metrics.task("payments", &TopicPartition::new("in", 0));
    let series = r#"ratchet_restore_remaining_seconds{partition="0",topic="in",topology="payments"}"#;
    let mut pace = Pace::begin(Duration::ZERO, 1_000);
    task.restoring(&pace);
    assert_eq!(value(&metrics, series), None);
    pace.at(Duration::from_secs(1), 100, 900);
    task.restoring(&pace);
    assert_eq!(value(&metrics, series), Some(9.0));
    pace.at(Duration::from_secs(60), 100, 900);
    task.restoring(&pace);
    assert_eq!(value(&metrics, series), Some(f64::INFINITY), "it stands still");
    task.restore_remaining(0);
    assert_eq!(value(&metrics, series), Some(0.0));
}

#[test]
fn restore_is_listed_while_it_runs() {
    let metrics = Metrics::new();
    let partition = |number| TopicPartition::new("in", number);
    let tasks: Vec<_> = (0..3).map(|number| metrics.task("payments", &partition(number))).collect();
    for task in &tasks {
        task.phase(Phase::Restoring);
        task.restoring(&pace(200, 800));
    }
    let of = |number| listed(Work::Restore, partition(number), 200, 800);
    assert_eq!(metrics.long_work(), [of(0), of(1), of(2)]);
    tasks[0].phase(Phase::Running);
    tasks[1].phase(Phase::Settling);
    assert_eq!(metrics.long_work(), [of(2)], "it has ended, or was set back");
    drop(tasks);
    assert_eq!(metrics.long_work(), []);
}

#[test]
fn sweep_is_listed_while_it_runs() {
    let metrics = Metrics::new();
    let partition = |number| TopicPartition::new("in", number);
    let tasks: Vec<_> = (0..3).map(|number| metrics.task("payments", &partition(number))).collect();
    for task in &tasks {
        task.phase(Phase::Running);
        task.walked(100, &pace(100, 300));
    }
    let of = |number| listed(Work::Sweep, partition(number), 100, 300);
    assert_eq!(metrics.long_work(), [of(0), of(1), of(2)]);
    tasks[0].walked(300, &pace(400, 0));
    tasks[1].phase(Phase::Settling);
    assert_eq!(metrics.long_work(), [of(2)], "it has ended, or its task was set back");
    drop(tasks);
    assert_eq!(metrics.long_work(), []);
}

fn listed(work: Work, partition: TopicPartition, done: u64, remaining: u64) -> LongWork {
    LongWork { work, topology: "payments".to_owned(), partition, done, remaining }
}

#[test]
fn deleted_topics_counts_are_removed_with_its_last_task() {
    let metrics = Metrics::new();
    let counted = |topic: &str| metrics.render().contains(&format!("topic=\"{topic}\""));
    let task = metrics.task("payments", &TopicPartition::new("in", 0));
    let other = metrics.task("payments", &TopicPartition::new("other", 0));
    for task in [&task, &other] {
        task.records(Verdict::Forwarded, Reason::First, 1);
    }
    metrics.topic_gone("payments", "in");
    task.records(Verdict::Duplicate, Reason::Seen, 1);
    assert!(counted("in"), "its task still exists");
    drop(task);
    assert!(!counted("in") && counted("other"), "{}", metrics.render());
    // A topic that comes back is counted from 0, and its counts stay.
    let task = metrics.task("payments", &TopicPartition::new("in", 0));
    task.records(Verdict::Forwarded, Reason::First, 1);
    metrics.topic_gone("payments", "in");
    let again = metrics.task("payments", &TopicPartition::new("in", 0));
    drop((task, again));
    assert!(counted("in"), "it came back before its first task was gone");
    metrics.topic_gone("payments", "in");
    assert!(!counted("in"), "no task reads it");
}

#[test]
fn number_of_series_is_bounded_by_partitions_and_reasons() {
    const PARTITIONS: i32 = 50;
    let metrics = Metrics::new();
    let lanes = [(); 8].map(|()| metrics.lane("payments"));
    let tasks: Vec<_> =
        (0..PARTITIONS).map(|partition| metrics.task("payments", &TopicPartition::new("in", partition))).collect();
    for round in 0..20 {
        for task in &tasks {
            set_all(&lanes[round % lanes.len()], task);
            for (verdict, reason) in Verdict::ALL.iter().flat_map(|v| Reason::ALL.iter().map(move |r| (*v, *r))) {
                task.records(verdict, reason, 1);
            }
        }
    }
    let series = metrics.render().lines().filter(|line| !line.starts_with('#')).count();
    let of_records = Verdict::ALL.len() * Reason::ALL.len();
    let of_partitions = 14 * PARTITIONS as usize;
    assert!((of_records + of_partitions..of_records + of_partitions + 100).contains(&series), "{series}");
}

#[test]
fn requests_at_work_and_connections_are_counted_until_they_end() {
    let metrics = Metrics::new();
    let (route, store) = (metrics.route("/charges"), metrics.store());
    let (request, connection) = (route.begin(), metrics.connection());
    let of = |series: &str| value(&metrics, series);
    assert_eq!(of(r#"ratchet_http_requests_at_work{route="/charges"}"#), Some(1.0));
    assert_eq!(of("ratchet_http_connections"), Some(1.0));
    drop((request, connection));
    assert_eq!(of(r#"ratchet_http_requests_at_work{route="/charges"}"#), Some(0.0));
    assert_eq!(of("ratchet_http_connections"), Some(0.0));
    store.call_ended("reserve", Duration::from_millis(1), true);
    store.call_ended("reserve", Duration::from_millis(1), false);
    store.removed(5);
    let bound = metrics.bound("at_work_max", 8);
    bound.used(3);
    bound.refused(2);
    for (what, value) in [("max", 8.0), ("used", 3.0), ("refusals_total", 2.0)] {
        assert_eq!(of(&format!(r#"ratchet_http_bound_{what}{{bound="at_work_max"}}"#)), Some(value));
    }
    assert_eq!(of(r#"ratchet_http_store_duration_seconds_count{operation="reserve"}"#), Some(2.0));
    assert_eq!(of(r#"ratchet_http_store_errors_total{operation="reserve"}"#), Some(1.0));
    assert_eq!(of("ratchet_http_removed_entries_total"), Some(5.0));
}
