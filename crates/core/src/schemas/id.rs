//! The ids by which records name their schemas.

use std::fmt;

/// The id by which a record names its schema. Its serializer decides which kind of id a record carries: see
/// [`super::framing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id {
    /// A number of four bytes, from Confluent's serializers, and from Apicurio's since 3.
    Number(u32),
    /// A number of eight bytes, from Apicurio's serializers before 3.
    Long(u64),
    /// A GUID of Confluent's registry, the same in all of its clusters.
    Guid([u8; 16]),
    /// Apicurio's id of one version of an artifact.
    Global(u64),
    /// Apicurio's id of a content, which several versions may share.
    Content(u64),
    /// AWS Glue's id of a schema version.
    Glue([u8; 16]),
    /// The fingerprint (CRC-64-AVRO) of an Avro schema: see [`super::fingerprint`].
    Fingerprint(u64),
}

impl Id {
    /// The number, if the id is one, whichever registry gave it.
    pub fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number.into()),
            Self::Long(number) | Self::Global(number) | Self::Content(number) => Some(number),
            Self::Guid(_) | Self::Glue(_) | Self::Fingerprint(_) => None,
        }
    }

    /// The UUID, if the id is one.
    pub fn uuid(self) -> Option<[u8; 16]> {
        match self {
            Self::Guid(uuid) | Self::Glue(uuid) => Some(uuid),
            _ => None,
        }
    }
}

/// As messages name the schema: `schema 5`, `the schema with the GUID …`.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "schema {number}"),
            Self::Long(number) => write!(f, "schema {number} (of eight bytes)"),
            Self::Guid(uuid) => write!(f, "the schema with the GUID {}", hyphenated(*uuid)),
            Self::Global(number) => write!(f, "the schema with the global id {number}"),
            Self::Content(number) => write!(f, "the schema with the content id {number}"),
            Self::Glue(uuid) => write!(f, "AWS Glue's schema version {}", hyphenated(*uuid)),
            Self::Fingerprint(print) => write!(f, "the Avro schema with the fingerprint {print:016x}"),
        }
    }
}

/// Where a UUID's text has hyphens.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// The text of a UUID: in lower case, with hyphens.
pub fn hyphenated(uuid: [u8; 16]) -> String {
    uuid_text(uuid).map(char::from).iter().collect()
}

/// As [`hyphenated`], without an allocation: the text is ASCII.
pub(crate) fn uuid_text(uuid: [u8; 16]) -> [u8; 36] {
    let mut text = [b'-'; 36];
    let digits = uuid.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    for (at, digit) in (0..text.len()).filter(|at| !HYPHENS.contains(at)).zip(digits) {
        text[at] = b"0123456789abcdef"[usize::from(digit)];
    }
    text
}

/// The UUID with this text, which may have hyphens or not; `None` for any other text.
pub fn uuid_of(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    let has_hyphens = match text.len() {
        32 => false,
        36 if HYPHENS.iter().all(|&at| text[at] == b'-') => true,
        _ => return None,
    };
    let mut digits = text.iter().enumerate().filter(|(at, _)| !has_hyphens || !HYPHENS.contains(at));
    let mut digit = || u8::try_from(char::from(*digits.next()?.1).to_digit(16)?).ok();
    let mut uuid = [0; 16];
    for byte in &mut uuid {
        *byte = digit()? << 4 | digit()?;
    }
    Some(uuid)
}

#[cfg(test)]
mod tests {
    //! Goal: ids are written and read as people write them.

    use super::*;

    #[test]
    fn uuid_is_read_with_and_without_hyphens() {
        let text = "89791762-2336-186f-9674-299b90a8e2e1";
        let uuid = uuid_of(text).unwrap();
        assert_eq!(uuid[..3], [0x89, 0x79, 0x17]);
        assert_eq!(uuid_of(&text.replace('-', "").to_uppercase()), Some(uuid));
        assert_eq!(hyphenated(uuid), text);
    }

    #[test]
    fn other_texts_are_not_uuids() {
        for text in [
            "",
            "5",
            "89791762-2336-186f-9674-299b90a8e2e",
            "89791762-2336-186f-9674-299b90a8e2eg",
            "-9791762-2336-186f-9674-299b90a8e2e1",
            "ääääääääääääääää",
            "897917622336186f9674299b90a8e2e1--",
        ] {
            assert_eq!(uuid_of(text), None, "{text}");
        }
    }

    #[test]
    fn messages_name_each_kind_of_id() {
        let uuid = uuid_of("89791762-2336-186f-9674-299b90a8e2e1").unwrap();
        assert_eq!(Id::Number(5).to_string(), "schema 5");
        assert_eq!(Id::Guid(uuid).to_string(), "the schema with the GUID 89791762-2336-186f-9674-299b90a8e2e1");
        assert_eq!(Id::Fingerprint(255).to_string(), "the Avro schema with the fingerprint 00000000000000ff");
    }
}
