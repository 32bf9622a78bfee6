//! Goal: contents are those that a topology writes, and the default action on a conflict suits the topology's
//! destination.

use super::load_text;
use crate::dedup::Action;

/// The action on a conflict, with these lines added to a topology with its own rules.
fn conflict(more: &str) -> Result<Action, String> {
    let text = format!("name: t\ninput: {{topics: [in]}}\nidentity: key\n{more}");
    load_text(&text).map(|loaded| loaded.topology.rules.actions.conflict).map_err(|report| report.render(false))
}

#[test]
fn conflict_is_dropped_forwarded_or_set_aside_by_default() {
    const OUTPUT: &str = "output: {topic: out}\n";
    const URL: &str = "url: '${env:NONE:-postgres://localhost/shop}'";
    let version = "version: {of: value.v, as: integer}\n";
    for (more, action) in [
        (OUTPUT.to_owned(), Action::Drop),
        (format!("{version}{OUTPUT}"), Action::Drop),
        (format!("{version}on_equal: forward\n{OUTPUT}"), Action::Forward),
        (format!("{version}on_equal: dead_letter\n{OUTPUT}"), Action::DeadLetter),
        (format!("{version}on_equal: forward\non_conflict: drop\n{OUTPUT}"), Action::Drop),
        (format!("version: {{of: meta.timestamp, as: timestamp}}\n{OUTPUT}"), Action::Forward),
        (format!("on_conflict: fail\n{OUTPUT}"), Action::Fail),
        (format!("sink: {{postgres: {{{URL}, table: {{name: t, key: [id]}}}}}}\n"), Action::Drop),
        (
            format!("sink: {{postgres: {{{URL}, statements: [{{sql: 'select $1', with: [key]}}]}}}}\n"),
            Action::DeadLetter,
        ),
        (
            format!(
                "on_conflict: forward\nsink: {{postgres: {{{URL}, statements: [{{sql: 'select $1', with: [key]}}]}}}}\n"
            ),
            Action::Forward,
        ),
        (format!("sink: {{postgres: {{{URL}, dedup: inbox, table: {{name: t, key: [id]}}}}}}\n"), Action::DeadLetter),
    ] {
        assert_eq!(conflict(&more), Ok(action), "{more}");
    }
}

#[test]
fn contents_are_read_as_written_and_are_the_value_by_default() {
    let contents = |more: &str| {
        let text = format!("name: t\ninput: {{topics: [in]}}\nidentity: key\noutput: {{topic: out}}\n{more}");
        let loaded = load_text(&text).map_err(|report| report.render(false)).unwrap();
        loaded.topology.rules.contents.as_ref().map(ToString::to_string)
    };
    for (more, expected) in [
        ("", Some("[value]")),
        ("contents: none\n", None),
        ("contents: value.row\n", Some("[value.row]")),
        ("contents: [value.a, header.b]\n", Some("[value.a, header.b]")),
        ("contents: {fingerprint: value, except: [value.at]}\n", Some("[{fingerprint: value, except: [value.at]}]")),
        (
            "contents: {first_of: [{flattened: value}, value.after]}\n",
            Some("[{first_of: [{flattened: value}, value.after]}]"),
        ),
    ] {
        assert_eq!(contents(more).as_deref(), expected, "{more}");
    }
    let by_fingerprint =
        "name: t\ninput: {topics: [in]}\nidentity: {fingerprint: value, except: [value.at]}\noutput: {topic: out}\n";
    let by_fingerprint = load_text(by_fingerprint).map_err(|report| report.render(false)).unwrap();
    assert_eq!(by_fingerprint.topology.rules.contents, None, "the identity says what is the same");
    let whole = load_text("name: t\ninput: {topics: [in]}\nidentity: value\noutput: {topic: out}\n");
    assert_eq!(whole.map_err(|report| report.render(false)).unwrap().topology.rules.contents, None, "it is the value");
    let called = "name: t\ninput: {topics: [in]}\nidentity: key\nsink: {handler: {on_in_doubt: dead_letter}}\n";
    let called = load_text(called).map_err(|report| report.render(false)).unwrap();
    assert_eq!(called.topology.rules.contents, None, "calls are compared by what they ask for");
}

#[test]
fn contents_of_a_preset_can_be_switched_off() {
    let text = "name: t\npreset: debezium-postgres@3\ninput: {topics: [in]}\ncontents: none\noutput: {topic: out}\n";
    let loaded = load_text(text).map_err(|report| report.render(false)).unwrap();
    assert_eq!(loaded.topology.rules.contents, None);
}

#[test]
fn identity_that_is_the_whole_value_leaves_no_conflict() {
    for identity in ["value", "{content: value}", "[key, {fingerprint: value}]"] {
        let text = format!(
            "name: t\ninput: {{topics: [in]}}\nidentity: {identity}\non_conflict: drop\noutput: {{topic: out}}\n"
        );
        let report = load_text(&text).expect_err("nothing can differ").render(false);
        assert!(report.contains("`on_conflict` has no effect: the identity is the whole value"), "{report}");
    }
}

#[test]
fn contents_and_conflicts_without_an_effect_are_mistakes() {
    const OUTPUT: &str = "output: {topic: out}\n";
    for (more, words) in [
        (
            format!("contents: none\non_conflict: forward\n{OUTPUT}"),
            "`on_conflict` has no effect with `contents: none`",
        ),
        (format!("contents: {{rows: value.data}}\n{OUTPUT}"), "`rows` in `contents` needs `rows` in `identity`"),
        (format!("contents: [value.a, value.a]\n{OUTPUT}"), "this part stands in `contents` twice"),
        (
            "contents: value.a\nsink: {handler: {on_in_doubt: dead_letter}}\n".to_owned(),
            "`contents` has no effect with a `sink.handler`",
        ),
        (
            "on_conflict: drop\nsink: {handler: {on_in_doubt: dead_letter}}\n".to_owned(),
            "`on_conflict` has no effect with a `sink.handler`",
        ),
        (
            "on_conflict: forward\nsink: {postgres: {url: '${env:NONE:-postgres://localhost/shop}', dedup: inbox, \
             table: {name: t, key: [id]}}}\n"
                .to_owned(),
            "`on_conflict: forward` has no effect with `dedup: inbox`",
        ),
    ] {
        let report = conflict(&more).expect_err(&more);
        assert!(report.contains(words), "{more}{report}");
    }
}
