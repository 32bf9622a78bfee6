//! Files that schemas import and registries leave out, and the well-known messages in them.

use super::graph::{Known, Many, Message, Scalar, Type};

macro_rules! files {
    ($($name:literal),* $(,)?) => { [$(($name, include_str!(concat!("known/", $name)))),*] };
}

/// The files that are built in, by the names by which they are imported.
const FILES: [(&str, &str); 31] = files![
    "confluent/meta.proto",
    "confluent/type/decimal.proto",
    "confluent/type/variant.proto",
    "google/protobuf/any.proto",
    "google/protobuf/api.proto",
    "google/protobuf/descriptor.proto",
    "google/protobuf/duration.proto",
    "google/protobuf/empty.proto",
    "google/protobuf/field_mask.proto",
    "google/protobuf/source_context.proto",
    "google/protobuf/struct.proto",
    "google/protobuf/timestamp.proto",
    "google/protobuf/type.proto",
    "google/protobuf/wrappers.proto",
    "google/type/calendar_period.proto",
    "google/type/color.proto",
    "google/type/date.proto",
    "google/type/datetime.proto",
    "google/type/dayofweek.proto",
    "google/type/decimal.proto",
    "google/type/expr.proto",
    "google/type/fraction.proto",
    "google/type/interval.proto",
    "google/type/latlng.proto",
    "google/type/localized_text.proto",
    "google/type/money.proto",
    "google/type/month.proto",
    "google/type/phone_number.proto",
    "google/type/postal_address.proto",
    "google/type/quaternion.proto",
    "google/type/timeofday.proto",
];

/// The former name of Confluent's decimals.
const OLD_DECIMAL: &str = "confluent/types/decimal.proto";

/// The names of all built-in files.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name).chain([OLD_DECIMAL])
}

/// The name and the text of the built-in file with this name.
pub(super) fn file(name: &str) -> Option<(&'static str, &'static str)> {
    let name = if name == OLD_DECIMAL { "confluent/type/decimal.proto" } else { name };
    FILES.iter().find(|(known, _)| *known == name).copied()
}

/// The well-known message that a message of this package is. One with other fields than expected is an ordinary
/// message.
pub(super) fn known(package: &str, message: &Message) -> Known {
    use Scalar::{Bytes, Int32, Int64, String, Uint32};
    let known = match (package, &*message.name) {
        ("google.protobuf", "Any") => Known::Any,
        ("google.protobuf", "Timestamp") => Known::Timestamp,
        ("google.protobuf", "Duration") => Known::Duration,
        ("google.protobuf", "FieldMask") => Known::FieldMask,
        ("google.protobuf", "Struct") => Known::Struct,
        ("google.protobuf", "Value") => Known::Value,
        ("google.protobuf", "ListValue") => Known::ListValue,
        ("google.protobuf", name) if is_wrapper(name) => Known::Wrapper,
        ("confluent.type", "Decimal") => Known::Decimal,
        _ => return Known::None,
    };
    let fields: Vec<_> = message.fields.iter().map(|field| (field.number, field.many, field.of)).collect();
    let is = |scalars: &[Scalar]| {
        let fields = fields.iter().map(|(number, many, of)| (*number, *many, *of));
        let expected = (1..).zip(scalars).map(|(number, scalar)| (number, Many::One, Type::Scalar(*scalar)));
        fields.eq(expected)
    };
    let fits = match known {
        Known::None => false,
        Known::Any => is(&[String, Bytes]),
        Known::Timestamp | Known::Duration => is(&[Int64, Int32]),
        Known::FieldMask => fields == [(1, Many::List, Type::Scalar(String))],
        Known::Wrapper => matches!(fields[..], [(1, Many::One, Type::Scalar(_))]),
        Known::Decimal => is(&[Bytes, Uint32, Int32]),
        Known::Struct => matches!(fields[..], [(1, Many::Map, _)]),
        Known::ListValue => matches!(fields[..], [(1, Many::List, Type::Message(_))]),
        Known::Value => fields.len() == 6 && message.fields.iter().all(|field| field.group == 0),
    };
    if fits { known } else { Known::None }
}

fn is_wrapper(name: &str) -> bool {
    const OF: [&str; 9] = ["Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"];
    name.strip_suffix("Value").is_some_and(|of| OF.contains(&of))
}

/// Checks Struct, Value and ListValue, which contain each other: if one of them is not as expected, all are ordinary
/// messages.
pub(super) fn check(messages: &mut [Message]) {
    let holds = |message: &Message, number: usize, inner: Known| {
        let of = message.fields.get(number).map(|field| field.of);
        matches!(of, Some(Type::Message(of)) if messages[of].known == inner)
    };
    let is_value = |message: &Message| {
        use Scalar::{Bool, Double, String};
        let scalars = [Double, String, Bool].map(Type::Scalar);
        message.fields[1..4].iter().map(|field| field.of).eq(scalars)
            && matches!(message.fields[0].of, Type::Enum(_))
            && holds(message, 4, Known::Struct)
            && holds(message, 5, Known::ListValue)
    };
    let fits = messages.iter().all(|message| match message.known {
        Known::Value => is_value(message),
        Known::ListValue => holds(message, 0, Known::Value),
        Known::Struct => match message.fields[0].of {
            Type::Message(entry) => holds(&messages[entry], 1, Known::Value),
            _ => false,
        },
        _ => true,
    });
    if !fits {
        let inner = messages.iter_mut();
        let special = inner.filter(|message| matches!(message.known, Known::Struct | Known::Value | Known::ListValue));
        special.for_each(|message| message.known = Known::None);
    }
}
