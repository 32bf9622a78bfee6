//! Goal: all mistakes are reported at once, even if another one is in the way; and warnings do not keep a topology from
//! loading.

use super::{WHOLE, golden_texts, load_text, topology, with};
use crate::topology::{Mistake, load_all};
use crate::yaml_testing::Fake;

const BAD_NAME: &str = "a topology's name is 1 to 60";

/// The messages for a string that has mistakes.
fn messages(text: &str) -> Vec<String> {
    let diagnostics = load_text(text).expect_err(text);
    diagnostics.mistakes().iter().map(|mistake| mistake.message().to_owned()).collect()
}

#[test]
fn bad_name_is_reported_along_with_other_mistakes() {
    let mut tried = 0;
    for (file, text) in ["bad/shape", "bad/meaning"].into_iter().flat_map(golden_texts) {
        let Ok(tree) = crate::yaml::tree::parse(&text) else { continue };
        // a string about the name itself, or that is not a mapping, has no other mistake
        if !matches!(tree.value, crate::yaml::Value::Mapping(_)) || !text.contains("name: t\n") {
            continue;
        }
        let alone = messages(&text);
        let both = messages(&text.replacen("name: t\n", "name: Bad_Name\n", 1));
        assert!(both.iter().any(|message| message.starts_with(BAD_NAME)), "{file}: {both:?}");
        // Only what depends on the name is lost.
        let lost: Vec<_> = alone.iter().filter(|message| !both.contains(message)).collect();
        assert!(lost.iter().all(|message| message.contains("dead letters")), "{file}: {lost:?}");
        tried += 1;
    }
    assert!(tried >= 60, "only {tried} wrong topologies have a name");
}

#[test]
fn unknown_preset_hides_no_unrelated_mistake() {
    let text = "name: Bad_Name\npreset: debezium-postgers@1\ninput: {topics: [in, in]}\noutput: {topic: in}\n\
                audit: {topic: in}\nretention: 1h\nfuture_max: 2h\n\
                tests: [{name: a, given: [{value: {}}], expect: [forwarded, stale]}]\n";
    let reported = messages(text);
    for words in [
        "there is no preset",
        BAD_NAME,
        "stands in `input.topics` twice",
        "`output.topic` cannot be the topology's own input",
        "`audit.topic` cannot be the topology's own input",
        "`future_max` must be less than the retention",
        "`expect` must have one verdict for each record",
    ] {
        assert!(reported.iter().any(|message| message.contains(words)), "{words:?} is missing in {reported:?}");
    }
    assert_eq!(reported.len(), 7, "{reported:?}");
}

#[test]
fn value_of_a_misspelt_key_is_checked() {
    let reported = messages(
        "nmae: Bad_Name\ninptu: {topics: [a b]}\nidentitty: [vaule.x]\nouput: {topic: a b}\nretentoin: soon\n",
    );
    for words in [BAD_NAME, "`input.topics`: a topic's name", "vaule", "`output.topic`", "`retention` must be"] {
        assert!(reported.iter().any(|message| message.contains(words)), "{words:?} is missing in {reported:?}");
    }
    assert_eq!(reported.iter().filter(|message| message.starts_with("unknown key")).count(), 5, "{reported:?}");
}

#[test]
fn duplicate_name_is_reported_despite_other_mistakes() {
    let environment = Fake::default()
        .with_file("a.yaml", WHOLE)
        .with_file("b.yaml", WHOLE.replace("identity: key", "identity: nowhere"))
        .with_file("c.yaml", WHOLE.replace("name: t", "name: other"));
    let diagnostics = load_all(&["a.yaml".into(), "b.yaml".into(), "c.yaml".into()], &environment).unwrap_err();
    let reported: Vec<_> = diagnostics.mistakes().iter().map(Mistake::message).collect();
    assert!(reported.iter().any(|message| message.contains("two topologies named `t`")), "{reported:?}");
    assert_eq!(reported.len(), 2, "{reported:?}");
}

