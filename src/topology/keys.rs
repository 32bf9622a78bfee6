//! Every key that a topology may hold: its type, its default and its meaning. The reader, the schema and the tables of
//! docs/topologies.md are built from these.

use crate::dedup::{Action, Format, OnNull, Reads, Refresh};
use crate::yaml::keys::{Key, Mapping, Omitted, Type};

use super::destination::Existing;
use super::input::Start;
use super::presets;
use super::sink::terms::OnDuplicate;

pub mod parts;
pub mod values;

pub use super::cases::keys::{CASE, ENTRY, ENVELOPES, EXPECTED, GIVEN_FILE, RECORD};
pub use super::gate::keys::{GATE, REDIS};
pub use super::sink::http::keys::{ATTEMPT, BODY, BODY_NONE, BODY_VALUE, HTTP, IDEMPOTENCY_KEY, RESULT_WRITTEN};
pub use super::sink::keys::{
    ALL_COLUMNS, ANSWER, CALL, DOES, EXPECT_ROWS_MAX, INBOX, ON, OUTBOX, POSTGRES, RESULT, SINK, STATEMENT, TABLE,
    TEXT_DECIMALS,
};
pub use super::sink::terms::keys::{ATTEMPTS_MAX, FACTOR_MAX, HANDLER, RESULTS, RETRYING};
pub use parts::{CONTENTS_NONE, CONTENTS_PART, EPOCH_PART, PART, PLACES, TABLE_PART, VERSION};

use values::{IDENTITY_OF, PATH, PLACE, TOPIC, words};

const ACTION: Type = words!(Action);
const KIND: Type = Type::List("a list of values", &Type::Scalar);
const LIMIT: Type = Type::Size("a size from 1B to 16MiB");

