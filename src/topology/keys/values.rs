//! Types of values that several keys take.

use crate::yaml::keys::Type;

pub const NAME: Type = Type::Text("a string");
pub const TOPIC: Type = Type::Text("a topic's name");
pub const PATH: Type = Type::Defined("a path", "path");
pub const PATHS: Type = Type::List("a list of paths", &PATH);
pub const PLACE: Type = Type::Defined("a path, or `{first_of: [...]}`", "places");
pub const IDENTITY_OF: Type = Type::Defined("a path, or a list of paths", "identity");
pub const EMPTY_MEANS_MISSING: Type = Type::List("a list of values that count as missing", &Type::Scalar);
pub const FROM_0: Type = Type::Integer("a whole number from 0", 0, i64::MAX as u64);
pub const FROM_1: Type = Type::Integer("a whole number from 1", 1, i64::MAX as u64);

/// The words of a type that has `ALL` and `as_str`.
macro_rules! words {
    ($type:ty) => {
        $crate::yaml::keys::Type::Words(|| <$type>::ALL.iter().map(|value| value.as_str().to_owned()).collect())
    };
}
pub(crate) use words;
