//! Goal: every setting of a topology reaches what runs, and all mistakes are reported at once, each with its place and
//! what to write instead.

mod at_once;
mod contents;
mod expanding;
mod files;
mod gates;
mod http;
mod sinks;

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::capture::Form;
use crate::dedup::{Action, Format, Limits, Number, OnNull, Reason, Retention, Scalar, Source};
use crate::yaml_testing::{Fake, yamlish};

/// A complete topology without warnings.
const WHOLE: &str = "name: t\ninput: {topics: [in]}\nidentity: key\noutput: {topic: out}\n";

fn load_with(text: &str, environment: Fake) -> Result<Loaded, Diagnostics> {
    load(Path::new("t.yaml"), &environment.with_file("t.yaml", text))
}

pub(super) fn load_text(text: &str) -> Result<Loaded, Diagnostics> {
    load_with(text, Fake::default())
}

fn topology(text: &str) -> Topology {
    load_text(text).map_err(|diagnostics| diagnostics.render(false)).unwrap().topology
}

/// The only mistake in a string: its line and its full report.
fn mistake(text: &str) -> (usize, String) {
    let diagnostics = load_text(text).expect_err(text);
    let mistakes: Vec<_> = diagnostics.mistakes().iter().filter(|mistake| !mistake.is_warning()).collect();
    let [only] = mistakes.as_slice() else { panic!("{}", diagnostics.render(false)) };
    let (_, line, _) = only.position().unwrap();
    (line, format!("{} | {} | {}", only.message(), only.label(), only.help_text().unwrap_or_default()))
}

/// [`WHOLE`] with these lines in place of those with the same keys, or added at the end.
fn with(line: &str) -> String {
    let keys: Vec<_> = line.lines().map(|line| line.split(':').next()).collect();
    let kept = WHOLE.lines().filter(|other| !keys.contains(&other.split(':').next()));
    kept.chain([line]).map(|line| format!("{line}\n")).collect()
}

#[track_caller]
fn refuses(line: &str, words: &[&str]) {
    let (_, report) = mistake(&with(line));
    for word in words {
        assert!(report.contains(word), "{line}: no {word:?} in {report}");
    }
}

/// Compares with a file in `golden/`; `RATCHET_GOLDEN=write` in the environment writes it instead.
#[track_caller]
pub(super) fn golden_file(name: &str, now: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/topology/golden").join(name);
    if std::env::var_os("RATCHET_GOLDEN").is_some_and(|word| word == "write") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, now).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(now == expected, "{name} is another one; what there is now:\n{now}");
}

/// The YAML files in a folder of `golden/`, with their names.
pub(super) fn golden_texts(folder: &str) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/topology/golden").join(folder);
    let entries = std::fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(".yaml")).collect();
    names.sort();
    names
        .into_iter()
        .map(|name| (format!("{folder}/{name}"), std::fs::read_to_string(path.join(name)).unwrap()))
        .collect()
}

/// YAML as the JSON that an editor sees.
pub(crate) fn json_of(text: &str) -> serde_json::Value {
    fn convert(node: &crate::yaml::Node) -> serde_json::Value {
        use crate::yaml::Value;
        match &node.value {
            _ if node.is_null() => serde_json::Value::Null,
            Value::Scalar { text, plain: true } => match serde_json::from_str(text) {
                Ok(scalar @ (serde_json::Value::Bool(_) | serde_json::Value::Number(_))) => scalar,
                _ => text.as_str().into(),
            },
            Value::Scalar { text, .. } => text.as_str().into(),
            Value::List(items) => items.iter().map(convert).collect(),
            Value::Mapping(entries) => entries.iter().map(|entry| (entry.key.clone(), convert(&entry.node))).collect(),
        }
    }
    convert(&crate::yaml::tree::parse(text).unwrap())
}

fn golden(name: &str, text: &str, expected: &str) {
    let rendered = load(Path::new(name), &Fake::default().with_file(name, text)).expect_err(expected).render(false);
    golden_file(expected, &rendered);
}

#[test]
fn six_mistakes_are_rendered_at_once() {
    golden("topologies/payments.yaml", include_str!("golden/mistakes.yaml"), "mistakes.txt");
}