/// The top of a topology.
pub static TOP: Mapping = Mapping {
    one_of: &["output", "sink"],
    any_of: &["identity", "preset"],
    ..Mapping::of(&[
        Key::required(
            "name",
            Type::Pattern("a name", "^[a-z0-9-]{1,60}$"),
            "name: payments",
            "1 to 60 of `a-z`, `0-9`, `-`. Group, changelogs and transactional ids derive from it",
        ),
        Key::optional(
            "preset",
            Type::Words(|| {
                presets::names().chain(presets::ALL.iter().map(|preset| preset.name.to_owned())).collect()
            }),
            "preset: debezium-postgres@3",
            "the blocks for [one kind of change events](#presets), e.g. `debezium-postgres@3`. A block that the topology \
             writes itself replaces the preset's; `input`, and `kinds` without `of`, are merged key by key",
        ),
        Key::required("input", Type::mapping(&INPUT), "input: {topics: [payments]}", "the topics to read, and how"),
        Key::optional(
            "identity",
            IDENTITY_OF,
            "identity: value.order_id",
            "[which thing a record is about](#identity): one part, or a list of parts",
        )
        .or(Omitted::Words("required, or a preset")),
        Key::optional(
            "version",
            Type::OneOrList("a mapping, or a list of them", &Type::Defined("a mapping, or a list of them", "version_part")),
            "version: {of: value.version, as: integer}",
            "[which record of an identity is newer](#version): one part, or a list of parts compared in order",
        ),
        Key::optional(
            "epoch",
            Type::OneOrList("a path, or a list of paths", &Type::Defined("a path, or a list of paths", "epoch_part")),
            "epoch: [value.server_id]",
            "[the scope of versions](#epoch): versions compare only where all of it is equal",
        ),
        Key::optional(
            "kinds",
            Type::mapping(&KINDS),
            "kinds: {of: value.op, delete: [d]}",
            "[which kind of change](#kinds-of-change) a record is",
        ),
        Key::optional(
            "contents",
            Type::AnyOf(
                "`none`, a path, or a list of paths",
                &[Type::Words(|| vec![CONTENTS_NONE.to_owned()]), Type::Defined("a path, or a list of paths", "contents")],
            ),
            "contents: value.after",
            "[what is compared](#contents), besides identity and version, to tell a repetition from another event: one \
             part, a list of parts, or `none`",
        )
        .or(Omitted::Words("`value`, or the preset's; `none` if the identity is the whole value or its fingerprint")),
        Key::optional(
            "retention",
            Type::AnyOf("a duration or `forever`", &[Type::Words(|| vec!["forever".to_owned()]), Type::Duration]),
            "retention: 30d",
            "[how long an identity is remembered](#retention), in stream time: a duration, or `forever`",
        )
        .or(Omitted::Words("`7d`; with a version `forever`")),
        Key::optional(
            "refresh",
            words!(Refresh),
            "refresh: on_forward",
            "when that time starts over: `on_forward` or `on_duplicate`",
        )
        .or(Omitted::Is("on_forward")),
        Key::optional(
            "future_max",
            Type::Duration,
            "future_max: 1h",
            "how far a timestamp may lie in the future, by this host's clock and by [Kafka's](guarantees.md#time)",
        )
        .or(Omitted::Words("`1h`, or a tenth of the retention if that is less")),
        Key::optional(
            "limits",
            Type::mapping(&LIMITS),
            "limits: {record_bytes: 1MiB}",
            "[how large a record may be](limits.md#of-a-record): `record_bytes`, `key_bytes`, `header_bytes`, \
             `identity_bytes`, `json_depth`",
        )
        .or(Omitted::Words("16 MiB, 1 MiB, 1 MiB, 64 KiB, 128")),
        Key::optional("output", Type::mapping(&OUTPUT), "output: {topic: payments.unique}", "where new records go")
            .or(Omitted::Words("required, or a sink")),
        Key::optional(
            "sink",
            Type::mapping(&SINK),
            "sink: {postgres: {url: '${env:DATABASE_URL}', table: {name: accounts, key: [id]}}}",
            "[what new records cause outside of Kafka](#sinks), in place of an output: `postgres`, `http` or `handler`",
        )
        .or(Omitted::Words("required, or an output")),
        Key::optional(
            "gate",
            Type::mapping(&GATE),
            "gate: {redis: {url: '${env:REDIS_URL}'}}",
            "[who is asked](#gates) whether an identity was passed on by another partition, topic or topology: `redis`. It \
             suppresses, and guarantees nothing",
        ),
        Key::optional(
            "dead_letter",
            Type::mapping(&DEAD_LETTER),
            "dead_letter: {topic: payments.failed}",
            "where records go that somebody should look at",
        )
        .or(Omitted::Words("`<name>.dead_letter`")),
        Key::optional(
            "audit",
            Type::mapping(&AUDIT),
            "audit: {topic: payments.audit}",
            "where every drop is explained",
        ),
        Key::optional(
            "on_invalid",
            ACTION,
            "on_invalid: dead_letter",
            "the record cannot be read or believed",
        )
        .or(Omitted::Is("dead_letter")),
        Key::optional("on_missing", ACTION, "on_missing: dead_letter", "a part of the identity is missing or null")
            .or(Omitted::Is("dead_letter")),
        Key::optional(
            "on_null_value",
            Type::Words(|| null_choices().into_iter().map(|(word, _)| word.to_owned()).collect()),
            "on_null_value: dead_letter",
            "the value is null (a tombstone). Besides the four there are `follow_delete`: forward it if the delete before \
             it was forwarded, else drop it; and `delete`: it is the delete itself, and judged like any record, by an \
             identity and a version from its key and headers",
        )
        .or(Omitted::Is("dead_letter")),
        Key::optional("on_equal", ACTION, "on_equal: drop", "its version is the one remembered; only with a version")
            .or(Omitted::Is("drop")),
        Key::optional(
            "on_conflict",
            ACTION,
            "on_conflict: forward",
            "a record with its identity, and its version if there is one, was seen, but with \
             [other contents](#contents)",
        )
        .or(Omitted::Words(
            "with a sink that does more than keep a table `dead_letter`; else the preset's; without a preset the same \
             as `on_equal` if that is not `drop`, `forward` if the version is the record's timestamp, otherwise `drop`",
        )),
        Key::optional(
            "on_missing_version",
            ACTION,
            "on_missing_version: forward",
            "it has no version, or null; only with a version",
        )
        .or(Omitted::Words("`forward`; with a sink that calls `dead_letter`")),
        Key::optional(
            "on_epoch_change",
            ACTION,
            "on_epoch_change: forward",
            "it begins an epoch; only with an epoch, or a version `as: binlog`",
        )
        .or(Omitted::Is("forward")),
        Key::optional("on_late", ACTION, "on_late: dead_letter", "it is older than the retention horizon")
            .or(Omitted::Is("dead_letter")),
        Key::optional(
            "on_unsendable",
            Type::Words(|| {
                let sendable = |action: &&Action| **action != Action::Forward;
                Action::ALL.iter().filter(sendable).map(|action| action.as_str().to_owned()).collect()
            }),
            "on_unsendable: dead_letter",
            "the output refuses it for good: too large, timestamp out of the topic's range; cannot be `forward`",
        )
        .or(Omitted::Is("dead_letter")),
        Key::optional(
            "on_duplicate",
            words!(OnDuplicate),
            "on_duplicate: result",
            "its identity was seen, with its version if there is one. Not one of the four: `drop`, or `result`, with a \
             sink that calls and has a `result`: what the first one was answered is written there again",
        )
        .or(Omitted::Is("drop")),
        Key::optional(
            "partitioned_by_identity",
            Type::Boolean,
            "partitioned_by_identity: true",
            "`true`: records of one identity are always in one partition; the producer ensures it",
        )
        .or(Omitted::Is("false")),
        Key::optional(
            "tests",
            Type::List("a list of tests", &Type::Mapping("a list of tests", &CASE)),
            "tests: [{name: a retry is dropped, given: [{value: {id: 1}}], expect: [forwarded]}]",
            "[records, and what should happen to them](#tests); `ratchet test` runs them",
        ),
    ])
};

