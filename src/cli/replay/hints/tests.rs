//! Goal: each hint is given where its counts say so, and no two of them contradict each other.

use super::*;

fn only(facts: &Facts) -> String {
    let hints = hints(facts);
    let [hint] = &hints[..] else { panic!("{hints:?}") };
    hint.clone()
}

fn rejected(reason: Reason, count: u64, words: &str) -> BTreeMap<Reason, (u64, String)> {
    BTreeMap::from([(reason, (count, words.to_owned()))])
}

fn judged(records: u64) -> Facts {
    Facts {
        records,
        identified: records,
        versioned: records,
        has_version: true,
        on_null_value: FOLLOW_DELETE,
        ..Facts::default()
    }
}

#[test]
fn good_counts_give_no_hint() {
    assert_eq!(
        hints(&Facts { duplicate: 10, older: 2, stale: 2, falls: 2, falls_forwarded: 0, ..judged(100) }),
        [""; 0]
    );
    assert_eq!(hints(&judged(0)), [""; 0]);
}

#[test]
fn identity_that_is_too_fine_or_too_coarse_gets_a_hint() {
    assert!(only(&judged(1_000_000)).contains("too fine"));
    // an input that was read again says nothing about its identities
    let replayed = Facts { duplicate: 500, replayed: 500, ..judged(1_000_000) };
    assert!(only(&replayed).contains("too fine"));
    assert_eq!(hints(&judged(999_999)), [""; 0]);
    assert!(only(&Facts { duplicate: 51, ..judged(100) }).contains("too coarse"));
    assert_eq!(hints(&Facts { duplicate: 50, ..judged(100) }), [""; 0]);
    assert_eq!(hints(&Facts { duplicate: 19, ..judged(19) }), [""; 0]);
    assert!(only(&Facts { stale: 60, ..judged(100) }).contains("`version` may not be"));
}

#[test]
fn redelivered_records_are_not_blamed_on_the_rules() {
    let again = Again { duplicate: 40, stale: 120 };
    let redelivered = Redelivered { versioned: 160, stale: 120, older: 120, falls: 120 };
    let facts = Facts { duplicate: 40, stale: 120, older: 120, falls: 120, again, redelivered, ..judged(200) };
    let hint = only(&facts);
    assert!(hint.contains("160 of 200 records came again") && hint.contains("nothing has to be changed"), "{hint}");
    let replayed = Facts { duplicate: 150, replayed: 150, identified: 50, versioned: 50, ..judged(200) };
    assert!(only(&replayed).contains("(150 with an offset that was there before, 0 "), "{}", only(&replayed));
    // a few do not need to be explained
    let again = Again { duplicate: 10, stale: 30 };
    let redelivered = Redelivered { versioned: 40, stale: 30, older: 30, falls: 30 };
    let few = Facts { duplicate: 10, stale: 30, older: 30, falls: 30, again, redelivered, ..judged(200) };
    assert_eq!(hints(&few), [""; 0]);
    // anything else that is wrong is reported as well
    let coarse = Facts { duplicate: 70, ..facts };
    assert!(hints(&coarse)[1].contains("did not just come again are dropped, most of them as duplicates"));
}

#[test]
fn records_that_all_lack_a_version_get_a_hint() {
    assert!(only(&Facts { versioned: 0, ..judged(3) }).contains("no record has a version"));
    assert_eq!(hints(&Facts { versioned: 0, has_version: false, ..judged(3) }), [""; 0]);
    let without_version = Some("write a position");
    assert!(only(&Facts { versioned: 0, without_version, ..judged(3) }).contains("known to be old: write a pos"));
}

#[test]
fn versions_that_fall_between_identities_are_normal() {
    let hint = only(&Facts { falls: 9, falls_forwarded: 7, ..judged(100) });
    assert!(hint.contains("would have dropped 7 good records") && hint.contains("normal"), "{hint}");
    let hint = only(&Facts { falls: 20, older: 18, stale: 18, falls_forwarded: 2, ..judged(100) });
    assert!(hint.contains("within an identity 18 times"), "{hint}");
}

#[test]
fn versions_that_fall_only_when_redelivered_are_not_blamed_on_the_rules() {
    // redelivered with another time of sending: no record quite equals an earlier one
    let redelivered = Redelivered { versioned: 60, stale: 60, older: 60, falls: 60 };
    let facts = Facts { falls: 60, older: 60, stale: 60, redelivered, ..judged(200) };
    assert_eq!(hints(&facts), [""; 0]);
    let forwarded = Facts { falls: 80, falls_forwarded: 20, ..facts.clone() };
    let hint = only(&forwarded);
    let expected = "versions fall within partitions 20 times, and within an identity 0 times (60 more were redelivered";
    assert!(hint.contains(expected) && hint.contains("nothing has to be changed"), "{hint}");
    // over half of all records is reported, but not blamed on the rules
    let most = Facts { records: 100, identified: 100, versioned: 100, ..facts };
    let hint = only(&most);
    assert!(hint.contains("a version that had come before") && hint.contains("nothing has to be changed"), "{hint}");
}

#[test]
fn hint_counts_falls_without_redeliveries() {
    let redelivered = Redelivered { versioned: 50, stale: 50, older: 50, falls: 50 };
    let facts = Facts { falls: 90, older: 80, stale: 80, falls_forwarded: 10, redelivered, ..judged(200) };
    let hint = only(&facts);
    let expected = "within an identity 30 times, and between identities 10 times (50 more were redelivered";
    assert!(hint.contains(expected) && hint.contains("may not be what rises"), "{hint}");
}

