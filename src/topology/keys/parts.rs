//! The keys of parts of an identity and of contents, and of places.

use super::{IDENTITY_OF, PATH, PATHS};
use crate::yaml::keys::{Key, Mapping, Type};

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
