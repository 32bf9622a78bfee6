//! Goal: a gate's settings reach what runs, and it is put in front of nothing that it cannot be.

use super::{load_text, topology, with};
use crate::topology::gate::{Gate, OnUnavailable};
use crate::topology::load_run;
use crate::yaml::Text;
use crate::yaml_testing::Fake;

fn gate(text: &str) -> Gate {
    topology(&with(text)).gate.expect("it has one")
}

#[test]
fn settings_of_a_gate_are_read_or_have_their_defaults() {
    let url = Text::plain("redis://h:1/2").into_secret();
    let plain = Gate { url, name: "t".to_owned(), retention_ms: 604_800_000, on_unavailable: OnUnavailable::Hold };
    assert_eq!(gate("gate: {redis: {url: 'redis://h:1/2'}}"), plain);
    assert_eq!(gate("gate: {redis: {url: 'redis://h:1/2', name: t, retention: 7d, on_unavailable: hold}}"), plain);
    let written = gate("gate: {redis: {url: 'redis://h:1/2', name: all, retention: 90m, on_unavailable: pass}}");
    let name = "all".to_owned();
    assert_eq!(written, Gate { name, retention_ms: 5_400_000, on_unavailable: OnUnavailable::Pass, ..plain });
    assert_eq!(topology(&with("identity: key")).gate, None);
    // The address may hold a password.
    assert!(!format!("{written:?}").contains("h:1"), "{written:?}");
}

fn warnings(text: &str) -> Vec<String> {
    let loaded = load_text(&with(text)).map_err(|diagnostics| diagnostics.render(false)).unwrap();
    loaded.warnings.iter().map(|warning| warning.message().to_owned()).collect()
}

#[test]
fn gate_is_a_word_on_other_partitions() {
    assert!(warnings("identity: value.id")[0].contains("within one partition only"));
    assert_eq!(warnings("identity: value.id\ngate: {redis: {url: 'redis://h'}}"), Vec::<String>::new());
    let versioned = "version: {of: value.v, as: integer}\ngate: {redis: {url: 'redis://h'}}";
    assert_eq!(warnings(versioned), Vec::<String>::new());
    let [equal] = &warnings(&format!("{versioned}\non_equal: forward"))[..] else { panic!("one warning") };
    assert!(equal.contains("the gate drops an equal version of another one"), "{equal}");
}

#[test]
fn topology_shares_no_gate_with_one_that_it_feeds() {
    let gated = |name: &str, input: &str, output: &str, gate: &str| {
        format!(
            "name: {name}\ninput: {{topics: [{input}]}}\nidentity: key\noutput: {{topic: '{output}'}}\n\
             gate: {{redis: {{url: 'redis://h', name: {gate}}}}}\n"
        )
    };
    let loads = |texts: [String; 2]| {
        let environment = Fake::default().with_file("a.yaml", &texts[0]).with_file("b.yaml", &texts[1]);
        load_run(&["a.yaml".into(), "b.yaml".into()], &environment).map_err(|diagnostics| diagnostics.render(false))
    };
    let (first, second) = (gated("a", "in", "{topic}.once", "g"), gated("b", "in.once", "out", "g"));
    for texts in [[first.clone(), second.clone()], [second.clone(), first.clone()]] {
        let report = loads(texts).expect_err("one feeds the other");
        assert!(report.contains("share the gate `g`") && report.contains("a `name` of its own"), "{report}");
    }
    assert!(loads([first.clone(), gated("b", "in.once", "out", "h")]).is_ok());
    assert!(loads([first.clone(), gated("b", "other", "out", "g")]).is_ok());
    // However the server is spelled.
    for url in ["redis://H", "redis://h/", "redis://h:6379", "redis://h:6379/0", "redis://ann@h"] {
        let report = loads([first.clone(), second.replace("redis://h'", &format!("{url}'"))]).expect_err(url);
        assert!(report.contains("share the gate `g`"), "{url}: {report}");
    }
    // Two on different servers share nothing.
    assert!(loads([gated("a", "in", "once", "g"), gated("b", "once", "out", "g").replace("//h'", "//i'")]).is_ok());
}