#[test]
fn tables_sharing_an_output_are_warned_about_if_keys_can_collide() {
    let cdc = |preset: &str, rest: &str| format!("name: t\npreset: {preset}\n{rest}\n");
    let warns = |text: &str| {
        let loaded = load_text(text).map_err(|diagnostics| diagnostics.render(false)).unwrap();
        loaded.warnings.iter().any(|warning| warning.message().contains("the same key"))
    };
    let (two, pattern) = ("input: {topics: [s.a, s.b]}", "input: {pattern: '^s\\.'}");
    for input in [two, pattern] {
        assert!(warns(&cdc("debezium-postgres@1", &format!("{input}\noutput: {{topic: all}}"))), "{input}");
        assert!(!warns(&cdc("debezium-postgres@1", &format!("{input}\noutput: {{topic: 'x.{{topic}}'}}"))), "{input}");
        // their keys say which table a row belongs to
        assert!(!warns(&cdc("maxwell@1", &format!("{input}\noutput: {{topic: all}}"))), "{input}");
    }
    assert!(!warns(&cdc("debezium-mongodb@1", "input: {topics: [s.a]}\noutput: {topic: all}")));
    // rules written by hand with deletes mean rows
    let by_hand = "input: {topics: [a, b]}\nversion: {of: value.v, as: integer}";
    assert!(warns(&with(&format!("{by_hand}\nkinds: {{of: value.op, delete: [d]}}"))));
    assert!(!warns(&with(by_hand)));
}

#[test]
fn impossible_version_is_reported_with_the_expected_form() {
    let entry = |version: &str, rules: &str| {
        let test =
            "tests: [{name: a, given: [{value: {v: 1}}], expect: [forwarded], entries: [{identity: [1], version: ";
        format!("{WHOLE}{rules}\n{test}{version}}}]}}]\n")
    };
    let hex = "version: {of: value.v, as: hex}";
    for version in ["00000027:00000758:0005", "'27:758:5'", "null"] {
        topology(&entry(version, hex));
    }
    let [reported] = &messages(&entry("7", hex))[..] else { panic!("{:?}", messages(&entry("7", hex))) };
    assert!(reported.contains("groups of hex digits, like 00000027:00000758:0005"), "{reported}");
    let reported = messages(&entry("7", "version: [{of: value.v, as: hex}, {of: value.w, as: integer}]"));
    assert!(reported[0].contains("`version` must be a list of 2 values"), "{reported:?}");
}

#[test]
fn version_expected_without_a_version_is_reported_in_place() {
    let entry = |rules: &str, version: &str| {
        let test = "tests: [{name: a, given: [{value: {v: 1}}], expect: [forwarded], entries: [";
        format!("{WHOLE}{rules}{test}{{identity: [1]{version}}}]}}]\n")
    };
    let diagnostics = load_text(&entry("", ", version: 7")).unwrap_err();
    let [mistake] = diagnostics.mistakes() else { panic!("{}", diagnostics.render(false)) };
    assert!(mistake.message().contains("the topology has no `version`"), "{mistake:?}");
    let line = entry("", ", version: ").lines().count();
    let column = entry("", ", version: ").lines().last().unwrap().find("version: ").unwrap() + "version: ".len() + 1;
    assert_eq!(mistake.position(), Some(("t.yaml", line, column)));
    // No version is what all entries have.
    topology(&entry("", ""));
    topology(&entry("", ", version: null"));
    // The version's own mistake is reported, and nothing else.
    let [reported] = &messages(&entry("version: {of: value.v, as: integre}\n", ", version: 7"))[..] else { panic!() };
    assert!(reported.contains("integre"), "{reported}");
    let [reported] = &messages(&entry("preset: maxwel@1\n", ", version: 7"))[..] else { panic!() };
    assert!(reported.contains("maxwel"), "{reported}");
}
