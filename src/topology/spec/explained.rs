//! Words that many people try and that a topology does not know, each with what to write instead.

use crate::dedup::{Action, Format};
use crate::yaml::Explained;

/// Formats of records that ratchet cannot read yet, in lower case, each with its name.
const UNREAD: &[(&str, &str)] = &[("msgpack", "MessagePack"), ("csv", "CSV"), ("xml", "XML")];

/// Names that other programs have for formats with schemas, each with ratchet's format.
const OTHERWISE: &[(&str, Format)] = &[
    ("confluent_avro", Format::Avro),
    ("avro_confluent", Format::Avro),
    ("debezium_avro", Format::Avro),
    ("debezium_avro_confluent", Format::Avro),
    ("apicurio_avro", Format::Avro),
    ("kafka_avro", Format::Avro),
    ("connect_avro", Format::Avro),
    ("glue_avro", Format::Avro),
    ("avro_binary", Format::Avro),
    ("proto", Format::Protobuf),
    ("proto3", Format::Protobuf),
    ("protobuf_confluent", Format::Protobuf),
    ("confluent_protobuf", Format::Protobuf),
    ("connect_protobuf", Format::Protobuf),
    ("jsonschema", Format::JsonSchema),
    ("json_sr", Format::JsonSchema),
    ("json_registry", Format::JsonSchema),
    ("json_confluent", Format::JsonSchema),
    ("confluent_json", Format::JsonSchema),
    ("confluent_json_schema", Format::JsonSchema),
    ("schema_registry", Format::Auto),
    ("confluent", Format::Auto),
];

/// A format that has another name here, or that ratchet cannot read yet; `key` is `key_format` or `value_format`,
/// `name` where that is written.
pub fn format(word: &str, key: &str, name: &str) -> Option<Explained> {
    let plain = word.to_lowercase().replace('-', "_");
    if let Some((_, format)) = OTHERWISE.iter().find(|(known, _)| *known == plain) {
        return Some(Explained {
            message: format!("`{name}: {word}` is called `{format}` here"),
            label: format!("`{format}`"),
            help: format!(
                "write `{key}: {format}`: ratchet recognises each serializer's schema ids by itself; the setting \
                 `schema_registry.url` or `schemas.dir` says where the schemas are"
            ),
        });
    }
    let (_, format) = UNREAD.iter().find(|(known, _)| *known == plain)?;
    let (part, converter, others) = match key {
        "key_format" => ("keys", "key.converter", "an identity `key` needs no more"),
        _ => (
            "values",
            "value.converter",
            "identity and version are then read from the key, from headers and from `meta`",
        ),
    };
    let label = format!("{format} is not read yet");
    let help = format!(
        "have {part} written as JSON (on Kafka Connect `{converter}: org.apache.kafka.connect.json.JsonConverter`), or \
         convert the topic to JSON first; with `{key}: bytes` {part} are passed on unread: {others}"
    );
    Some(Explained { message: format!("`{name}: {word}` is not supported yet"), label, help })
}

/// An action, written where `on_duplicate` takes its own words.
pub fn on_duplicate(word: &str) -> Option<Explained> {
    let action = Action::ALL.iter().find(|action| action.as_str() == word)?;
    let message = format!("`on_duplicate` cannot be `{action}`: a duplicate is always dropped");
    let help = match action {
        Action::Forward => {
            "remove it; records that must both pass need an identity, or a version, that tells them apart"
        }
        _ => {
            "remove it; to see what was dropped, name a topic in which every drop is explained: \
             `audit: {topic: payments.audit}`"
        }
    };
    Some(Explained { message, label: "`drop` or `result`".to_owned(), help: help.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_that_is_not_read_yet_is_named_with_a_way_out() {
        let xml = format("xml", "value_format", "input.value_format").expect("it is explained");
        assert_eq!(xml.message, "`input.value_format: xml` is not supported yet");
        assert!(xml.help.contains("`value.converter: org.apache.kafka.connect.json.JsonConverter`"), "{}", xml.help);
        let key = format("MsgPack", "key_format", "input.key_format").expect("it is explained");
        assert!(key.label == "MessagePack is not read yet" && key.help.contains("`key.converter"), "{key:?}");
        assert_eq!(format("jsn", "value_format", "input.value_format"), None, "that is a slip");
    }

    #[test]
    fn name_that_another_program_has_for_a_format_is_explained() {
        for (word, expected) in
            [("confluent_avro", "avro"), ("Confluent-Protobuf", "protobuf"), ("json-sr", "json_schema")]
        {
            let explained = format(word, "value_format", "input.value_format").expect("it is explained");
            assert_eq!(explained.message, format!("`input.value_format: {word}` is called `{expected}` here"));
            assert!(explained.help.starts_with(&format!("write `value_format: {expected}`")), "{}", explained.help);
        }
        for (word, _) in OTHERWISE {
            assert!(Format::parse(word).is_none(), "`{word}` is a format by itself");
        }
    }

    #[test]
    fn every_action_is_explained_to_be_none_for_duplicates() {
        for action in Action::ALL {
            let explained = on_duplicate(action.as_str()).expect("it is explained");
            assert!(explained.help.starts_with("remove it"), "{explained:?}");
        }
        assert_eq!(on_duplicate("results"), None, "that is a slip");
    }
}
