//! A schema as text, with the texts of the schemas that it refers to.

/// The language of a schema.
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
    /// Its name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Avro => "Avro",
            Self::Protobuf => "Protobuf",
            Self::JsonSchema => "JSON Schema",
        }
    }

    /// The language that registries call `AVRO`, `PROTOBUF` or `JSON`, in any case.
    pub fn of_registry(name: &str) -> Option<Self> {
        let named = [("AVRO", Self::Avro), ("PROTOBUF", Self::Protobuf), ("JSON", Self::JsonSchema)];
        named.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, language)| *language)
    }
}

/// How a schema refers to another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The name that the schema uses: of a type (Avro), an import (Protobuf), a URL (JSON Schema).
    pub name: String,
    /// The subject, or the artifact, under which the other schema is registered.
    pub subject: String,
    /// The version of the other schema.
    pub version: String,
}

/// A schema with the schemas that it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its language.
    pub language: Language,
    /// Its text.
    pub text: String,
    /// The names and the texts of the schemas that it refers to, directly or not. Each comes after the ones that it
    /// refers to itself.
    pub references: Vec<(String, String)>,
}

impl Written {
    /// A schema that refers to no other.
    pub fn alone(language: Language, text: impl Into<String>) -> Self {
        Self { language, text: text.into(), references: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a language is found by the name that registries use.

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
