//! Goal: a missing request is an error or a listed restriction, depending on the purpose of the request.

use super::*;

/// All requests that are used, in the versions that Apache Kafka 4.1 offers.
const ALL: &[(i16, RangeInclusive<i16>)] = &[
    (0, 0..=13),
    (1, 4..=17),
    (2, 1..=11),
    (3, 0..=13),
    (9, 1..=9),
    (10, 0..=6),
    (11, 2..=9),
    (12, 0..=4),
    (13, 0..=5),
    (14, 0..=5),
    (15, 0..=6),
    (19, 2..=7),
    (22, 0..=6),
    (23, 2..=4),
    (24, 0..=5),
    (25, 0..=4),
    (26, 0..=5),
    (28, 0..=5),
    (32, 1..=4),
];

fn offer(broker: &str, change: &[(i16, Option<i16>)]) -> Offer {
    let changed = |key: i16| change.iter().find(|(changed, _)| *changed == key).map(|(_, most)| *most);
    let ranges = ALL.iter().filter_map(|(key, range)| match changed(*key) {
        None => Some((*key, range.clone())),
        Some(most) => most.map(|most| (*key, *range.start()..=most)),
    });
    let versions = Versions::offering(&ranges.collect::<Vec<_>>(), &[("transaction.version", 2)]);
    Offer { broker: broker.to_owned(), versions }
}

fn judged(change: &[(i16, Option<i16>)], path: DataPath) -> Judgement {
    judge(&Offers { all: vec![offer("b:1", &[]), offer("b:2", change)], silent: Vec::new() }, path, true)
}

#[test]
fn brokers_with_everything_lack_nothing() {
    for path in [DataPath::Auto, DataPath::Wire, DataPath::Librdkafka] {
        let found = judged(&[], path);
        assert_eq!(found.is_on_the_wire, path != DataPath::Librdkafka);
        assert_eq!((found.abilities.lacking, found.abilities.without), (Vec::new(), Vec::new()));
        assert!(found.tells_time && found.describes_groups);
        assert!(found.abilities.can.contains(&"transactions of the second version"));
    }
}

#[test]
fn missing_needed_request_is_reported_with_its_broker_and_purpose() {
    for need in NEEDS {
        for path in [DataPath::Auto, DataPath::Wire, DataPath::Librdkafka] {
            let found = judged(&[(need.key, None)], path);
            let [only] = &found.abilities.lacking[..] else { panic!("{}: {found:?}", need.name) };
            for words in ["the broker at b:2 lacks", need.name, "not offered", need.purpose.words()] {
                assert!(only.contains(words), "{only}");
            }
            let problem = found.abilities.problem().expect("it is refused");
            assert_eq!(problem.kind, crate::cluster::ErrorKind::Refused);
        }
    }
    let all = judged(&[22, 24, 25, 26].map(|key| (key, None)), DataPath::Auto).abilities.lacking;
    let [only] = &all[..] else { panic!("{all:?}") };
    assert!(only.contains("EndTxn") && only.contains("InitProducerId") && only.matches("lacks").count() == 1, "{only}");
}

#[test]
fn insufficient_versions_count_as_missing() {
    for (key, most, words) in [
        (9, 6, "OffsetFetch (versions 1 to 6 offered, versions 7 to 9 needed)"),
        (28, 2, "TxnOffsetCommit (versions 0 to 2 offered, version"),
        (3, 9, "Metadata (versions 0 to 9 offered"),
        (2, 1, "ListOffsets (version 1 offered"),
    ] {
        let lacking = judged(&[(key, Some(most))], DataPath::Auto).abilities.lacking;
        assert!(lacking.len() == 1 && lacking[0].contains(words), "{lacking:?}");
    }
}

#[test]
fn librdkafka_is_chosen_for_brokers_that_only_it_supports() {
    for (key, most) in [(1, 10), (0, 7), (22, 2)] {
        let judge_on = |path| judged(&[(key, Some(most))], path);
        let found = judge_on(DataPath::Auto);
        assert!(!found.is_on_the_wire && found.abilities.lacking.is_empty(), "{found:?}");
        assert!(found.abilities.data_path.starts_with("by librdkafka, since the broker at b:2 lacks"), "{found:?}");
        assert!(judge_on(DataPath::Librdkafka).abilities.lacking.is_empty());
        let found = judge_on(DataPath::Wire);
        assert!(found.is_on_the_wire && found.abilities.lacking.len() == 1, "refused: {found:?}");
    }
}

#[test]
fn missing_optional_request_is_reported_with_its_consequence() {
    for (key, most) in [(23, None), (2, Some(4)), (15, None), (19, None)] {
        for path in [DataPath::Auto, DataPath::Librdkafka] {
            let found = judged(&[(key, most)], path);
            let [without] = &found.abilities.without[..] else { panic!("{found:?}") };
            assert!(without.what.starts_with("the broker at b:2 lacks ") && !without.so.is_empty());
            assert!(found.abilities.lacking.is_empty() && found.tells_time == (key != 2), "{found:?}");
        }
    }
}

/// kfake offers versions 3 and 4, neither of which librdkafka supports.
#[test]
fn leader_epochs_are_compared_by_the_client_that_reads() {
    let versions = Versions::offering(
        &ALL.iter()
            .map(|(key, range)| match key {
                23 => (23, 3..=4),
                key => (*key, range.clone()),
            })
            .collect::<Vec<_>>(),
        &[],
    );
    let offers = Offers { all: vec![Offer { broker: "b:1".to_owned(), versions }], silent: Vec::new() };
    for (path, count) in [(DataPath::Auto, 0), (DataPath::Librdkafka, 1)] {
        assert_eq!(judge(&offers, path, true).abilities.without.len(), count, "{path:?}");
    }
}

#[test]
fn refusal_of_brokers_that_librdkafka_supports_names_the_setting() {
    let words = "with `data_path: auto`, librdkafka would read and write";
    let lacking = |most: i16, path| judged(&[(1, Some(most))], path).abilities.lacking.join("; ");
    assert!(lacking(10, DataPath::Wire).contains(words), "{}", lacking(10, DataPath::Wire));
    assert_eq!(lacking(10, DataPath::Auto), "");
    assert!(!lacking(3, DataPath::Wire).contains(words), "{}", lacking(3, DataPath::Wire));
}
