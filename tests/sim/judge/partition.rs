//! One input partition: the model follows the changelog's transactions, and what each one wrote is compared with what
//! changes in the model.

use ratchet::dedup::Bounds;

use crate::database::Kind;
use crate::kafka::{Partition, Record};

use super::audit::Explanations;
use super::gated::Gated;
use super::model::{Model, State, Verdict};
use super::output::{self, Letters};
use super::runs::{self, Run};
use super::sunk::{self, Results};
use super::{Case, Ruling, Seen, offsets, text};

/// A record that must be in the output.
pub struct Forward<'a> {
    pub source: &'a Seen,
    /// The producer of its transaction.
    pub producer: Option<i64>,
}

/// Compares a partition with the model.
#[expect(clippy::too_many_lines, reason = "one invariant after the other")]
pub fn check(
    case: &Case<'_>,
    number: i32,
    aside: (&mut Letters, &mut Explanations, &mut Results, &mut Gated),
    ruling: &mut Ruling,
) {
    let (letters, explanations, results, gated) = aside;
    let input = Partition::new(case.rules.input, number);
    let changelog = Partition::new(case.rules.changelog, number);
    for (_, kept) in case.history.changelogs(number) {
        if let (Some(from), Some(first)) = (kept.lost_from, kept.overwritten()) {
            let expected = format!("nothing committed after the loss from {from} on");
            ruling.report(6, &changelog, first, expected, "a record");
        }
    }
    if case.history.changelogs(number).any(|(_, changelog)| changelog.is_cut) {
        // The outcome of the open transaction is recorded nowhere.
        explanations.forgive(number);
        return letters.forgive(number);
    }
    let mut all: Vec<Run<'_>> = Vec::new();
    for (id, kept) in case.history.changelogs(number) {
        let runs = runs::of(kept, &changelog, ruling);
        if let (Some(former), Some(first)) = (all.last(), runs.first()) {
            let expected = format!("to refuse a changelog that is not {}", former.position.token.text());
            ruling.report(6, &changelog, first.at, expected, "a transaction in a changelog that was recreated");
        }
        for run in &runs {
            check_names(case, run, (number, id), ruling);
            check_bounds(case, run, &changelog, ruling);
        }
        all.extend(runs);
    }
    let was_reset = case.history.had_reset();
    let takes_over = |pair: &[Run<'_>]| {
        case.history.retention_ms(&pair[0].position.owner) != case.history.retention_ms(&pair[1].position.owner)
    };
    all.windows(2).filter(|pair| takes_over(pair)).for_each(|_| ruling.see(super::coverage::TWO_RELEASES));
    runs::check_order(&all, &changelog, was_reset, ruling);
    let records = case.committed(&input);
    check_beginning(&all, &records, (&input, was_reset || case.history.starts_latest), ruling);

    let mut model = Model::new(case.rules);
    let mut forwards: Vec<Forward<'_>> = Vec::new();
    let mut done: Vec<(i64, i64)> = Vec::new();
    if let Some(sunk) = case.history.sunk() {
        sunk.check_chain(number, &all, ruling);
    }
    for run in &all {
        let first = forwards.len();
        let processed = &run.position.processed;
        model.retention_ms = case.history.retention_ms(&run.position.owner);
        let is_new = |seen: &&Seen| runs::contains(processed, seen.offset) && !runs::contains(&done, seen.offset);
        for source in records.iter().filter(is_new) {
            let since = source.record.timestamp.unwrap_or(i64::MAX);
            let was_disbelieved = letters.says(number, source.offset, "timestamp_in_future");
            let wall_ms = case.history.wall_ms(case.broker, since);
            model.is_refused = match case.history.sunk().map(|sunk| sunk.kind) {
                None => false,
                // What its inbox has is not refused.
                Some(Kind::Inbox) => {
                    sunk::is_refused(&source.record) && letters.says(number, source.offset, "rejected")
                }
                Some(_) => sunk::is_refused(&source.record),
            };
            // What is too large is so only once it is sent; what a gate has dropped must have come from elsewhere.
            model.is_dropped = case.rules.gated && !letters.says(number, source.offset, "unsendable");
            let verdict = model.apply(source.offset, &source.record, wall_ms, was_disbelieved);
            see(&source.record, verdict, ruling);
            gated.see(case, number, source, verdict);
            match verdict {
                Verdict::Forwarded => forwards.push(Forward { source, producer: run.producer }),
                Verdict::DeadLettered(reason) => {
                    letters.take(number, source, (reason, run.producer), ruling);
                    if is_redo(case, run) {
                        ruling.see(super::coverage::REDO_WITH_LETTERS);
                    }
                }
                Verdict::Duplicate(reason) => {
                    explanations.take(number, source, (("duplicate", reason), run.producer), ruling);
                }
                Verdict::Stale(reason) => explanations.take(number, source, (("stale", reason), run.producer), ruling),
            }
        }
        if let Some(sunk) = case.history.sunk() {
            let survivors: Vec<&Seen> = forwards[first..].iter().map(|forward| forward.source).collect();
            sunk.check_run(number, (run, &survivors), (explanations, results), ruling);
        }
        check_written(case, run, (&mut model, &changelog), ruling);
        done.clone_from(processed);
    }
    explanations.check_replayed(number, &done, ruling);
    if case.rules.gated {
        forwards = gated.check(case, number, forwards);
    }
    if case.history.sunk().is_none() {
        output::check(case, number, &forwards, ruling);
    }
    offsets::check(case, (&input, &records), &all, ruling);
    check_folded(case, &changelog, (&model, all.last()), ruling);
}

