//! Goal: every form of a sink becomes the statements that it stands for, each called by the kinds that it is for.

use super::{mistake, topology};
use crate::dedup::{Action, Kind, OnNull};
use crate::topology::sink::{Command, Inbox, Parameter, Postgres, Sink, Statement, Table};
use crate::topology::{Topology, load, load_run};
use crate::yaml_testing::Fake;

const BEGIN: &str = "name: t\ninput: {topics: [in]}\nidentity: value.id\npartitioned_by_identity: true\n";
const VERSIONED: &str = "version: {of: value.v, as: integer}\n";
const CDC: &str = "name: t\ninput: {topics: [in]}\npreset: debezium-postgres@2\n";

fn whole(begin: &str, lines: &str) -> String {
    format!("{begin}sink: {{postgres: {{url: 'postgres://db/shop', {lines}}}}}\n")
}

fn postgres(topology: &Topology) -> Postgres {
    let Some(Sink::Postgres(postgres)) = topology.sink() else { panic!("{topology:?}") };
    postgres.clone()
}

fn sink(begin: &str, lines: &str) -> Postgres {
    postgres(&topology(&whole(begin, lines)))
}

/// The statements as SQL or in words, with the kinds that call them.
fn called(statements: &[Statement]) -> Vec<(String, Vec<Kind>)> {
    let word = |command: &Command| match command {
        Command::Sql { text, .. } => text.reveal().to_owned(),
        Command::Upsert { .. } => "upsert".to_owned(),
        Command::DeleteRow { .. } => "delete".to_owned(),
        Command::Truncate { .. } => "truncate".to_owned(),
    };
    statements.iter().map(|statement| (word(&statement.command), statement.kinds.clone())).collect()
}

/// The places of a row, as they are written.
fn row(statement: &Statement) -> Vec<String> {
    let [Parameter::Row { of, .. }] = &statement.with[..] else { panic!("{statement:?}") };
    of.iter().map(ToString::to_string).collect()
}

use Kind::{Change, Delete, Message, Read, Truncate};

#[test]
fn statements_are_called_by_every_kind_that_has_a_value() {
    let all = sink(BEGIN, "statements: [{sql: 'insert into t values ($1) ;', with: [value.id]}, {sql: select 1}]");
    let kinds = vec![Change, Read, Delete, Truncate, Message];
    let expected = [("insert into t values ($1) ".to_owned(), kinds.clone()), ("select 1".to_owned(), kinds)];
    assert_eq!(called(&all.statements), expected);
    assert_eq!((all.schema.as_str(), all.inbox, all.result), ("ratchet", None, None));
}

#[test]
fn on_calls_reads_as_changes_unless_they_have_their_own() {
    let on = "on: {change: [{sql: select 1}], delete: [{sql: select 2}, {sql: select 3}]}";
    let expected = [("select 1", vec![Change, Read]), ("select 2", vec![Delete]), ("select 3", vec![Delete])];
    let named = |all: &[(&str, Vec<Kind>)]| -> Vec<(String, Vec<Kind>)> {
        all.iter().map(|(text, kinds)| ((*text).to_owned(), kinds.clone())).collect()
    };
    assert_eq!(called(&sink(CDC, on).statements), named(&expected));
    let on = "on: {change: [{sql: select 1}], read: [{sql: select 2}]}";
    assert_eq!(called(&sink(CDC, on).statements), named(&[("select 1", vec![Change]), ("select 2", vec![Read])]));
}

