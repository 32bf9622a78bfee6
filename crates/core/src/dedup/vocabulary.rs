//! The words used in topologies, metrics, headers and explanations: each defined once, with its text.

use crate::schemas::Language;

/// Declares an enum whose variants have one word each, with conversions to and from that word.
macro_rules! vocabulary {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// All variants, in the order of their discriminants.
            pub const ALL: &[$name] = &[$($name::$variant,)+];

            /// The word for it.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }

            /// The variant with this word; `None` for any other word.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some($name::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

vocabulary! {
    /// How a key's or a value's bytes are read.
    pub enum Format {
        /// As they are: nothing can be read inside them.
        Bytes = "bytes",
        /// As one JSON document.
        Json = "json",
        /// As one JSON document, looking through what Kafka Connect's and Avro's JSON wrap around it: a `payload`
        /// beside a `schema` or a `schemaId`, a scalar in a union (`{"string": "x"}`).
        ConnectJson = "connect_json",
        /// As Avro, by the schema that the record names.
        Avro = "avro",
        /// As a Protobuf message, by the schema that the record names.
        Protobuf = "protobuf",
        /// As JSON after the id of its JSON Schema.
        JsonSchema = "json_schema",
        /// By the language of the schema that the record names; as JSON if it names none.
        Auto = "auto",
    }
}

impl Format {
    /// Whether documents in this format are read by the schemas that they name.
    pub fn has_schemas(self) -> bool {
        matches!(self, Self::Avro | Self::Protobuf | Self::JsonSchema | Self::Auto)
    }

    /// The language that schemas must have; `None` if any will do, or if there are no schemas.
    pub fn language(self) -> Option<Language> {
        match self {
            Self::Avro => Some(Language::Avro),
            Self::Protobuf => Some(Language::Protobuf),
            Self::JsonSchema => Some(Language::JsonSchema),
            Self::Bytes | Self::Json | Self::ConnectJson | Self::Auto => None,
        }
    }
}

vocabulary! {
    /// What to do with a record.
    pub enum Action {
        /// Send it to the output.
        Forward = "forward",
        /// Send it nowhere.
        Drop = "drop",
        /// Send it to the dead letter topic, with what is wrong.
        DeadLetter = "dead_letter",
        /// Stop the task before it.
        Fail = "fail",
    }
}

vocabulary! {
    /// When an entry counts as seen again, which restarts its retention.
    pub enum Refresh {
        /// When a record with its identity is forwarded.
        OnForward = "on_forward",
        /// Also when a duplicate is dropped.
        OnDuplicate = "on_duplicate",
    }
}

vocabulary! {
    /// A record's kind of change.
    pub enum Kind {
        /// A row, or a thing, has a new value.
        Change = "change",
        /// It is gone.
        Delete = "delete",
        /// It was read by a snapshot; when it changed is not known.
        Read = "read",
        /// All rows of a table are gone.
        Truncate = "truncate",
        /// An event in its own right, which no other replaces.
        Message = "message",
        /// A null value that follows a delete, for the log's compaction.
        Tombstone = "tombstone",
    }
}

vocabulary! {
    /// What to do with a snapshot's read when a streamed change is known.
    pub enum Reads {
        /// It loses, whatever its version.
        Lose = "lose",
        /// It wins if its version is greater: for changes made while nobody was listening.
        ByVersion = "by_version",
    }
}

vocabulary! {
    /// How a part of a version is read.
    pub enum VersionKind {
        /// An integer of any size: a JSON number or decimal text.
        Integer = "integer",
        /// A decimal of any size: a JSON number or decimal text.
        Decimal = "decimal",
        /// Text, by its bytes in UTF-8.
        Text = "text",
        /// A moment: RFC 3339, or a number of a unit since 1970.
        Timestamp = "timestamp",
        /// Groups of hexadecimal digits with separators, such as SQL Server's `00000027:00000758:0005`.
        Hex = "hex",
        /// A binlog's file and maybe position: `mysql-bin.000003`, `mysql-bin.000003:154`. Its base name scopes it.
        Binlog = "binlog",
        /// A JSON array, or a string that holds one, of integers, decimal strings or null.
        Sequence = "sequence",
    }
}

vocabulary! {
    /// Where a missing part of a version sorts.
    pub enum MissingPart {
        /// Below all others.
        Lowest = "lowest",
        /// Above all others.
        Highest = "highest",
        /// Where the greatest of its `at_least` does, if there is one; else it is missing as with `lowest`.
        AtLeast = "at_least",
    }
}

vocabulary! {
    /// The unit of a numeric timestamp.
    pub enum TimeUnit {
        /// Seconds since 1970.
        Seconds = "s",
        /// Milliseconds since 1970.
        Milliseconds = "ms",
        /// Microseconds since 1970.
        Microseconds = "us",
        /// Nanoseconds since 1970.
        Nanoseconds = "ns",
    }
}

vocabulary! {
    /// What became of a record.
    pub enum Verdict {
        /// It went to the output.
        Forwarded = "forwarded",
        /// It had been seen before.
        Duplicate = "duplicate",
        /// Something newer had been seen before.
        Stale = "stale",
        /// It could not be judged.
        Invalid = "invalid",
    }
}

vocabulary! {
    /// Why a record got its verdict.
    pub enum Reason {
        /// Nothing was remembered for its identity.
        First = "first",
        /// Its version is greater than the one remembered, or none was.
        Newer = "newer",
        /// What was remembered for its identity had expired.
        Expired = "expired",
        /// Its epoch began after that of what is remembered, or is new.
        EpochChanged = "epoch_changed",
        /// A null value whose delete was forwarded.
        Tombstone = "tombstone",
        /// Its version equals the one remembered.
        VersionEqual = "version_equal",
        /// Its version equals the one remembered, and its contents are others.
        VersionTied = "version_tied",
        /// It has no version, or null.
        VersionMissing = "version_missing",
        /// Its identity was seen before.
        Seen = "seen",
        /// Its identity was seen before, with other contents.
        SeenOtherwise = "seen_otherwise",
        /// Its offset was processed before: the input is being read again.
        Replayed = "replayed",
        /// A null value whose delete was not forwarded, or whose tombstone was forwarded before.
        TombstoneNotOwed = "tombstone_not_owed",
        /// Its version is less than the one remembered.
        VersionOlder = "version_older",
        /// Its epoch has been followed by another.
        EpochOlder = "epoch_older",
        /// It was read by a snapshot, and a streamed change of its identity is known.
        SnapshotRead = "snapshot_read",
        /// Its table was truncated after it.
        TableTruncated = "table_truncated",
        /// Its value is null.
        NullValue = "null_value",
        /// A part of its identity is missing or null.
        IdentityMissing = "identity_missing",
        /// A part of its identity is an object or an array.
        IdentityNotScalar = "identity_not_scalar",
        /// Its identity takes more bytes than the limit allows.
        IdentityTooLong = "identity_too_long",
        /// Its key is not JSON, though it should be.
        KeyMalformed = "key_malformed",
        /// Its value is not JSON, though it should be.
        ValueMalformed = "value_malformed",
        /// Its version is not of the kind that the rules say, or longer than the limit allows.
        VersionMalformed = "version_malformed",
        /// Its timestamp is too far ahead of the wall clock to be believed.
        TimestampInFuture = "timestamp_in_future",
        /// It is older than the retention horizon, so what it would be compared with is gone.
        Late = "late",
        /// It, its key or its headers take more bytes than the limit allows.
        RecordTooLarge = "record_too_large",
        /// The output refuses it.
        Unsendable = "unsendable",
        /// The sink refuses what it causes.
        Rejected = "rejected",
        /// The sink's inbox has it, or a newer one of its identity.
        InInbox = "in_inbox",
        /// The gate knows it from another partition, topic or topology.
        KnownElsewhere = "known_elsewhere",
        /// It asks the provider for something else than the record with its identity and version before it.
        Conflict = "conflict",
        /// Its call may have happened, and nothing more can be found out.
        InDoubt = "in_doubt",
        /// Its attempts to call the provider are exhausted.
        Unavailable = "unavailable",
    }
}

impl Reason {
    /// Whether the record has the identity of one that was seen, and its version if there is one, but other contents.
    pub const fn is_conflict(self) -> bool {
        matches!(self, Reason::VersionTied | Reason::SeenOtherwise)
    }

    /// The reason in words, for where no [`super::Rejection`] has a more precise message.
    pub const fn meaning(self) -> &'static str {
        match self {
            Reason::First => "nothing was remembered of the identity",
            Reason::Newer => "the version is greater than the one remembered",
            Reason::Expired => "what was remembered of the identity had expired",
            Reason::EpochChanged => "the record's epoch began after that of what is remembered",
            Reason::Tombstone => "the delete before the null value was forwarded",
            Reason::TombstoneNotOwed => {
                "the delete before the null value was not forwarded, or its tombstone was before"
            }
            Reason::EpochOlder => "another epoch has followed the record's",
            Reason::SnapshotRead => "a streamed change is known, which a snapshot's read never replaces",
            Reason::TableTruncated => "the table was emptied after the record",
            Reason::VersionEqual => "the version is the one remembered",
            Reason::VersionTied => "the version is the one remembered, and the contents are others",
            Reason::VersionMissing => "the record has no version",
            Reason::Seen => "the identity was seen before",
            Reason::SeenOtherwise => "the identity was seen before, with other contents",
            Reason::Replayed => "the offset was processed before",
            Reason::VersionOlder => "the version is less than the one remembered",
            Reason::NullValue => "the value is null",
            Reason::IdentityMissing => "a part of the identity is missing",
            Reason::IdentityNotScalar => "a part of the identity is an object or an array",
            Reason::IdentityTooLong => "the identity takes more bytes than the limit allows",
            Reason::KeyMalformed => "the key is not JSON",
            Reason::ValueMalformed => "the value is not JSON",
            Reason::VersionMalformed => "the version is not what the rules say",
            Reason::TimestampInFuture => "the timestamp is too far beyond the wall clock",
            Reason::Late => "the record is older than the retention horizon",
            Reason::RecordTooLarge => "the record, its key or its headers take more bytes than the limit allows",
            Reason::Unsendable => "the output refuses the record",
            Reason::Rejected => "the sink refuses what the record causes",
            Reason::InInbox => "the sink's inbox has the identity already",
            Reason::KnownElsewhere => "the gate knows the identity from another partition, topic or topology",
            Reason::Conflict => "the provider was called for something else with this identity and version",
            Reason::InDoubt => "the call may have happened, and nothing more can be found out",
            Reason::Unavailable => "the attempts to call the provider are exhausted",
        }
    }
}
