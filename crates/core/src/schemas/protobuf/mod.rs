//! Protobuf schemas: .proto texts, or descriptors in base64, parsed into a graph of messages.
//!
//! [`Schema::parse`] reads proto2, proto3 and editions. It resolves for each field its number, its type, whether it is
//! repeated or a map, its oneof, and its default.
//!
//! - Names are found in all imported files, whether an import is public or not. A missing import is an error only if a
//!   type from it is used: many schemas import options that no reader needs.
//! - The files that registries leave out (`known`) are built in; a reference with the same name takes precedence.
//! - Extensions are unknown fields, as are fields on the wire whose type does not match.
//! - Closed and open enums are read alike: a number without a name stays a number.
//! - **Indexes of messages**: see [`Schema::message`].
//!
//! **Failure.** An invalid text gives a [`SchemaError`] with the line and the column. Work and memory are linear in the
//! texts: declarations are nested at most `NESTED_MAX` deep.

use std::sync::Arc;

mod descriptor;
mod file;
mod graph;
mod known;
mod lex;
mod names;
mod parser;
mod resolve;
mod text;
pub mod wire;

use super::SchemaError;

pub(crate) use names::push_camel_case;

pub use graph::{Constant, Enum, Field, Graph, Inside, Known, Many, Message, Place, Scalar, Type};

/// A schema, cheap to clone.
#[derive(Clone, Debug)]
pub struct Schema {
    graph: Arc<Graph>,
}

impl Schema {
    /// Parses a schema: a .proto text, or a serialized `FileDescriptorProto` in base64. `references` are such texts,
    /// with the names by which they are imported.
    ///
    /// # Errors
    /// The text is not a schema, or a type that it uses is not declared.
    pub fn parse(text: &str, references: &[(&str, &str)]) -> Result<Self, SchemaError> {
        resolve::resolve(text, references).map(|graph| Self { graph: Arc::new(graph) })
    }

    /// The messages and enums.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// The number of the message with these indexes: the first is that of a message of the file, each further one that
    /// of a message declared in the message before it.
    ///
    /// Clients disagree on whether the entries of maps are counted. Confluent's registry and its client for Java count
    /// those that the schema declares as messages, which that client does itself, and none for a field written
    /// `map<…>`. The clients for Python, Go and .NET count all of them, where protoc places them; that for JavaScript
    /// counts none. The registry's way comes first; indexes that lead to no message, or to an entry, are followed in
    /// the other two.
    pub fn message(&self, indexes: &[i32]) -> Option<usize> {
        let declared = self.follow(indexes, |message| !message.is_synthetic);
        declared
            .or_else(|| self.follow(indexes, |_| true))
            .or_else(|| self.follow(indexes, |message| !message.is_entry))
    }

    /// The message with these indexes among those that count.
    fn follow(&self, indexes: &[i32], counts: impl Fn(&Message) -> bool) -> Option<usize> {
        let messages = &self.graph.messages;
        let mut list = &self.graph.roots;
        let mut found = None;
        for index in indexes {
            let mut counted = list.iter().copied().filter(|number| counts(&messages[*number]));
            let number = counted.nth(usize::try_from(*index).ok()?)?;
            (found, list) = (Some(number), &messages[number].nested);
        }
        found.filter(|number| !messages[*number].is_entry)
    }

    /// The number of the message with this name, which may begin with the package.
    pub fn named(&self, name: &str) -> Option<usize> {
        let parts: Vec<&str> = name.split('.').collect();
        (0..parts.len()).find_map(|from| {
            let mut list = &self.graph.roots;
            let mut found = None;
            for part in &parts[from..] {
                let number = list.iter().copied().find(|number| *self.graph.messages[*number].name == **part)?;
                (found, list) = (Some(number), &self.graph.messages[number].nested);
            }
            found
        })
    }

    /// The number of the message at this place if all messages of the file are sorted by their names. The entries of
    /// maps are among them, as for AWS Glue's serializer (`MessageIndexFinder`).
    pub fn sorted(&self, place: usize) -> Option<usize> {
        let below = |of: &str, list: &[usize]| -> Vec<(String, usize)> {
            let name = |number: &usize| format!("{of}{}", self.graph.messages[*number].name);
            list.iter().map(|number| (name(number), *number)).collect()
        };
        let (mut open, mut all) = (below("", &self.graph.roots), Vec::new());
        while let Some((name, number)) = open.pop() {
            open.extend(below(&format!("{name}."), &self.graph.messages[number].nested));
            all.push((name, number));
        }
        all.sort_unstable();
        all.get(place).map(|(_, number)| *number)
    }

    /// Whether these steps can lead to a value in the message with these indexes.
    pub fn has(&self, message: &[i32], steps: &[String]) -> bool {
        let graph = &self.graph;
        let Some(message) = self.message(message) else { return false };
        let mut at = Place { of: Type::Message(message), many: Many::One };
        for step in steps {
            match graph.step(at, step) {
                Some(Inside::Place(inner)) => at = inner,
                Some(Inside::Anything) => return true,
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