/// Whether a transaction was written by another than its owner, from what its database has kept.
fn is_redo(case: &Case<'_>, run: &Run<'_>) -> bool {
    case.history.sunk().is_some() && case.broker.coordinator.producer(&run.position.owner) != run.producer
}

/// Counts situations by record and verdict.
fn see(record: &Record, verdict: Verdict, ruling: &mut Ruling) {
    if record.value.is_none() {
        ruling.see("a record without a value was read");
    }
    match verdict {
        Verdict::Forwarded if !record.headers.is_empty() => ruling.see("a record with headers was forwarded"),
        Verdict::DeadLettered("value_malformed") => ruling.see("an unreadable record was set aside"),
        Verdict::DeadLettered("timestamp_in_future") => ruling.see("a record from the far future was set aside"),
        Verdict::DeadLettered("rejected") => ruling.see(super::coverage::SET_ASIDE_BY_SINK),
        Verdict::DeadLettered("unsendable") => ruling.see("a record that the output rejects was set aside"),
        Verdict::Stale("table_truncated") => ruling.see("a change from before its table's truncate was dropped"),
        Verdict::Stale("snapshot_read") => ruling.see("a snapshot's read lost to a change"),
        Verdict::Duplicate("tombstone_not_owed") => ruling.see("a tombstone without its delete was dropped"),
        _ => {}
    }
}

/// Checks the names in a position record.
fn check_names(case: &Case<'_>, run: &Run<'_>, (number, id): (i32, u128), ruling: &mut Ruling) {
    let changelog = Partition::new(case.rules.changelog, number);
    let Run { at, position, .. } = run;
    if position.scopes.len() > 1 {
        ruling.see(super::coverage::EPOCH_CHANGED);
    }
    if is_redo(case, run) {
        ruling.see(super::coverage::REDO_PLAYED);
    }
    let token = position.token;
    if (token.partition, u128::from_be_bytes(token.changelog_id)) != (number, id) {
        ruling.report(4, &changelog, *at, format!("a token of partition {number}, topic {id:032x}"), token.text());
    }
    let prefix = format!("{}.", case.rules.group);
    if !position.owner.starts_with(&prefix) {
        ruling.report(7, &changelog, *at, format!("an owner's id that begins with {prefix:?}"), position.owner.clone());
    }
    // An id keeps its producer, whatever its epoch.
    if let Some(of) = case.broker.coordinator.producer(&position.owner)
        && run.producer != Some(of)
        // A redo is written under its player's id.
        && case.history.sunk().is_none()
    {
        let expected = format!("{} written by its producer {of}", position.owner);
        ruling.report(7, &changelog, *at, expected, format!("{:?}", run.producer));
    }
    let input = case.broker.topics.get(case.rules.input).map_or(0, |topic| topic.id);
    if (u128::from_be_bytes(position.input_id), position.task_count, position.generation)
        != (input, case.partitions as u32, 1)
    {
        let found = (position.input_id, position.task_count, position.generation);
        ruling.report(
            4,
            &changelog,
            *at,
            format!("input {input:032x}, as many tasks as partitions"),
            format!("{found:?}"),
        );
    }
}

/// No more history is kept than the bounds allow.
fn check_bounds(case: &Case<'_>, run: &Run<'_>, changelog: &Partition, ruling: &mut Ruling) {
    let Bounds { ranges_max, scopes_max, segments_max } = case.history.bounds;
    let position = &run.position;
    let ranges = position.processed.iter().filter(|(from, to)| from < to).count();
    let segments = position.scopes.iter().map(|scope| scope.segments.len()).sum();
    let kept = [
        ("ranges", ranges, ranges_max),
        ("scopes", position.scopes.len(), scopes_max),
        ("segments", segments, segments_max),
    ];
    for (what, found, most) in kept.into_iter().filter(|(_, found, most)| found > most) {
        ruling.report(4, changelog, run.at, format!("at most {most} {what}"), format!("{found}"));
    }
}

