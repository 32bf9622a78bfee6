//! The keys of the parts that rules consist of: of an identity, a version, an epoch, contents, a table's name, and of
//! places.

use super::values::{EMPTY_MEANS_MISSING, FROM_0, IDENTITY_OF, PATH, PATHS, PLACE, words};
use crate::dedup::{MissingPart, TimeUnit, VersionKind};
use crate::yaml::keys::{Key, Mapping, Omitted, Type};

/// A part of an identity, written as a mapping.
pub static PART: Mapping = Mapping {
    one_of: &["const", "content", "fingerprint", "bucket", "first_of", "rows"],
    needs: &[("except", "fingerprint"), ("named", "rows"), ("rows", "named")],
    ..Mapping::of(&[
        Key::optional("const", Type::Scalar, "{const: payments}", "a constant; only next to other parts"),
        Key::optional(
            "content",
            PATH,
            "{content: value.after}",
            "any JSON value: the order of fields and the whitespace do not matter, types do",
        ),
        Key::optional(
            "fingerprint",
            PATH,
            "{fingerprint: value, except: [value.sent_at]}",
            "SHA-256 of the canonical JSON ([RFC 8785](https://www.rfc-editor.org/rfc/rfc8785)) at that path, without \
             what `except` names. One deviation: a number that a double cannot hold exactly is written with its exact digits \
             instead of being rounded, so that two ids never become one",
        ),
        Key::optional("except", PATHS, "except: [value.sent_at]", "paths in it to leave out"),
        Key::optional(
            "bucket",
            Type::Duration,
            "{bucket: 1h}",
            "the tumbling bucket that the record's timestamp falls into: one of a kind per hour",
        ),
        Key::optional(
            "first_of",
            Type::List("a list of alternatives", &IDENTITY_OF),
            "{first_of: [value.uuid, [value.shop, value.number]]}",
            "the first alternative of which no part is missing",
        ),
        Key::optional(
            "rows",
            Type::Defined("a path", "places"),
            "{rows: value.data, named: [id]}",
            "these fields of an object, or of each object of an array; `named: value.pkNames` reads their names from the \
             record",
        ),
        Key::optional(
            "named",
            Type::AnyOf(
                "a list of fields' names, or the path of one",
                &[PATH, Type::List("a list of fields' names", &Type::Text("a field's name"))],
            ),
            "{rows: value.data, named: [id]}",
            "the names of the fields that identify a row, or where they stand",
        ),
    ])
};

/// A part of a version.
pub static VERSION: Mapping = Mapping::of(&[
    Key::required("of", PLACE, "version: {of: value.version, as: integer}", "a path, or `{first_of: [...]}`"),
    Key::required(
        "as",
        words!(VersionKind),
        "version: {of: value.version, as: integer}",
        "how it is read and compared",
    ),
    Key::optional(
        "at_least",
        PLACE,
        "{of: value.lsn, at_least: value.sequence, as: integer}",
        "with `as: integer`, a path or `{first_of: [...]}`: a part that is less than that value is raised to it. An \
         integer, or an array of integers and nulls, also as text, of which the greatest counts; nothing, where there is \
         none",
    ),
    Key::optional(
        "min",
        FROM_0,
        "min: 0",
        "with `as: integer`, the least that it can be, 0 or more: less makes the record invalid, or counts as missing if it is `lenient`. It is not part of the rules' digest",
    ),
    Key::optional("none", EMPTY_MEANS_MISSING, "none: [0]", "a list of values that count as missing"),
    Key::optional(
        "lenient",
        Type::Boolean,
        "lenient: true",
        "`true`: a value that cannot be read counts as missing, instead of making the record invalid",
    )
    .or(Omitted::Is("false")),
    Key::optional("required", Type::Boolean, "required: true", "`true`: without this part the record has no version")
        .or(Omitted::Is("false")),
    Key::optional(
        "missing",
        words!(MissingPart),
        "missing: lowest",
        "where the part sorts when it is missing: `lowest`, `highest`, or `at_least`: where the value of its `at_least` \
         does, if there is one. `at_least` is not part of the rules' digest: what is remembered by `lowest` stays \
         readable",
    )
    .or(Omitted::Is("lowest")),
    Key::optional(
        "unit",
        words!(TimeUnit),
        "unit: ms",
        "with `as: timestamp`, what a number counts: `s`, `ms`, `us` or `ns`",
    )
    .or(Omitted::Is("ms")),
]);

/// A part of an epoch, written as a mapping.
pub static EPOCH_PART: Mapping = Mapping {
    one_of: &["of", "const"],
    needs: &[("none", "of")],
    ..Mapping::of(&[
        Key::optional("of", PLACE, "epoch: [{of: value.server_id, none: [0]}]", "a path, or `{first_of: [...]}`"),
        Key::optional("none", EMPTY_MEANS_MISSING, "none: [0]", "a list of values that count as missing"),
        Key::optional(
            "const",
            Type::Scalar,
            "{const: payments}",
            "always the same; changing it by hand begins a new epoch",
        ),
    ])
};

/// The word for contents that are not compared.
pub const CONTENTS_NONE: &str = "none";

/// A part of the contents, written as a mapping.
pub static CONTENTS_PART: Mapping = Mapping {
    one_of: &["fingerprint", "rows", "flattened", "first_of"],
    needs: &[("except", "fingerprint")],
    ..Mapping::of(&[
        Key::optional(
            "fingerprint",
            PATH,
            "{fingerprint: value, except: [value.sent_at]}",
            "the canonical JSON at that path without what `except` names, as for an [identity](#identity): for producers \
             that write the same thing in different ways, or add something new to each delivery",
        ),
        Key::optional("except", PATHS, "except: [value.sent_at]", "paths in it to leave out"),
        Key::optional(
            "rows",
            Type::Defined("a path", "places"),
            "{rows: value.data}",
            "where the identity has `rows`: each row's own object",
        ),
        Key::optional(
            "flattened",
            PATH,
            "{flattened: value}",
            "a row that Debezium flattened, without the fields that `add.fields` added, whose names begin with `__`; missing \
             where no field's name does",
        ),
        Key::optional(
            "first_of",
            Type::List("a list of parts", &Type::Defined("a list of parts", "contents_part")),
            "{first_of: [{flattened: value}, value.after]}",
            "the first part that is not missing",
        ),
    ])
};

/// Several places to try, in place of a path.
pub static PLACES: Mapping = Mapping::of(&[Key::required(
    "first_of",
    PATHS,
    "first_of: [value.id, value.uuid]",
    "the first of these that is present and not null",
)]);

/// A part of a table's name, written as a mapping.
pub static TABLE_PART: Mapping = Mapping::of(&[
    Key::optional(
        "first_of",
        PATHS,
        "first_of: [value.id, value.uuid]",
        "the first of these that is present and not null",
    ),
    Key::optional("const", Type::Scalar, "{const: payments}", "always the same"),
]);
