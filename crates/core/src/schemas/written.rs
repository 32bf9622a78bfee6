//! A schema as it was written: its text, and the texts of all that it refers to.

/// What a schema is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// Apache Avro: JSON.
    Avro,
    /// Protocol Buffers: a `.proto` file, or a `FileDescriptorProto` in base64.
    Protobuf,
    /// JSON Schema: the records are JSON.
    JsonSchema,
}

impl Language {
    /// As people call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Avro => "Avro",
            Self::Protobuf => "Protobuf",
            Self::JsonSchema => "JSON Schema",
        }
    }

    /// By the name that registries have for it, in any case: `AVRO`, `PROTOBUF`, `JSON`.
    pub fn of_registry(name: &str) -> Option<Self> {
        let named = [("AVRO", Self::Avro), ("PROTOBUF", Self::Protobuf), ("JSON", Self::JsonSchema)];
        named.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, language)| *language)
    }
}

/// How a schema refers to another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// What the schema calls it: a type's name (Avro), an import (Protobuf), a URL (JSON Schema).
    pub name: String,
    /// The subject, or the artifact, that it is registered as.
    pub subject: String,
    /// The version of it.
    pub version: String,
}

/// A schema with all that it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// What it is written in.
    pub language: Language,
    /// Its text.
    pub text: String,
    /// The schemas that it refers to, directly or by others, by the names that it has for them: each comes after those
    /// that it refers to itself.
    pub references: Vec<(String, String)>,
}

impl Written {
    /// One that refers to no other.
    pub fn alone(language: Language, text: impl Into<String>) -> Self {
        Self { language, text: text.into(), references: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a language is found by a registry's name for it.

    use super::*;

    #[test]
    fn languages_have_the_names_of_registries() {
        for (name, language) in
            [("AVRO", Language::Avro), ("Protobuf", Language::Protobuf), ("JSON", Language::JsonSchema)]
        {
            assert_eq!(Language::of_registry(name), Some(language));
        }
        assert_eq!(Language::of_registry("OPENAPI"), None);
    }
}
