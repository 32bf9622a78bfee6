//! What the schema says of each key, in words.

use serde_json::{Value, json};

/// What is said of a key that nobody has described; a test finds it.
pub const UNDESCRIBED: &str = "undescribed";

/// A key's schema with its description.
pub fn described(key: &str, schema: Value) -> Value {
    let mut schema = if schema.is_null() { json!({"not": {}}) } else { schema };
    if let Value::Object(fields) = &mut schema {
        fields.insert("description".to_owned(), json!(about(key)));
    }
    schema
}

/// A key in a sentence. A word that stands in several places means about the same in all of them.
pub fn about(key: &str) -> &'static str {
    match key {
        "name" => {
            "What it is called. Of a topology: 1 to 60 of a-z, 0-9 and -; group, changelogs and transactional ids derive from it."
        }
        "preset" => {
            "What stands for the blocks that are left out, for one kind of change events, e.g. debezium-postgres@2. Each block that is written here replaces the preset's whole; input is put together key by key."
        }
        "input" => "The topics that are read, and how.",
        "topics" => "Topics, each with a changelog of its own.",
        "pattern" => {
            "A regular expression: every topic in whose name it is found is read, also those that are created later."
        }
        "exclude" => "Regular expressions: topics in whose names one of them is found are left out.",
        "key_format" => {
            "How keys are read. connect_json looks through what Kafka Connect and Avro wrap around JSON. Default: bytes."
        }
        "value_format" => {
            "How values are read. connect_json looks through what Kafka Connect and Avro wrap around JSON. Default: json."
        }
        "start" => "Where a group begins that has never committed. Default: earliest.",
        "identity" => "What says which thing a record is about: a part, or a list of parts.",
        "version" => {
            "What says which record of an identity is newer: a part, or a list of parts that are compared one after the other."
        }
        "epoch" => "What scopes versions: they are comparable where all of it is equal.",
        "kinds" => "Which kind of change a record is.",
        "retention" => {
            "For how long an identity is remembered, in stream time, or forever. Default: 7d, with a version forever."
        }
        "refresh" => "When that time begins anew. Default: on_forward.",
        "future_max" => {
            "How far a timestamp may lie beyond the present. Default: 1h, or a tenth of the retention if that is less."
        }
        "limits" => "What a record may take. One that takes more is invalid.",
        "record_bytes" => "Key, value and headers together. At most 16MiB, which is the default.",
        "key_bytes" => "The key. Default: 1MiB.",
        "header_bytes" => "All headers together. Default: 1MiB.",
        "identity_bytes" => "The identity's encoding, before a long one is hashed. Default: 64KiB.",
        "json_depth" => "How deep JSON may be nested; [] is 1 deep. At most 512. Default: 128.",
        "output" => "Where new records go. In a test: which given records come out, by number from 0, in order.",
        "dead_letter" => "Where records go that a person should look at. Default: NAME.dead_letter.",
        "audit" => "Where every drop is explained.",
        "topic" => "A topic. In output.topic, {topic} stands for the input topic.",
        "existing" => {
            "What to do where the output holds records before the topology begins, or another topology of the run writes there too. append: write behind them. Default: refuse."
        }
        "on_invalid" => "What to do with a record that cannot be read or believed.",
        "on_missing" => "What to do with a record of which a part of the identity is missing.",
        "on_null_value" => {
            "What to do with a null value. follow_delete: forward it if the delete before it was forwarded, else drop it."
        }
        "on_equal" => "What to do with a record whose version is the one remembered.",
        "on_missing_version" => "What to do with a record that has no version.",
        "on_epoch_change" => "What to do with a record that begins an epoch.",
        "on_late" => "What to do with a record that is older than the retention horizon.",
        "on_unsendable" => "What to do with a record that the output refuses. Default: dead_letter.",
        "partitioned_by_identity" => "Says that records of one identity are always in one partition.",
        "tests" => "Records, and what is expected to become of them: `ratchet test` runs them.",
        "const" => "Always the same. In an epoch, changing the value by hand begins a new one.",
        "content" => {
            "The JSON that stands there, whatever it is: the order of fields and the space between them do not matter."
        }
        "fingerprint" => "SHA-256 of the canonical JSON that stands there.",
        "except" => "Places in it that are left out.",
        "bucket" => "The tumbling bucket of this length that the record's timestamp falls into.",
        "first_of" => "The first of these that is not missing.",
        "rows" => "An object, or an array of objects: each is a row.",
        "named" => "The names of the fields that identify a row, or where they stand.",
        "of" => "Where it stands: a path, or the first of several that is there and not null.",
        "at_least" => {
            "With as: integer, what raises it where it is less: an integer, or an array of integers and nulls, also as text, whose greatest counts."
        }
        "as" => "How it is read and compared.",
        "none" => "Values that count as missing.",
        "lenient" => "What cannot be read so counts as missing, instead of making the record invalid.",
        "required" => "Without this part a record has no version.",
        "missing" => "Where a missing part sorts. Default: lowest.",
        "unit" => "What a number counts, with as: timestamp. Default: ms.",
        "delete" => "What stands there for a delete.",
        "read" => "What stands there for a snapshot's read: it loses to any streamed change that is known.",
        "reads" => {
            "What becomes of a read where a streamed change is known: lose, or by_version: it wins if its version is greater. Default: lose."
        }
        "truncate" => "What stands there where a whole table was emptied.",
        "message" => "What stands there for an event of its own, that no other replaces.",
        "table" => "What together names the table that is emptied.",
        "given" => "The records, in order; or {file: PATH, envelope: kcat}.",
        "expect" => "What each record is expected to become, in order.",
        "entries" => "What is expected to be remembered in the end, among others.",
        "file" => "A file of records, one a line; a relative path is taken from the topology's folder.",
        "envelope" => "How the lines are wrapped: as kcat -J prints them. Without it, a line is a value.",
        "value" => {
            "The value: a mapping or list is JSON, a text is those bytes or, where values are JSON, that text; null is null."
        }
        "key" => "The key, written as the value is.",
        "headers" => "Headers by name, as texts.",
        "timestamp" => "A time or milliseconds; null for a record without one. Default: 2020-01-01T00:00:00Z.",
        "partition" => "The partition. Default: 0.",
        "offset" => "The offset. Default: the next one of the partition.",
        "verdict" => "What becomes of the record.",
        "reason" => "Why.",
        _ => UNDESCRIBED,
    }
}