#[test]
fn missing_keys_are_rendered_where_they_belong() {
    golden("topologies/payments.yaml", include_str!("golden/missing.yaml"), "missing.txt");
}

#[test]
fn every_wrong_topology_gets_its_golden_report() {
    let folders = ["bad/text", "bad/shape", "bad/meaning"];
    let all: Vec<_> = folders.into_iter().flat_map(golden_texts).collect();
    assert!(all.len() >= 60, "only {} wrong topologies are left", all.len());
    for (name, text) in all {
        golden("t.yaml", &text, &name.replace(".yaml", ".txt"));
    }
}

#[test]
fn defaults_are_as_documented() {
    let topology = topology(WHOLE);
    let rules = &topology.rules;
    assert_eq!((rules.key_format, rules.value_format), (Format::Bytes, Format::Json));
    assert_eq!(rules.retention, Retention::For { ms: 7 * 86_400_000 });
    assert_eq!((rules.future_max_ms, rules.limits), (3_600_000, Limits::default()));
    assert_eq!(topology.start, Start::Earliest);
    assert_eq!(topology.dead_letter, "t.dead_letter");
    let actions = rules.actions;
    let dead_lettered = [actions.invalid, actions.missing_identity, actions.late, actions.unsendable];
    assert_eq!(dead_lettered, [Action::DeadLetter; 4]);
    assert_eq!(actions.null_value, OnNull::Act(Action::DeadLetter));
    assert_eq!((actions.equal_version, actions.missing_version), (Action::Drop, Action::Forward));
}

#[test]
fn with_a_version_retention_defaults_to_forever() {
    let version = "version: {of: value.v, as: integer}";
    assert_eq!(topology(&with(version)).rules.retention, Retention::Forever);
    let limited = topology(&format!("{}retention: 5m\n", with(version)));
    assert_eq!(limited.rules.retention, Retention::For { ms: 300_000 });
    assert_eq!(limited.rules.future_max_ms, 30_000);
}

#[test]
fn every_setting_reaches_the_topology() {
    let topology = topology(
        "name: all-of-it\ninput: {topics: [a, b.c], key_format: json, value_format: bytes, start: latest}\n\
         identity: [key.id, 'value', header.X-Id, meta.topic, {const: 1.0}, {const: '1'}, {const: true}, 'key.\"a.b\".0']\n\
         version: {of: header.seq, as: integer}\nretention: 30d\nfuture_max: 10m\npartitioned_by_identity: true\n\
         output: {topic: '{topic}.out'}\ndead_letter: {topic: dead}\non_invalid: fail\non_missing: forward\n\
         on_null_value: forward\non_equal: forward\non_missing_version: drop\non_late: drop\non_unsendable: fail\n",
    );
    let rules = &topology.rules;
    let sources: Vec<_> = rules.paths().iter().take(8).map(|path| path.source.clone()).collect();
    let number = Scalar::Number(Number::parse("1.0").unwrap());
    assert_eq!(
        sources,
        [
            Source::Key,
            Source::Value,
            Source::Header("X-Id".to_owned()),
            Source::Topic,
            Source::Const(number),
            Source::Const(Scalar::Text("1".to_owned())),
            Source::Const(Scalar::Bool(true)),
            Source::Key,
        ]
    );
    assert_eq!(rules.paths()[7].steps, ["a.b", "0"]);
    assert_eq!((rules.key_format, rules.value_format), (Format::Json, Format::Bytes));
    assert_eq!(rules.future_max_ms, 600_000);
    assert_eq!(topology.start, Start::Latest);
    let actions = rules.actions;
    assert_eq!((actions.invalid, actions.missing_identity), (Action::Fail, Action::Forward));
    assert_eq!((actions.equal_version, actions.missing_version), (Action::Forward, Action::Drop));
    assert_eq!((actions.late, actions.unsendable), (Action::Drop, Action::Fail));
    assert_eq!((topology.output_topic("a").as_deref(), topology.dead_letter.as_str()), (Some("a.out"), "dead"));
}

