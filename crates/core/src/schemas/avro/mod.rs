//! Avro schemas: JSON parsed into a graph of types with every name resolved.
//!
//! Attributes that no reader needs (defaults, orders, documentation) are left out. A logical type that does not fit its
//! type is ignored, as the specification says. Names are not checked against Avro's grammar, since not every writer
//! keeps to it: records have to be readable all the same.
//!
//! Kafka Connect's attributes `connect.name` and `connect.parameters` are kept: the Avro converter writes there the
//! `name` and the `parameters` that a schema beside a JSON payload has.

mod graph;
mod parse;

pub use graph::Schema;
pub(crate) use graph::{DURATION, Field, Fixed, Kind, Logical, Record, Type, TypeId, Unit};
pub(in crate::schemas) use parse::{full_name, namespace_of, primitive};

#[cfg(test)]
mod tests;
