//! The words that stand in topologies, metrics, headers and explanations: each once, with its text.

/// Declares an enum whose variants have one word each, and the ways from and to that word.
macro_rules! vocabulary {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every one of them, in the order of their discriminants.
            pub const ALL: &[$name] = &[$($name::$variant,)+];

            /// The word for it.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }

            /// What this word stands for; `None` for any other.
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
    /// How a key's or a value's bytes are to be read.
    pub enum Format {
        /// As they are: nothing can be read inside them.
        Bytes = "bytes",
        /// As one JSON document.
        Json = "json",
    }
}

vocabulary! {
    /// What to do with a record.
    pub enum Action {
        /// Send it to the output.
        Forward = "forward",
        /// Send it nowhere.
        Drop = "drop",
        /// Send it to the dead letter topic, with what was wrong.
        DeadLetter = "dead_letter",
        /// Stop the task in front of it.
        Fail = "fail",
    }
}

vocabulary! {
    /// What became of a record.
    pub enum Verdict {
        /// It went to the output.
        Forwarded = "forwarded",
        /// It was there before.
        Duplicate = "duplicate",
        /// Something newer was there before.
        Stale = "stale",
        /// It could not be judged.
        Invalid = "invalid",
    }
}

vocabulary! {
    /// Why a record got its verdict.
    pub enum Reason {
        /// Nothing was remembered of its identity.
        First = "first",
        /// Its version is greater than the one remembered, or none was.
        Newer = "newer",
        /// What was remembered of its identity had expired.
        Expired = "expired",
        /// Its version is the one remembered.
        VersionEqual = "version_equal",
        /// It has no version, or null.
        VersionMissing = "version_missing",
        /// Its identity was seen before.
        Seen = "seen",
        /// Its offset was processed before: the input is being read again.
        Replayed = "replayed",
        /// Its version is less than the one remembered.
        VersionOlder = "version_older",
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
        /// Its version is no integer, or one of more digits than the limit allows.
        VersionNotInteger = "version_not_integer",
        /// Its timestamp is too far beyond the wall clock to be believed.
        TimestampInFuture = "timestamp_in_future",
        /// It is older than the retention horizon, so what it would have to be compared with is gone.
        Late = "late",
        /// It takes more bytes than the limit allows.
        RecordTooLarge = "record_too_large",
        /// The output refuses it.
        Unsendable = "unsendable",
    }
}

impl Reason {
    /// The reason as a sentence's worth of words, for where no [`super::Refusal`] has a closer message.
    pub const fn meaning(self) -> &'static str {
        match self {
            Reason::First => "nothing was remembered of the identity",
            Reason::Newer => "the version is greater than the one remembered",
            Reason::Expired => "what was remembered of the identity had expired",
            Reason::VersionEqual => "the version is the one remembered",
            Reason::VersionMissing => "the record has no version",
            Reason::Seen => "the identity was seen before",
            Reason::Replayed => "the offset was processed before",
            Reason::VersionOlder => "the version is less than the one remembered",
            Reason::NullValue => "the value is null",
            Reason::IdentityMissing => "a part of the identity is missing",
            Reason::IdentityNotScalar => "a part of the identity is an object or an array",
            Reason::IdentityTooLong => "the identity takes more bytes than the limit allows",
            Reason::KeyMalformed => "the key is not JSON",
            Reason::ValueMalformed => "the value is not JSON",
            Reason::VersionNotInteger => "the version is not an integer",
            Reason::TimestampInFuture => "the timestamp is too far beyond the wall clock",
            Reason::Late => "the record is older than the retention horizon",
            Reason::RecordTooLarge => "the record takes more bytes than the limit allows",
            Reason::Unsendable => "the output refuses the record",
        }
    }
}