#[test]
fn every_word_reaches_the_rules() {
    let topology = topology(
        r#"name: t
input: {pattern: '^shop\.', exclude: ['\.tmp$'], key_format: json, value_format: connect_json}
identity:
  - {content: key}
  - {fingerprint: value.after, except: [value.after.seen]}
  - {bucket: 1h}
  - {first_of: [value.id, [value.shop, {const: 7}]]}
  - {rows: {first_of: [value.after, value.before]}, named: [id, "a b"]}
version:
  - {of: {first_of: [value.a, value.b]}, as: timestamp, unit: us, none: [0, "", false], required: true}
  - {of: value.c, as: sequence, missing: highest}
epoch: [value.server, {of: {first_of: [value.s, value.t]}, none: ["x"]}, {const: 3}]
kinds:
  of: value.op
  delete: [d, "1"]
  read: [r]
  reads: by_version
  truncate: [1]
  message: [true]
  table: [value.db, {first_of: [value.t, value.u]}, {const: z}]
retention: 30d
refresh: on_duplicate
output: {topic: 'clean.{topic}'}
audit: {topic: audit}
on_null_value: forward
on_epoch_change: fail
partitioned_by_identity: true
"#,
    );
    let text = topology.rules.canonical_text();
    let expected = "\
ratchet rules 1
key_format: json
value_format: connect_json
identity: {content: key}
identity: {fingerprint: value.after, except: [value.after.seen]}
identity: {bucket: 3600000ms}
identity: {first_of: [[value.id], [value.shop, {const: 7}]]}
identity: {rows: [value.after, value.before], named: [\"id\", \"a b\"]}
version: timestamp [value.a, value.b] us none [0, \"\", false] required
version: sequence [value.c] missing highest
epoch: [value.server]
epoch: [value.s, value.t] none [\"x\"]
epoch: [const]
kinds: [value.op]
delete: [\"d\", \"1\"]
read: [\"r\"]
truncate: [1]
message: [true]
table: [value.db]
table: [value.t, value.u]
table: [{const: \"z\"}]
";
    assert_eq!(text, expected);
    assert_eq!(topology.rules.kinds.as_ref().map(|kinds| kinds.reads), Some(crate::dedup::Reads::ByVersion));
    assert_eq!(topology.rules.refresh, crate::dedup::Refresh::OnDuplicate);
    assert_eq!(topology.rules.actions.epoch_change, Action::Fail);
    assert_eq!(topology.audit.as_deref(), Some("audit"));
    assert!(topology.reads("shop.orders") && !topology.reads("shop.tmp") && !topology.reads("bank"));
}

#[test]
fn tests_become_records_and_expectations() {
    let topology = topology(
        r#"name: t
input: {topics: [in, in2], key_format: bytes, value_format: json}
identity: key
output: {topic: out}
tests:
  - name: all of it
    given:
      - {value: {id: 9223372036854775808, price: 1.50, at: 2026-01-01, list: [a, null, true, "1"]}, key: 7}
      - {value: a text, key: {a: 1}, headers: {h: x, n: null}, timestamp: 2026-01-01T00:00:00Z}
      - {value: null, key: k, timestamp: null, partition: 3, topic: in2, offset: 12}
    expect: [forwarded, {verdict: forwarded, reason: first}, invalid]
    output: [0, 1]
    entries: [{identity: [7], version: 3}, {identity: a}]
  - {name: a file, given: {file: records.jsonl, envelope: kcat}, expect: [stale]}
version: {of: value.version, as: integer}
"#,
    );
    let [case, file] = topology.tests.as_slice() else { panic!("{:?}", topology.tests) };
    let cases::Given::Records(records) = &case.given else { panic!("{case:?}") };
    let text = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| String::from_utf8(bytes.clone()).unwrap());
    let texts: Vec<_> = records.iter().map(|record| (text(&record.key), text(&record.value))).collect();
    let first = r#"{"id":9223372036854775808,"price":1.50,"at":"2026-01-01","list":["a",null,true,"1"]}"#;
    let of = |text: &str| Some(text.to_owned());
    assert_eq!(texts[0], (of("7"), of(first)));
    assert_eq!(texts[1], (of(r#"{"a":1}"#), of(r#""a text""#)));
    assert_eq!(texts[2], (of("k"), None));
    assert_eq!(records[1].headers, [("h".to_owned(), Some(b"x".to_vec())), ("n".to_owned(), None)]);
    let times: Vec<_> = records.iter().map(|record| record.timestamp).collect();
    assert_eq!(times, [Some(cases::TIMESTAMP_MS), Some(1_767_225_600_000), None]);
    assert_eq!((records[2].partition, records[2].offset, records[2].topic.as_deref()), (3, Some(12), Some("in2")));
    assert_eq!(case.expect[1].reason, Some(Reason::First));
    assert_eq!((case.line, &case.output), (6, &Some(vec![0, 1])));
    assert_eq!((case.entries[0].identity.as_str(), case.entries[0].version.as_deref()), ("[7]", Some("3")));
    assert_eq!(case.entries[1].identity, r#"["a"]"#);
    assert_eq!(file.given, cases::Given::File { path: "records.jsonl".into(), form: Some(Form::Kcat) });
}

#[test]
fn settings_without_effect_are_warned_about() {
    let warning = |line: &str| {
        let loaded = load_text(&with(line)).map_err(|diagnostics| diagnostics.render(false)).unwrap();
        let [warning] = loaded.warnings.as_slice() else { panic!("{line}: {:?}", loaded.warnings) };
        warning.message().to_owned()
    };
    assert!(warning("retention: forever\nrefresh: on_duplicate").contains("`refresh` has no effect"));
    assert!(warning("retention: forever\non_late: drop").contains("`on_late` has no effect"));
    assert!(warning("retention: 1h\nidentity: [key, {bucket: 1d}]").contains("longer than the retention, which is 1h"));
}

#[test]
fn identity_that_holds_the_id_of_a_schema_is_warned_about() {
    let warnings = |lines: &str| {
        let loaded = load_text(&with(lines)).map_err(|diagnostics| diagnostics.render(false)).unwrap();
        loaded.warnings.iter().map(|warning| warning.message().to_owned()).collect::<Vec<_>>()
    };
    let input = |formats: &str, identity: &str| format!("input: {{topics: [in], {formats}}}\nidentity: {identity}");
    let [key] = warnings(&input("key_format: avro", "key")).try_into().unwrap();
    assert!(key.contains("all bytes of the key"), "{key}");
    let [value] = warnings(&input("value_format: auto", "[key, {first_of: [header.id, value]}]")).try_into().unwrap();
    assert!(value.contains("all bytes of the value"), "{value}");
    for (formats, identity) in
        [("key_format: avro", "{content: key}"), ("key_format: json", "key"), ("value_format: avro", "key")]
    {
        assert_eq!(warnings(&input(formats, identity)), Vec::<String>::new(), "{formats}, {identity}");
    }
}

#[test]
fn new_topic_of_a_pattern_can_have_a_problem() {
    let topology = topology(&with("input: {pattern: '^[a-z]+$', exclude: [out]}\noutput: {topic: 'clean.{topic}'}"));
    let topology = Topology { dead_letter: "clean.x".to_owned(), audit: Some("clean.b".to_owned()), ..topology };
    assert_eq!(topology.problem_with("a"), None);
    assert!(topology.problem_with("b").unwrap().contains("audit"));
    assert!(topology.problem_with("x").unwrap().contains("dead letters"));
    assert!(topology.problem_with(&"a".repeat(240)).unwrap().contains("too long"));
    let pattern = topology.input.clone();
    let feeding = Topology { destination: Destination::Output(Output::to("{topic}x")), input: pattern, ..topology };
    assert!(feeding.problem_with("a").unwrap().contains("read it again"));
}

#[test]
fn pattern_never_matches_changelogs_or_internal_topics() {
    let topology = topology(&with("input: {pattern: '.', exclude: ['^(out|t.dead_letter)$']}"));
    assert!(topology.reads("orders") && !topology.reads("out"));
    for internal in ["__consumer_offsets", "__debezium-heartbeat.shop", "ratchet.t.orders.changelog"] {
        assert!(!topology.reads(internal), "{internal}");
    }
}

#[test]
fn names_derive_from_the_topology() {
    let topology = topology(WHOLE);
    assert_eq!(topology.group(), "ratchet.t");
    assert_eq!(topology.changelog("in"), "ratchet.t.in.changelog");
    assert_eq!(topology.transactional_id(255, 3), "ratchet.t.00000000000000ff.3");
}

#[test]
fn unknown_key_suggests_the_nearest() {
    refuses("on_equals: drop", &["unknown key `on_equals`", "did you mean `on_equal`?"]);
    refuses("colour: red", &["unknown key `colour`", "nothing reads this"]);
}

#[test]
fn misspelt_key_is_not_reported_as_missing() {
    for (right, wrong, meant) in [
        ("name: t", "nmae: t", "name"),
        ("input: {", "inptu: {", "input"),
        ("{topics: ", "{topcis: ", "topics"),
        ("{topics: [in]}", "{patern: ^in}", "pattern"),
        ("identity: key", "identitty: [value.id, key]", "identity"),
        ("identity: key", "prest: debezium-postgres@2", "preset"),
        ("identity: key", "identity: {rowss: value.data, named: [id]}", "rows"),
        ("identity: key", "identity: {rows: value.data, nmaed: [id]}", "named"),
        ("identity: key", "identity: {fingerprnt: value, except: [value.a]}", "fingerprint"),
        ("output: {topic: out}", "ouput: {topic: out}", "output"),
        ("{topic: out}", "{topik: out}", "topic"),
        ("", "version: {fo: value.v, as: integer}", "of"),
        ("", "version: {of: value.v, az: integer}", "as"),
        ("", "version: {of: value.v, as: integer}\nepoch: {cnst: 1}", "const"),
        ("", "verson: {of: value.v, as: integer}\nepoch: value.e\non_equal: forward", "version"),
        ("", "version: {of: value.v, as: integer}\nepoc: value.e\non_epoch_change: forward", "epoch"),
        ("", "knds: {of: value.op, delete: [d]}\non_null_value: follow_delete", "kinds"),
        ("{topics: [in]}", "{patern: ^in, exclude: [a]}", "pattern"),
        ("", "kinds: {off: value.op, delete: [d]}", "of"),
        ("", "audit: {topics: [a]}", "topic"),
        ("", "tests: [{nmae: a, given: [{value: 1}], expect: [forwarded]}]", "name"),
        ("", "tests: [{name: a, givn: [{value: 1}], expect: [forwarded]}]", "given"),
        ("", "tests: [{name: a, given: [{value: 1}], expct: [forwarded]}]", "expect"),
        ("", "tests: [{name: a, given: {fil: a.jsonl}, expect: [forwarded]}]", "file"),
        ("", "tests: [{name: a, given: [{value: 1}], expect: [{verdct: forwarded}]}]", "verdict"),
    ] {
        let text = if right.is_empty() { format!("{WHOLE}{wrong}\n") } else { WHOLE.replacen(right, wrong, 1) };
        let (_, report) = mistake(&text);
        assert!(
            report.contains("unknown key") && report.contains(&format!("did you mean `{meant}`?")),
            "{wrong}: {report}"
        );
    }
    // Another missing key is still reported.
    let diagnostics =
        load_text(&WHOLE.replace("identity:", "identitty:").replace("output: {topic: out}\n", "")).unwrap_err();
    let reported: Vec<_> = diagnostics.mistakes().iter().map(Mistake::message).collect();
    assert_eq!(reported, ["`output` is missing, or a `sink`", "unknown key `identitty`"]);
}

#[test]
fn wrong_types_say_what_to_write() {
    refuses("name: [t]", &["`name` must be a name", "a list", "name: payments"]);
    refuses("name:", &["`name` must be a name", "no value"]);
    refuses("name: ''", &["this is empty"]);
    refuses("input: in", &["`input` must be a mapping"]);
    refuses("input: {topics: []}", &["`input.topics` must be a list", "empty"]);
    refuses("identity: []", &["`identity` must be a path"]);
    refuses("identity: {}", &["`identity` must be a path"]);
    refuses("identity: {header: id}", &["header.id"]);
    refuses("identity: [key, [value]]", &["`identity` must be a path"]);
    refuses("version: value.v", &["`version` must be a mapping"]);
    refuses("version: {of: value.v}", &["`version.as` is missing"]);
    refuses("retention: 30", &["`retention` must be a duration", "retention: 30d"]);
    refuses("retention: 0s", &["`retention` must be longer than no time at all"]);
    refuses("partitioned_by_identity: yes", &["true or false"]);
    refuses("output: out", &["`output` must be a mapping"]);
    refuses("output: {topic: {topic}}", &["quotes", "{topic}"]);
    refuses("on_late: dead-letter", &["write `on_late: dead_letter`"]);
    refuses("on_late: explode", &["`forward`", "`drop`", "`dead_letter` or `fail`"]);
}

#[test]
fn malformed_paths_are_rejected() {
    refuses("identity: order_id", &["value.order_id", "key.order_id"]);
    refuses("identity: value.a..b", &["a name is missing"]);
    refuses("identity: key.id", &["key_format: json"]);
    refuses("version: {of: valeu.v, as: integer}", &["write `value.v`"]);
    refuses("input: {topics: [in], value_format: bytes}\nidentity: [key, value.x]", &["value_format: json"]);
    let (line, report) =
        mistake("name: t\ninput: {topics: [in]}\nidentity:\n  - key\n  - value.a b\noutput: {topic: out}\n");
    assert_eq!(line, 5, "{report}");
}

#[test]
fn settings_that_say_nothing_are_rejected() {
    refuses("identity: {const: x}", &["the same for all records"]);
    refuses("identity: [meta.topic, meta.partition]", &["the same for all records"]);
    refuses("identity: [key, key]", &["twice"]);
    refuses("version: {of: meta.topic, as: integer}", &["cannot be a version"]);
    refuses("on_equal: forward", &["without a `version`"]);
    refuses("on_missing_version: drop", &["without a `version`"]);
    refuses("on_unsendable: forward", &["cannot be `forward`"]);
    refuses("future_max: 7d", &["less than the retention, which is 7d", "future_max: 1h"]);
}

#[test]
fn names_invalid_for_kafka_or_ratchet_are_rejected() {
    refuses("name: Pay_ments", &["lower-case", "name: pay-ments"]);
    assert_eq!(topology(&with(&format!("name: {}", "x".repeat(60)))).name.len(), 60);
    refuses(&format!("name: {}", "x".repeat(61)), &["1 to 60"]);
    refuses("input: {topics: [in, in]}", &["twice"]);
    refuses("input: {topics: [a b]}", &["' '"]);
    refuses("input: {topics: [..]}", &["cannot be named"]);
    refuses(&format!("input: {{topics: [{}]}}", "x".repeat(250)), &["250 characters"]);
    refuses(&format!("input: {{topics: [{}]}}", "x".repeat(240)), &["changelog", "by 11"]);
    refuses(&format!("output: {{topic: '{{topic}}{}'}}", "x".repeat(248)), &["250 characters"]);
    refuses("output: {topic: '{topics}'}", &["`output.topic`", "only `{topic}`"]);
    refuses("dead_letter: {topic: '{topic}.dead'}", &["only `output.topic` may hold braces"]);
}

#[test]
fn topics_already_in_use_are_rejected() {
    refuses("output: {topic: in}", &["own input"]);
    refuses("output: {topic: '{topic}'}", &["own input"]);
    refuses("dead_letter: {topic: in}", &["own input"]);
    refuses("dead_letter: {topic: out}", &["cannot be the output"]);
    refuses("output: {topic: t.dead_letter}", &["dead letters"]);
    refuses("input: {topics: [t.dead_letter]}", &["dead letters"]);
    refuses("output: {topic: ratchet.t.in.changelog}", &["changelog"]);
    refuses("dead_letter: {topic: ratchet.other.x.changelog}", &["changelog"]);
}

#[test]
fn duplicates_in_different_partitions_are_warned_about() {
    let loaded = load_text(&with("identity: value.id")).unwrap();
    let [warning] = loaded.warnings.as_slice() else { panic!("{:?}", loaded.warnings) };
    assert!(warning.message().contains("one partition only") && warning.is_warning());
    assert_eq!(warning.position(), Some(("t.yaml", 4, 11)));
    for line in ["identity: key", "identity: [value.id, key]", "identity: value.id\npartitioned_by_identity: true"] {
        assert!(load_text(&with(line)).unwrap().warnings.is_empty(), "{line}");
    }
}

#[test]
fn path_with_a_mistake_is_reported_with_the_path_that_is_meant() {
    for (written, help) in [
        ("$.value.x", "| write `value.x`"),
        ("$.value.items[0].sku", "| write `value.items.0.sku`"),
        ("value.a[0]", "| write `value.a.0`"),
        ("value[0]", "| write `value.0`"),
        ("$.x", "`value.x`, one of the key `key.x`"),
        ("value.a['b']", "| write e.g. `identity: value."),
        ("header", "| write e.g. `header.id`"),
        ("meta.time", "| write `meta.timestamp`"),
        ("meta.partion", "| write `meta.partition`"),
        ("meta.key", "| write e.g. `meta.timestamp`"),
    ] {
        refuses(&format!("identity: \"{written}\""), &[help]);
    }
}

#[test]
fn substituted_values_are_read_but_never_shown() {
    let env = Fake::default().with_variable("TOPIC", "s3cret topic").with_variable("NAME", "s3cret");
    let loaded = load_with(&with("name: ${env:NAME}\nretention: ${env:NONE:-1h}"), env.clone()).unwrap();
    assert_eq!(loaded.topology.name, "s3cret");
    assert_eq!(loaded.topology.rules.retention, Retention::For { ms: 3_600_000 });
    let lines = [
        "input: {topics: ['${env:TOPIC}']}",
        "output: {topic: '${env:TOPIC}'}",
        "identity: '${env:TOPIC}'",
        "name: ${env:TOPIC}",
        "retention: ${env:TOPIC}",
        "on_late: ${env:TOPIC}",
        "dead_letter: {topic: '${env:TOPIC}'}",
        "partitioned_by_identity: ${env:TOPIC}",
        "version: {of: '${env:TOPIC}', as: '${env:TOPIC}'}",
    ];
    for line in lines {
        let rendered = load_with(&with(line), env.clone()).expect_err(line).render(false);
        assert!(!rendered.contains("s3cret"), "{rendered}");
    }
    refuses("name: ${env:NONE}", &["`NONE` is not set", "${env:NONE:-default}"]);
}

#[test]
fn examples_load_without_a_warning() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies");
    let loaded = load_all(&[folder], &Process).map_err(|diagnostics| diagnostics.render(false)).unwrap();
    assert!(loaded.len() > 3, "{loaded:?}");
    for loaded in loaded {
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    }
}

proptest! {
    #[test]
    fn no_text_breaks_the_loader(text in yamlish()) {
        if let Err(diagnostics) = load_text(&text) {
            diagnostics.render(true);
        }
    }

    #[test]
    fn no_value_breaks_the_loader(
        key in proptest::sample::select(vec!["name", "input", "identity", "version", "retention", "output", "on_late", "future_max"]),
        value in yamlish(),
    ) {
        if let Err(diagnostics) = load_text(&with(&format!("{key}: {value}"))) {
            diagnostics.render(false);
        }
    }
}

#[test]
fn limits_are_accepted_up_to_their_maximum() {
    assert_eq!(topology(WHOLE).rules.limits, Limits::default());
    let limits =
        "limits: {record_bytes: 16MiB, key_bytes: 1B, header_bytes: 2048, identity_bytes: 1KiB, json_depth: 512}";
    let expected = Limits {
        record_bytes_max: 16 << 20,
        key_bytes_max: 1,
        header_bytes_max: 2048,
        identity_bytes_max: 1024,
        json_depth_max: 512,
        ..Limits::default()
    };
    assert_eq!(topology(&with(limits)).rules.limits, expected);
    assert_eq!(topology(&with("limits: {}")).rules.limits, Limits::default());
    for key in ["record_bytes", "key_bytes", "header_bytes", "identity_bytes"] {
        for wrong in ["16777217", "17MiB", "0", "-1", "many", "1.5MiB"] {
            refuses(
                &format!("limits: {{{key}: {wrong}}}"),
                &[&format!("`limits.{key}` must be a size from 1B to 16MiB")],
            );
        }
    }
    for wrong in ["513", "0", "-1", "1.0", "deep"] {
        refuses(&format!("limits: {{json_depth: {wrong}}}"), &["`limits.json_depth` must be a number from 1 to 512"]);
    }
    refuses("limits: {jsondepth: 5}", &["unknown key `limits.jsondepth`", "did you mean `json_depth`?"]);
    refuses("limits: 5", &["`limits` must be a mapping"]);
}