/// The word for `on_null_value` that is not an action.
const FOLLOW_DELETE: &str = "follow_delete";
/// The word for `on_null_value` that makes a null value a delete.
const DELETE: &str = "delete";

/// The words for `on_null_value`.
pub fn null_choices() -> Vec<(&'static str, OnNull)> {
    let actions = Action::ALL.iter().map(|action| (action.as_str(), OnNull::Act(*action)));
    actions.chain([(FOLLOW_DELETE, OnNull::FollowDelete), (DELETE, OnNull::Delete)]).collect()
}

/// `input`.
pub static INPUT: Mapping = Mapping {
    one_of: &["topics", "pattern"],
    ..Mapping::of(&[
        Key::optional(
            "topics",
            Type::List("a list of topics", &Type::Text("a topic")),
            "topics: [payments, refunds]",
            "a list of topics; each has a changelog of its own",
        )
        .or(Omitted::Words("required, or a pattern")),
        Key::optional(
            "pattern",
            Type::Text("a regular expression"),
            r"pattern: '^shop\.public\..+$'",
            "a regular expression: every topic whose name contains a match, also topics created later",
        ),
        Key::optional(
            "exclude",
            Type::List("a list of regular expressions", &Type::Text("a regular expression")),
            r"exclude: ['\.tmp$']",
            "a list of regular expressions: topics to leave out",
        ),
        Key::optional(
            "key_format",
            words!(Format),
            "key_format: json",
            "`bytes`, `json`, `connect_json`, which looks through what Kafka Connect and Avro wrap around JSON, or a \
             format with schemas: `avro`, `protobuf`, `json_schema`, `auto`",
        )
        .or(Omitted::Is("bytes")),
        Key::optional("value_format", words!(Format), "value_format: json", "the same for values")
            .or(Omitted::Is("json")),
        Key::optional(
            "json_format",
            Type::Words(|| vec!["json".to_owned(), "connect_json".to_owned()]),
            "json_format: connect_json",
            "for a format with schemas: how JSON without a schema is read. A topic that changes from this format to \
             one with schemas, or back, keeps what is remembered",
        )
        .or(Omitted::Is("json")),
        Key::optional(
            "start",
            words!(Start),
            "start: earliest",
            "where a group starts that has never committed: `earliest` or `latest`. The position is remembered at once, \
             even if nothing has arrived yet",
        )
        .or(Omitted::Is("earliest")),
    ])
};

/// `output`.
pub static OUTPUT: Mapping = Mapping::of(&[
    Key::required(
        "topic",
        TOPIC,
        "output: {topic: payments.unique}",
        "a topic; `{topic}` in it stands for the input topic",
    ),
    Key::optional(
        "existing",
        words!(Existing),
        "existing: append",
        "what to do if the output holds records before the topology starts, or another topology of the run writes there: \
         `refuse`, or `append` to write behind them",
    )
    .or(Omitted::Is("refuse")),
]);

