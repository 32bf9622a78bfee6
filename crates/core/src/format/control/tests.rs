//! Goal: commands and acknowledgements are read as they were written, in the fields of the tables; any other
//! value is an error that says what is wrong, and is never obeyed.

use proptest::prelude::*;

use super::*;

const ID: CommandId = CommandId(0x0123_4567_89ab_cdef_0000_0000_0000_00ff);

fn command() -> Command {
    let identity_key = vec![KIND_IDENTITY, 4, 2, b'o', b'7'];
    let instruction = Instruction::Settle { identity_key, decision: ManualDecision::Done };
    Command { topic_id: [5; 16], at_ms: 1_700_000_000_000, instruction }
}

const WRITTEN: &str = concat!(
    r#"{"format":1,"topic_id":"05050505050505050505050505050505","at":1700000000000,"#,
    r#""command":"settle","identity":"1004026f37","as":"done"}"#
);

/// The rows of a table: their names.
fn documented(head: &str) -> Vec<&'static str> {
    let lines = include_str!("../control.rs").lines();
    let table = lines.skip_while(|line| *line != format!("//! | {head} | value |")).skip(2);
    table.map_while(|line| Some(line.strip_prefix("//! | ")?.split_once(" | ")?.0)).collect()
}

fn fields(written: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(written).unwrap();
    let names = text.split(['{', ',']).filter_map(|part| part.split_once("\":"));
    names.map(|(name, _)| name.trim_start_matches('"').to_owned()).collect()
}

#[test]
fn records_are_written_as_the_tables_say() {
    assert_eq!(String::from_utf8(command().encode()).unwrap(), WRITTEN);
    assert_eq!(Command::decode(WRITTEN.as_bytes()), Ok(command()));
    assert_eq!(documented("a command"), fields(&command().encode()));
    let acknowledged = Acknowledgement { outcome: Outcome::NotUnderstood, was: None };
    assert_eq!(acknowledged.encode(), br#"{"format":1,"outcome":"not_understood","was":null}"#);
    assert_eq!(documented("an acknowledgement"), fields(&acknowledged.encode()));
    let settled = Acknowledgement { outcome: Outcome::Settled, was: Some("in_doubt".to_owned()) };
    assert_eq!(Acknowledgement::decode(&settled.encode()), Ok(settled));
}

#[test]
fn words_of_outcomes_are_those_of_acknowledgements() {
    for (number, outcome) in Outcome::ALL.into_iter().enumerate() {
        assert_eq!(outcome as usize, number);
        let written = Acknowledgement { outcome, was: None }.encode();
        let expected = format!(r#"{{"format":1,"outcome":"{}","was":null}}"#, outcome.as_str());
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}

#[test]
fn keys_tell_commands_from_acknowledgements() {
    let (key, of_task) = (ID.key(), ID.key_of_acknowledgement("shop.orders", 12));
    assert_eq!(key, "0123456789abcdef00000000000000ff");
    assert_eq!(of_task, "0123456789abcdef00000000000000ff shop.orders:12");
    assert_eq!(CommandId::of_command(key.as_bytes()), Some(ID));
    assert_eq!(CommandId::of_command(of_task.as_bytes()), None);
    assert_eq!(CommandId::of_acknowledgement(of_task.as_bytes()), Some((ID, "shop.orders", 12)));
    assert_eq!(CommandId::of_acknowledgement(key.as_bytes()), None);
    for other in ["", "0123456789ABCDEF00000000000000FF", "+123456789abcdef00000000000000ff", &key[1..]] {
        assert_eq!(CommandId::of_command(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn what_is_not_known_is_refused_with_what_it_is() {
    let cases = [
        ("{", "EOF"),
        (r#"{"command":"settle"}"#, "missing field `format`"),
        (&WRITTEN.replace("\"format\":1", "\"format\":2"), "a command has format 2, this release reads 1"),
        (&WRITTEN.replace("settle", "forget"), "\"forget\" is unknown"),
        (&WRITTEN.replace("\"done\"", "\"undone\""), "unknown variant `undone`"),
        (&WRITTEN.replace("\"as\"", "\"unless\":1,\"as\""), "unknown field `unless`"),
        (&WRITTEN.replace("0505", "05"), "its topic_id is not the id of a topic"),
        // The position record, the store's meta, an identity that would have been shortened, half a byte.
        (&WRITTEN.replace("1004026f37", "00"), "its identity is not the key of an identity"),
        (&WRITTEN.replace("1004026f37", "ff6d"), "its identity is not the key of an identity"),
        (&WRITTEN.replace("1004026f37", &"10".repeat(130)), "its identity is not the key of an identity"),
        (&WRITTEN.replace("1004026f37", "11aabb"), "its identity is not the key of an identity"),
        (&WRITTEN.replace("1004026f37", "100"), "its identity is not the key of an identity"),
        (&WRITTEN.replace("1004026f37", "10é1"), "its identity is not the key of an identity"),
    ];
    for (value, reason) in cases {
        let refused = Command::decode(value.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains(reason), "{value}: {refused}");
    }
    let later = Acknowledgement::decode(br#"{"format":2,"outcome":"melted"}"#).unwrap_err();
    assert_eq!(later.to_string(), "an acknowledgement has format 2, this release reads 1");
}

proptest! {
    #[test]
    fn commands_read_back(
        identity in proptest::collection::vec(any::<u8>(), 0..=IDENTITY_BYTES_MAX),
        (topic_id, at_ms, digest, decision_index) in any::<([u8; 16], i64, Option<[u8; 32]>, u8)>(),
    ) {
        let identity_key = match &digest {
            Some(digest) => [&[KIND_IDENTITY_DIGEST], &digest[..]].concat(),
            None => [&[KIND_IDENTITY], &identity[..]].concat(),
        };
        let decision = ManualDecision::ALL[usize::from(decision_index) % 3];
        let command = Command { topic_id, at_ms, instruction: Instruction::Settle { identity_key, decision } };
        prop_assert_eq!(Command::decode(&command.encode()), Ok(command));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let _ = Command::decode(&bytes);
        let _ = CommandId::of_acknowledgement(&bytes);
        let mut garbled = WRITTEN.as_bytes().to_vec();
        let at = at.index(garbled.len());
        garbled[at] = byte;
        if let Ok(command) = Command::decode(&garbled) {
            prop_assert_eq!(Command::decode(&command.encode()), Ok(command));
        }
    }
}
