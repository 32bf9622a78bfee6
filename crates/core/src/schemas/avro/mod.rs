//! Avro's schemas: a text of JSON as a graph of types, in which each name is the type that it stands for.
//!
//! Attributes that no reader needs (defaults, orders, documentation) are left out. A logical type that contradicts its
//! type does not count, as the specification says. Names are not checked by its grammar, for not every writer does:
//! what matters is that records can be read.
//!
//! Of Kafka Connect's attributes, `connect.name` and `connect.parameters` are kept: its converter writes there what
//! `name` and `parameters` are in a schema beside a payload in JSON.

mod graph;
mod parse;

pub use graph::Schema;
pub(crate) use graph::{DURATION, Field, Fixed, Kind, Logical, Record, Type, TypeId, Unit};
pub(in crate::schemas) use parse::{full_name, namespace_of, primitive};

#[cfg(test)]
mod tests;