#[test]
fn table_stands_for_what_its_kinds_need() {
    let table = "table: {name: shop.Accounts, key: [id, shop], columns: [id, shop, name]}";
    let all = sink(CDC, table).statements;
    let kinds = [("upsert", vec![Change, Read]), ("delete", vec![Delete]), ("truncate", vec![Truncate])];
    assert_eq!(called(&all), kinds.map(|(word, kinds)| (word.to_owned(), kinds)));
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let expected = Command::Upsert {
        table: Table(names(&["shop", "Accounts"])),
        key: names(&["id", "shop"]),
        columns: Some(names(&["id", "shop", "name"])),
    };
    assert_eq!(all[0].command, expected);
    assert_eq!(Table(names(&["shop", "Acc\"ounts"])).quoted(), r#""shop"."Acc""ounts""#);
    assert_eq!(
        (row(&all[0]), row(&all[1])),
        (names(&["value.after", "value"]), names(&["value.before", "key", "value"]))
    );
    // Without deletes there is nothing to delete by.
    let plain = sink(&format!("{BEGIN}{VERSIONED}"), "table: {name: t, key: [id], columns: all}").statements;
    assert_eq!(called(&plain), [("upsert".to_owned(), vec![Change, Read])]);
    assert_eq!(row(&plain[0]), ["value"]);
}

#[test]
fn table_knows_where_presets_have_a_row() {
    for (preset, rows, deleted) in [
        ("maxwell@1", &["value.data"][..], &["key", "value.data"][..]),
        ("ogg@2", &["value.after"], &["value.before"]),
        ("debezium-mysql@1", &["value.after", "value"], &["value.before", "key", "value"]),
    ] {
        let begin = format!("name: t\ninput: {{topics: [in]}}\npreset: {preset}\npartitioned_by_identity: true\n");
        let all = sink(&begin, "table: {name: t, key: [id]}").statements;
        assert_eq!(
            (row(&all[0]), row(&all[1])),
            (rows.iter().map(|&path| path.to_owned()).collect(), deleted.iter().map(|&path| path.to_owned()).collect()),
            "{preset}"
        );
    }
    let own = sink(CDC, "table: {name: t, key: [id], of: {first_of: [value.new.after, value.row]}}").statements;
    assert_eq!(row(&own[0]), ["value.new.after", "value.row"]);
    assert_eq!(row(&own[1]), ["value.new.before", "key", "value.row"]);
}

/// A null value that is a delete has no row in it: something else has to say which one is gone.
#[test]
fn null_that_is_a_delete_needs_a_row_in_the_key() {
    let begin = |format: &str| {
        let lines = "identity: {content: key}\nversion: {of: header.lsn, as: integer}\non_null_value: delete\n";
        format!("name: t\ninput: {{topics: [in]{format}}}\n{lines}")
    };
    let json = begin(", key_format: json");
    let deleted = |lines: &str| row(&sink(&json, lines).statements[1]);
    assert_eq!(deleted("table: {name: t, key: [id]}"), ["key", "value"]);
    assert_eq!(deleted("table: {name: t, key: [id], of: value.after}"), ["value.before", "key"]);
    for format in ["", ", key_format: bytes"] {
        let bytes = begin(format).replace("{content: key}", "key");
        let (line, said) = mistake(&whole(&bytes, "table: {name: t, key: [id]}"));
        assert!(line == 5 && said.contains("which row a null value deletes") && said.contains("key_format"), "{said}");
        // Any other way out is left, and so is a table without such deletes.
        for other in ["dead_letter", "drop"] {
            sink(&bytes.replace("delete", other), "table: {name: t, key: [id]}");
        }
    }
}

/// Without its value a statement would look for null, find nothing and say nothing.
#[test]
fn null_that_is_a_delete_needs_parameters_from_elsewhere() {
    let begin = "name: t\ninput: {topics: [in]}\nidentity: key\nversion: {of: header.lsn, as: integer}\n\
                 on_null_value: delete\n";
    let with = |with: &str| format!("{{sql: 'select $1', with: [{with}]}}");
    let outbox = |id: &str| format!("outbox: {{aggregate_type: {{const: a}}, aggregate_id: {id}, type: {{const: t}}}}");
    for wrong in ["value.id", "{first_of: [value.after.id, value.before.id]}"] {
        for lines in [
            format!("statements: [{}]", with(wrong)),
            format!("on: {{change: [{}], delete: [{}]}}", with(wrong), with(wrong)),
            outbox(wrong),
            format!("table: {{name: t, key: [id], of: {{first_of: [value, key]}}}}, {}", outbox(wrong)),
        ] {
            let begin = begin.replace("[in]", "[in], key_format: json").replace("identity: key", "identity: key.id");
            let (line, said) = mistake(&whole(&begin, &lines));
            assert!(line == 6 && said.contains("a null value has nothing in it"), "{said}");
        }
    }
    for right in ["key", "value", "header.id", "{first_of: [value.id, key]}", "{const: 1}"] {
        sink(begin, &format!("statements: [{}]", with(right)));
        sink(begin, &format!("on: {{change: [{}], delete: [{}]}}", with("value.id"), with(right)));
        sink(begin, &outbox(right));
    }
    // Where deletes call nothing, or there are no such deletes, nothing is missing.
    sink(begin, &format!("on: {{change: [{}]}}, {}", with("value.id"), outbox("value.id")));
    sink(&begin.replace("delete", "drop"), &format!("statements: [{}]", with("value.id")));
}

#[test]
fn outbox_is_inserted_for_what_has_an_effect() {
    let outbox = "outbox: {table: shop.outbox, aggregate_type: {const: a}, aggregate_id: value.id, type: header.type}";
    let alone = sink(BEGIN, outbox).statements;
    let text =
        r#"insert into "shop"."outbox" (id, aggregatetype, aggregateid, type, payload) values ($1, $2, $3, $4, $5)"#;
    assert_eq!(called(&alone), [(text.to_owned(), vec![Change, Delete, Read, Truncate, Message])]);
    assert_eq!((&alone[0].with[0], alone[0].with.len()), (&Parameter::Digest, 5));
    let beside = |lines: &str| called(&sink(CDC, &format!("{lines}, {outbox}")).statements).pop().unwrap().1;
    assert_eq!(beside("on: {delete: [{sql: select 1}]}"), [Delete]);
    assert_eq!(beside("table: {name: t, key: [id]}"), [Change, Delete, Read]);
}

#[test]
fn inbox_is_named_and_kept_as_the_topology_unless_it_says_otherwise() {
    let inbox = |begin: &str, more: &str| {
        sink(begin, &format!("statements: [{{sql: select 1}}], dedup: inbox{more}")).inbox.unwrap()
    };
    let named = |name: &str, retention_ms| Inbox { name: name.to_owned(), retention_ms };
    const DAY_MS: i64 = 86_400_000;
    assert_eq!(inbox(BEGIN, ""), named("t", Some(7 * DAY_MS)));
    assert_eq!(inbox(&format!("{BEGIN}{VERSIONED}"), ""), named("t", None));
    assert_eq!(inbox(BEGIN, ", inbox: {name: shop, retention: 30d}"), named("shop", Some(30 * DAY_MS)));
    assert_eq!(inbox(BEGIN, ", inbox: {retention: forever}"), named("t", None));
    assert_eq!(sink(BEGIN, "statements: [{sql: select 1}], dedup: position").inbox, None);
}

#[test]
fn presets_forward_nothing_that_cannot_be_read() {
    let rules = topology(&whole(CDC, "table: {name: t, key: [id]}")).rules;
    assert_eq!(rules.actions.missing_identity, Action::DeadLetter);
    assert_eq!(rules.actions.null_value, OnNull::FollowDelete);
    assert_eq!(rules.actions.rejected, Action::DeadLetter);
    let dropped = topology(&whole(CDC, "table: {name: t, key: [id]}, on_rejected: drop")).rules;
    assert_eq!(dropped.actions.rejected, Action::Drop);
    // With an output, the preset's word counts.
    let output = topology(&format!("{CDC}output: {{topic: out}}\n")).rules;
    assert_eq!(output.actions.missing_identity, Action::Forward);
    assert_eq!(rules.digest(), output.digest(), "the destination is no part of what is remembered");
}

const SECRET: &str = "postgres://ann:hunter2@db/shop";

fn with_url(url: &str) -> String {
    format!("{BEGIN}sink:\n  postgres:\n    url: {url}\n    statements: [{{sql: select 1}}]\n")
}

#[test]
fn address_is_secret() {
    for url in ["${env:URL}", "${file:url}", "'postgres://ann:${env:PASSWORD}@db/shop'"] {
        let environment = Fake::default()
            .with_variable("URL", SECRET)
            .with_variable("PASSWORD", "hunter2")
            .with_file("url", SECRET)
            .with_file("t.yaml", with_url(url));
        let loaded = load(std::path::Path::new("t.yaml"), &environment).unwrap();
        let shown = format!("{loaded:?}{}{:?}", loaded.expanded(), loaded.warnings);
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(postgres(&loaded.topology).url.reveal(), SECRET);
        let broken = environment.with_file("t.yaml", with_url(url).replace("select 1", "commit"));
        let rendered = load(std::path::Path::new("t.yaml"), &broken).unwrap_err().render(false);
        assert!(!rendered.contains("hunter2") && rendered.contains("COMMIT"), "{rendered}");
    }
}

#[test]
fn password_that_is_written_out_is_refused_and_not_shown() {
    for url in [
        SECRET,
        "'host=db user=ann password=hunter2'",
        "${env:URL:-postgres://ann:hunter2@db/shop}",
        "postgres://ann:hunter2@${env:HOST:-db}/shop",
    ] {
        let (line, report) = mistake(&with_url(url));
        assert_eq!(line, 7, "{report}");
        assert!(report.contains("must not be written out") && !report.contains("hunter2"), "{report}");
    }
    topology(&with_url("postgres://ann@db/shop"));
}

#[test]
fn address_next_to_yaml_that_is_broken_is_not_shown() {
    let (_, report) =
        mistake(&format!("{BEGIN}sink:\n  postgres:\n    url: postgres://ann:hunter2@db/shop\n\tstatements: x\n"));
    assert!(!report.contains("hunter2"), "{report}");
}

#[test]
fn doubts_are_warned_about() {
    let warns = |begin: &str, lines: &str| {
        let loaded = super::load_text(&whole(begin, lines)).map_err(|diagnostics| diagnostics.render(false)).unwrap();
        loaded.warnings.iter().map(|warning| warning.message().to_owned()).collect::<Vec<_>>()
    };
    let statements = "statements: [{sql: select 1}]";
    assert_eq!(warns(BEGIN, statements), Vec::<String>::new());
    let place = BEGIN.replace("value.id", "[meta.partition, meta.offset]");
    assert!(warns(&place, statements)[0].contains("sent twice has its effect twice"));
    assert!(warns(BEGIN, "table: {name: t, key: [id]}")[0].contains("no `version`"));
    assert_eq!(warns(CDC, "table: {name: t, key: [id]}"), Vec::<String>::new());
    assert!(warns(&format!("{BEGIN}on_late: forward\n"), statements)[0].contains("late record"));
    let loose = BEGIN.replace("partitioned_by_identity: true\n", "");
    assert!(warns(&loose, statements)[0].contains("one partition only"));
    assert_eq!(warns(&loose, &format!("{statements}, dedup: inbox")), Vec::<String>::new());
    // An equal version of a row writes the same row again.
    let equal = format!("{BEGIN}{VERSIONED}on_equal: forward\n");
    assert_eq!(warns(&equal, "table: {name: t, key: [id]}"), Vec::<String>::new());
}

#[test]
fn sink_shares_no_output() {
    let topology = topology(&whole(BEGIN, "statements: [{sql: select 1}]"));
    assert!(topology.output().is_none() && topology.appends() && topology.output_topic("in").is_none());
    assert_eq!(topology.output_shared_with(&topology), None);
    assert_eq!(topology.problem_with("in"), None);
    assert!(topology.problem_with(&"a".repeat(240)).unwrap().contains("too long"));
}

#[test]
fn topologies_that_share_an_inbox_keep_it_equally_long() {
    let inbox = |name: &str, more: &str| {
        let lines = format!("statements: [{{sql: select 1}}], dedup: inbox, inbox: {{name: orders{more}}}");
        whole(BEGIN, &lines).replace("name: t\n", &format!("name: {name}\n"))
    };
    let run = |one: &str, two: &str| {
        let environment = Fake::default().with_file("a.yaml", one).with_file("b.yaml", two);
        load_run(&["a.yaml".into(), "b.yaml".into()], &environment).map_err(|diagnostics| diagnostics.render(false))
    };
    let error = run(&inbox("a", ""), &inbox("b", ", retention: 30d")).unwrap_err();
    for words in ["the inbox `orders` for different times", "for 30d here, for 7d in a.yaml", "the same `retention`"] {
        assert!(error.contains(words), "no {words} in {error}");
    }
    let error = run(&inbox("a", ", retention: 1d"), &inbox("b", ", retention: forever")).unwrap_err();
    assert!(error.contains("for ever here, for 1d in a.yaml"), "{error}");
    // Equally long; another inbox, schema or database.
    let thirty = inbox("b", ", retention: 30d");
    for two in [
        inbox("b", ", retention: 7d"),
        thirty.replace("orders", "carts"),
        thirty.replace("dedup", "schema: own, dedup"),
        thirty.replace("db/shop", "db/other"),
        thirty.replace("dedup: inbox, inbox: {name: orders, retention: 30d}", "dedup: position"),
    ] {
        assert_eq!(run(&inbox("a", ""), &two).map(|all| all.len()), Ok(2), "{two}");
    }
}