/// `dead_letter`.
pub static DEAD_LETTER: Mapping = Mapping::of(&[Key::required(
    "topic",
    TOPIC,
    "dead_letter: {topic: payments.failed}",
    "the topic for records that somebody should look at",
)]);

/// `audit`.
pub static AUDIT: Mapping = Mapping::of(&[Key::required(
    "topic",
    TOPIC,
    "audit: {topic: payments.audit}",
    "a topic in which every drop is explained",
)]);

/// Maximum for the nesting limit: reading recurses through it.
pub const JSON_DEPTH_MAX: usize = 512;
/// Maximum for the record limit: the producer takes this much plus a dead letter's headers, no more.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// `limits`.
pub static LIMITS: Mapping = Mapping::of(&[
    Key::optional("record_bytes", LIMIT, "record_bytes: 256KiB", "key, value and headers together; at most 16 MiB")
        .or(Omitted::Is("16MiB")),
    Key::optional("key_bytes", LIMIT, "key_bytes: 256KiB", "the key").or(Omitted::Is("1MiB")),
    Key::optional("header_bytes", LIMIT, "header_bytes: 256KiB", "all headers together, 8 bytes for each included")
        .or(Omitted::Is("1MiB")),
    Key::optional(
        "identity_bytes",
        LIMIT,
        "identity_bytes: 256KiB",
        "the identity's encoding, before a long one is hashed",
    )
    .or(Omitted::Is("64KiB")),
    Key::optional(
        "json_depth",
        Type::Integer("a number from 1 to 512", 1, JSON_DEPTH_MAX as u64),
        "json_depth: 64",
        "how deep JSON may be nested; `[]` is 1 deep",
    )
    .or(Omitted::Is("128")),
]);

/// `kinds`.
pub static KINDS: Mapping = Mapping::of(&[
    Key::optional(
        "of",
        PLACE,
        "kinds: {of: value.op, delete: [d]}",
        "where to find the kind: a path, or `{first_of: [...]}`. A block with it replaces a preset's, one without it \
         replaces only the keys that it has",
    )
    .or(Omitted::Words("required, or a preset")),
    Key::optional(
        "delete",
        KIND,
        "delete: [d]",
        "it is forwarded like any change, and its identity then owes a tombstone",
    ),
    Key::optional(
        "read",
        KIND,
        "read: [r]",
        "a snapshot's read. A streamed change beats it, whatever their versions; another read, by version",
    ),
    Key::optional(
        "reads",
        words!(Reads),
        "reads: lose",
        "what happens to a read if a streamed change of the same row is known. `lose`: the read is stale \
         (`snapshot_read`). `by_version`: the read wins if its version is greater than every known one, and is \
         remembered, so a second delivery is dropped. [Only `by_version` repairs rows](sources/README.md#snapshots) \
         that changed while the connector had lost its offsets. `reads` can be changed at any time: it is not part of \
         the rules' digest",
    )
    .or(Omitted::Is("lose")),
    Key::optional(
        "truncate",
        KIND,
        "truncate: [t]",
        "all rows of a table are gone. Its identity is `table`; rows of that table with a lower version are stale \
         (`table_truncated`). This holds within one partition",
    ),
    Key::optional(
        "message",
        KIND,
        "message: [m]",
        "an event of its own. Seen again it is a duplicate; it is never stale",
    ),
    Key::optional(
        "none",
        KIND,
        "none: [table-alter]",
        "about no row and no table, such as DDL: the record has no identity (`on_missing`), and its key is not read. Not \
         part of the rules' digest",
    ),
    Key::optional(
        "table",
        Type::OneOrList(
            "a path, or a list of paths",
            &Type::AnyOf(
                "a path, or a list of paths",
                &[PATH, Type::Mapping("a path, or a list of paths", &TABLE_PART)],
            ),
        ),
        "table: [value.source.schema, value.source.table]",
        "what identifies the table: a path, `{first_of: [...]}` or `{const: x}`, or a list of these; a missing part is \
         null",
    ),
]);

#[cfg(test)]
mod tests;
