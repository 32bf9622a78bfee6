//! A provider that is called over HTTP, compiled: the request that a record makes, and what becomes of it.
//!
//! What the request is in a given record is the matter of the room `rendering`; what becomes of a call, of
//! [`crate::effect::call`].

use std::fmt;

use crate::dedup::Places;

use super::Terms;
use template::Template;

pub mod address;
pub(in crate::topology) mod compile;
pub(in crate::topology) mod keys;
pub(in crate::topology) mod spec;
pub mod template;

/// A provider, and what records make it do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// The address, which [`address::Address`] can read. Path and query may hold parts of the record,
    /// percent-encoded; the host only with [`Http::hosts`].
    pub url: Template,
    /// The hosts, with or without a port, that a record may name. Empty if it names none.
    pub hosts: Vec<String>,
    /// The method.
    pub method: Method,
    /// Names and values of the headers, in the topology's order; no name stands there twice, and none is the key's.
    pub headers: Vec<(String, Template)>,
    /// The body.
    pub body: Body,
    /// The header that carries the idempotency key; `None` if the provider honours none.
    pub key: Option<String>,
    /// How calls are made, and what becomes of them.
    pub terms: Terms,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
    /// `GET`.
    Get,
}

impl Method {
    /// All of them.
    pub const ALL: &[Method] = &[Method::Post, Method::Put, Method::Patch, Method::Delete, Method::Get];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Get => "GET",
        }
    }
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The record's value, byte for byte.
    Value,
    /// JSON that is made of parts of the record.
    Json(Json),
    /// None.
    None,
}

/// JSON that is made of parts of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// The first of these that is there and not null: JSON as it stands in the record, other texts as strings; null if
    /// there is none.
    At(Places),
    /// An object with these fields, in this order.
    Object(Vec<(String, Json)>),
    /// A list of these.
    List(Vec<Json>),
}

/// As it may be written in a topology.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(places) => write_all(f, places, " or ", |f, path| write!(f, "{path}")),
            Self::Object(fields) => {
                f.write_str("{")?;
                write_all(f, fields, ", ", |f, (name, json)| write!(f, "{name:?}: {json}"))?;
                f.write_str("}")
            }
            Self::List(items) => {
                f.write_str("[")?;
                write_all(f, items, ", ", |f, json| write!(f, "{json}"))?;
                f.write_str("]")
            }
        }
    }
}

fn write_all<T>(
    f: &mut fmt::Formatter<'_>,
    all: &[T],
    between: &str,
    write: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    all.iter().enumerate().try_for_each(|(number, one)| {
        if number > 0 {
            f.write_str(between)?;
        }
        write(f, one)
    })
}