/// The first record of an input partition that takes the scopes, or their segments, beyond the bounds.
pub fn meets_bound(case: &Case<'_>, number: i32) -> Option<i64> {
    let Bounds { scopes_max, segments_max, .. } = case.history.bounds;
    let mut model = Model::new(case.rules);
    let wall_ms = case.history.wall_ms(case.broker, i64::MAX);
    let records = case.committed(&Partition::new(case.rules.input, number));
    let met = records.iter().find(|seen| {
        model.apply(seen.offset, &seen.record, wall_ms, false);
        let (scopes, segments) = model.scopes_tried();
        scopes > scopes_max || segments > segments_max
    });
    met.map(|seen| seen.offset)
}

/// Nothing at the start of the input was left out.
fn check_beginning(runs: &[Run<'_>], records: &[Seen], (input, may_skip): (&Partition, bool), ruling: &mut Ruling) {
    let from = runs.first().and_then(|run| run.position.processed.first()).map(|range| range.0);
    if let (Some(from), Some(first)) = (from, records.first())
        && from > first.offset
        && !may_skip
    {
        ruling.report(
            3,
            input,
            first.offset,
            "the input read from its first record on",
            format!("read from {from} on"),
        );
    }
}

/// A transaction wrote exactly what its range of the input changes.
fn check_written(
    case: &Case<'_>,
    run: &Run<'_>,
    (model, changelog): (&mut Model<'_>, &Partition),
    ruling: &mut Ruling,
) {
    let mut expected = model.take_changed();
    for (offset, record) in &run.written {
        let key = record.key.as_deref().unwrap_or_default();
        match &record.value {
            Some(value) => match expected.remove(key) {
                Some(meant) if meant[..] == value[..] => {}
                Some(meant) => ruling.report(4, changelog, *offset, format!("{meant:02x?}"), format!("{value:02x?}")),
                None => {
                    let found = format!("{} -> {value:02x?}", text(Some(key)));
                    ruling.report(4, changelog, *offset, "only what the transaction's range changes, once", found);
                }
            },
            None if model.sweep(key) => {}
            // A store that missed the first tombstone sweeps again.
            None if case.history.tombstones_go && !model.knows(key) => {}
            None => {
                let found = format!("a tombstone for {}", text(Some(key)));
                ruling.report(4, changelog, *offset, "tombstones for what has expired only", found);
            }
        }
    }
    for (key, value) in expected {
        let expected = format!("{} -> {value:02x?} before the position record", text(Some(&key)));
        ruling.report(4, changelog, run.at, expected, "nothing");
    }
    let position = &run.position;
    let meant = (model.stream_time, model.horizon, model.truncates);
    let found = (position.stream_time, position.horizon, position.truncates);
    if meant != found {
        ruling.report(
            4,
            changelog,
            run.at,
            format!("stream time, horizon and truncates {meant:?}"),
            format!("{found:?}"),
        );
    }
}

/// The current changelog, folded, is the model's state with the last position record.
fn check_folded(
    case: &Case<'_>,
    changelog: &Partition,
    (model, last): (&Model<'_>, Option<&Run<'_>>),
    ruling: &mut Ruling,
) {
    if case.history.had_changelog_loss() {
        return;
    }
    let mut folded = State::new();
    for Seen { record, .. } in case.committed(changelog) {
        let key = record.key.as_deref().unwrap_or_default().to_vec();
        match record.value.as_deref() {
            Some(value) => drop(folded.insert(key, value.to_vec())),
            None => drop(folded.remove(&key)),
        }
    }
    let position = folded.remove(super::bytes::POSITION_KEY);
    let token = position.and_then(|bytes| runs::decoded(move || super::bytes::position(&bytes).token));
    let meant = last.map(|run| run.position.token);
    if token != meant {
        let text = |token: Option<super::bytes::Token>| token.map_or("none".to_owned(), |token| token.text());
        let expected = format!("the last transaction's position record, {}", text(meant));
        ruling.report(6, changelog, None, expected, text(token));
    }
    let state = model.state();
    if let Some((key, meant, found)) = first_difference(&state, &folded) {
        let expected = format!("{} -> {meant:02x?} of {} entries", text(Some(key)), state.len());
        ruling.report(6, changelog, None, expected, format!("{found:02x?} of {}", folded.len()));
    }
}

/// A key, and its values in two states.
type Difference<'a> = (&'a [u8], Option<&'a Vec<u8>>, Option<&'a Vec<u8>>);

/// The first key at which two states differ.
pub fn first_difference<'a>(one: &'a State, other: &'a State) -> Option<Difference<'a>> {
    let differs = |key: &&'a Vec<u8>| one.get(*key) != other.get(*key);
    let key = one.keys().chain(other.keys()).find(differs)?;
    Some((key, one.get(key), other.get(key)))
}