#[test]
fn identities_on_several_partitions_get_a_hint() {
    assert!(only(&Facts { on_several_partitions: 2, ..judged(100) }).contains("2 identities"));
}

#[test]
fn lines_in_an_envelope_get_no_other_hint() {
    let facts = Facts { like_kcat: 1, versioned: 0, on_several_partitions: 3, ..judged(100) };
    assert!(only(&facts).contains("--envelope kcat"));
}

#[test]
fn keys_and_values_with_schemas_get_a_hint_by_what_is_wrong_with_them() {
    for (reason, words, change) in [
        (Reason::ValueMalformed, "as a schema registry's serializers write the number", "`value_format: avro`"),
        (Reason::KeyMalformed, "as a schema registry's serializers write the number", "`key_format: avro`"),
        (
            Reason::ValueMalformed,
            "as a schema registry's serializers write the number of a schema, and JSON seems to follow",
            "`value_format: json_schema`",
        ),
        (Reason::ValueMalformed, "the value cannot be read by a schema: no schema id", "`value_format: auto`"),
        (Reason::KeyMalformed, "the key cannot be read by a schema: no schema id", "`key_format: auto`"),
        (Reason::ValueMalformed, "the value cannot be read: schema 4 does not exist", "valid in one registry only"),
        (Reason::KeyMalformed, "the key is not a record of schema 4: it ends early", "valid in one registry only"),
    ] {
        let hint = only(&Facts { records: 4, rejections: rejected(reason, 4, words), ..Facts::default() });
        assert!(hint.contains(change), "{hint}");
    }
}

#[test]
fn records_all_invalid_for_one_reason_get_a_hint_what_to_change() {
    for (reason, change) in [(Reason::ValueMalformed, "value_format: bytes"), (Reason::Late, "retention")] {
        let facts = Facts { records: 4, rejections: rejected(reason, 4, "it is so"), ..Facts::default() };
        let hint = only(&facts);
        assert!(
            hint.contains("every record is invalid") && hint.contains("it is so") && hint.contains(change),
            "{hint}"
        );
        // a share of them is told as well
        let share = only(&Facts { records: 400, ..facts.clone() });
        assert!(share.contains("4 of 400 records are invalid") && share.contains(change), "{share}");
        assert_eq!(hints(&Facts { records: 401, ..facts }), [""; 0]);
    }
}

#[test]
fn presets_advice_about_malformed_versions_replaces_the_general_one() {
    let rejections = rejected(Reason::VersionMalformed, 4, "it is too low: set it");
    let malformed_version = Some("set it");
    let facts = Facts { records: 4, rejections, malformed_version, ..Facts::default() };
    assert_eq!(only(&facts).matches("`version`").count(), 0);
    assert!(only(&Facts { malformed_version: None, ..facts }).contains("change `version`"));
}

#[test]
fn forwarded_records_without_an_identity_get_a_hint() {
    let facts = Facts { records: 500, unidentified: 5, identified: 495, ..Facts::default() };
    assert!(only(&facts).contains("5 of 500 records have no identity"));
    assert_eq!(hints(&Facts { unidentified: 4, ..facts }), [""; 0]);
}

#[test]
fn null_values_that_may_be_deletes_get_a_hint() {
    let facts = Facts { nulls: 3, undeleted_nulls: 2, ..judged(100) };
    let hint = only(&facts);
    assert!(hint.contains("2 null values were not forwarded") && hint.contains(FOLLOW_DELETE), "{hint}");
    assert_eq!(hints(&Facts { undeleted_nulls: 0, ..facts }), [""; 0]);
}

#[test]
fn share_of_records_without_a_version_gets_a_hint() {
    let facts = Facts { versioned: 90, unversioned: 10, ..judged(100) };
    assert!(only(&facts).contains("10 of 100 records have no version"), "{}", only(&facts));
    assert_eq!(hints(&Facts { records: 2_000, ..facts }), [""; 0]);
}

#[test]
fn what_is_explained_already_is_not_explained_otherwise() {
    // positions that began again make versions fall, and most records stale
    let facts = Facts { falls: 60, older: 60, stale: 60, falls_forwarded: 30, ..judged(100) };
    assert!(hints(&facts).len() > 1);
    let noticed = Noticed { hints: vec!["they began again".to_owned()], explains_stale: true, ..Noticed::default() };
    assert_eq!(only(&Facts { noticed, ..facts }), "they began again");
    // timestamps in seconds make records late
    let rejections = rejected(Reason::Late, 4, "it is late");
    let noticed = |late: u64| {
        let explained = BTreeMap::from([(Reason::Late, late)]);
        Noticed { hints: vec!["they are seconds".to_owned()], explained, ..Noticed::default() }
    };
    let facts = Facts { records: 4, rejections, noticed: noticed(4), ..Facts::default() };
    assert_eq!(only(&facts), "they are seconds");
    // but not all of them
    let hints = hints(&Facts { noticed: noticed(3), ..facts });
    assert!(hints.iter().any(|hint| hint.contains("every record is invalid (late)")), "{hints:?}");
}

#[test]
fn keys_as_bytes_come_with_an_identity_that_takes_them_so() {
    let facts = Facts { records: 4, rejections: rejected(Reason::KeyMalformed, 4, "no JSON"), ..Facts::default() };
    let hint = only(&facts);
    assert!(hint.contains("`key_format: bytes`") && hint.contains("`identity: key`"), "{hint}");
}
