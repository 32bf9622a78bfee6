//! Goal: what a topology's records cause in its sink is what its tests compare, and its answers are obeyed.

use std::path::Path;

use crate::rehearsal::{Difference, Outcome, run_case};
use crate::topology::load;
use crate::yaml_testing::Fake;

const BEGIN: &str = "name: t\ninput: {topics: [in]}\nidentity: value.id\nversion: {of: value.v, as: integer}\npartitioned_by_identity: true\n\
                     sink: {postgres: {url: 'postgres://db/shop', dedup: inbox, MORE}}\ntests: [{name: a, TEST}]\n";
const STATEMENTS: &str = "statements: [{sql: 'select $1, $2', with: [value.id, value.row]}]";
const ROWS: &str = "table: {name: t, key: [id]}";

/// The outcome of a test with these lines.
fn outcome(more: &str, test: &str) -> Outcome {
    let text = BEGIN.replace("MORE", more).replace("TEST", test);
    let loaded = load(Path::new("t.yaml"), &Fake::default().with_file("t.yaml", &text));
    let topology = loaded.unwrap_or_else(|diagnostics| panic!("{}", diagnostics.render(false))).topology;
    run_case(&topology, Path::new("."), &topology.tests[0]).unwrap()
}

#[track_caller]
fn passes(more: &str, test: &str) {
    let Outcome { differences, .. } = outcome(more, test);
    let words: Vec<_> = differences.iter().map(ToString::to_string).collect();
    assert!(words.is_empty(), "{}", words.join("\n"));
}

#[track_caller]
fn fails(more: &str, test: &str) {
    let Outcome { differences, .. } = outcome(more, test);
    assert!(matches!(differences[..], [Difference::Calls { .. }]), "{differences:?}");
}

const ONE: &str = "given: [{value: {id: 1, v: 1, row: {a: 1.50, b: [x]}}}], expect: [forwarded]";

#[test]
fn parameters_are_compared_as_text_and_objects_by_what_they_mean() {
    passes(STATEMENTS, &format!("{ONE}, rows: [{{with: [1, {{b: [x], a: 1.5}}]}}]"));
    passes(
        STATEMENTS,
        &format!("{ONE}, rows: [{{record: 0, statement: 1, does: sql, with: ['1', {{a: 1.50, b: [x]}}]}}]"),
    );
    for rows in [
        "[]",
        "[{with: [1]}]",
        "[{with: [1.0, {a: 1.5, b: [x]}]}]",
        "[{with: [1, {a: 1.5, b: [y]}]}]",
        "[{with: [1, null]}]",
        "[{with: [null, {a: 1.5, b: [x]}]}]",
        "[{statement: 2, with: [1, {a: 1.5, b: [x]}]}]",
        "[{does: upsert, with: [1, {a: 1.5, b: [x]}]}]",
        "[{with: [1, {a: 1.5, b: [x]}]}, {with: [1, {a: 1.5, b: [x]}]}]",
    ] {
        fails(STATEMENTS, &format!("{ONE}, rows: {rows}"));
    }
}

#[test]
fn what_is_dropped_has_no_effect() {
    let twice = "given: [{value: {id: 1, v: 2}}, {value: {id: 1, v: 2}}, {value: {id: 1, v: 1}}], expect: [forwarded, duplicate, stale]";
    passes(ROWS, &format!("{twice}, rows: [{{record: 0, does: upsert, with: [{{id: 1, v: 2}}]}}]"));
    passes(ROWS, "given: [{value: {v: 1}}], expect: [{verdict: invalid, reason: identity_missing}], rows: []");
}

#[test]
fn rejected_record_is_not_remembered_and_one_in_the_inbox_is() {
    let given =
        "given: [{value: {id: 1, v: 2}}, {value: {id: 1, v: 1}}, {value: {id: 2, v: 2}}, {value: {id: 2, v: 2}}]";
    let answers = "answers: [{record: 0, rejected: too much}, {record: 2, in_inbox: true}]";
    let expect = "expect: [{verdict: invalid, reason: rejected}, forwarded, {verdict: duplicate, reason: in_inbox}, \
                  {verdict: duplicate, reason: version_equal}]";
    let entries = "entries: [{identity: [1], version: 1}, {identity: [2], version: 2}]";
    let rows = "rows: [{record: 1, with: [{id: 1, v: 1}]}]";
    passes(ROWS, &format!("{given}, {answers}, {expect}, {entries}, {rows}"));
    let Outcome { records, .. } = outcome(ROWS, &format!("{given}, {answers}, {expect}"));
    let rejection = records[0].as_ref().and_then(|judged| judged.explanation.rejection.clone());
    assert_eq!(rejection.as_deref(), Some("the sink refuses what the record causes: too much"));
}

#[test]
fn on_rejected_decides_what_becomes_of_a_rejected_record() {
    let test = "given: [{value: {id: 1, v: 1}}, {value: {id: 1, v: 2}}], answers: [{record: 0, rejected: no}], \
                expect: [{verdict: invalid, reason: rejected}, forwarded], rows: [{record: 1, with: [{id: 1, v: 2}]}]";
    passes(&format!("{ROWS}, on_rejected: drop"), test);
    // The task stops before it.
    let Outcome { records, .. } = outcome(&format!("{ROWS}, on_rejected: fail"), test);
    assert!(records[0].is_some() && records[1].is_none());
}

#[test]
fn record_without_its_row_is_rejected() {
    let more = "table: {name: t, key: [no]}";
    passes(more, "given: [{value: {id: 1, v: 1}}], expect: [{verdict: invalid, reason: rejected}], rows: []");
}
