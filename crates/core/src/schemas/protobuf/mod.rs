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
//! - **Indexes of messages**: see [`Schema::at`].
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

/// The result of following indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The message with this number.
    Message(usize),
    /// No message.
    Nothing,
    /// One of two messages: the first if those count that fields declare, the second if they do not.
    Either(usize, usize),
}

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

    /// The number of the message with these indexes; `None` if there is no such message, or if two may be meant. The first
    /// index is that of a message of the file, each further one that of a message declared in the message before it.
    pub fn message(&self, indexes: &[i32]) -> Option<usize> {
        match self.at(indexes) {
            At::Message(number) => Some(number),
            At::Nothing | At::Either(..) => None,
        }
    }

    /// Follows indexes.
    ///
    /// Clients disagree on whether the messages count that fields declare: the entries of maps, and groups. Clients that
    /// count by descriptors (Confluent's for Go, Python and .NET) count them. Clients that count by texts (Confluent's for
    /// Java, Apicurio's) count what the text declares by `message`. That may include entries: these clients write
    /// descriptors as texts with `option map_entry = true`.
    pub fn at(&self, indexes: &[i32]) -> At {
        match (self.follow(indexes, |_| true), self.follow(indexes, |message| !message.is_of_field)) {
            (Some(one), Some(other)) if one != other => At::Either(one, other),
            (Some(found), _) | (None, Some(found)) => At::Message(found),
            (None, None) => At::Nothing,
        }
    }

    /// The message with these indexes among those that count. No record is the entry of a map.
    fn follow(&self, indexes: &[i32], counts: impl Fn(&Message) -> bool) -> Option<usize> {
        let messages = &self.graph.messages;
        let (mut list, mut found) = (&self.graph.roots, None);
        for index in indexes {
            let mut counted = list.iter().copied().filter(|number| counts(&messages[*number]));
            let number = counted.nth(usize::try_from(*index).ok()?)?;
            (list, found) = (&messages[number].nested, Some(number));
        }
        found.filter(|number| !messages[*number].is_entry)
    }

    /// The number of the message with this name, with the package or without it.
    pub fn named(&self, name: &str) -> Option<usize> {
        let name = name.strip_prefix('.').unwrap_or(name);
        let without = name.strip_prefix(&*self.graph.package).and_then(|rest| rest.strip_prefix('.'));
        self.within(name).or_else(|| self.within(without?))
    }

    /// The number of the message with this name within the package.
    fn within(&self, name: &str) -> Option<usize> {
        let messages = &self.graph.messages;
        let (mut list, mut found) = (&self.graph.roots, None);
        for part in name.split('.') {
            let number = list.iter().copied().find(|number| *messages[*number].name == *part)?;
            (list, found) = (&messages[number].nested, Some(number));
        }
        found.filter(|number| !messages[*number].is_entry)
    }

    /// The number of the message at this place if all messages of the file are sorted by their names. The entries of
    /// maps are among them, as for AWS Glue's serializer (`MessageIndexFinder`), but no record is one.
    pub fn sorted(&self, place: usize) -> Option<usize> {
        let messages = &self.graph.messages;
        let below = |of: &str, list: &[usize]| -> Vec<(String, usize)> {
            list.iter().map(|number| (format!("{of}{}", messages[*number].name), *number)).collect()
        };
        let (mut open, mut all) = (below("", &self.graph.roots), Vec::new());
        while let Some((name, number)) = open.pop() {
            open.extend(below(&format!("{name}."), &messages[number].nested));
            all.push((name, number));
        }
        all.sort_unstable();
        all.get(place).map(|(_, number)| *number).filter(|number| !messages[*number].is_entry)
    }

    /// The only message that is declared at the top.
    ///
    /// # Errors
    /// How many there are.
    pub fn only(&self) -> Result<usize, usize> {
        match self.graph.roots[..] {
            [only] => Ok(only),
            ref more => Err(more.len()),
        }
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
