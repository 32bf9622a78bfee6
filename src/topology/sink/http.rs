//! A provider that is called over HTTP, compiled: the request that a record makes, and what becomes of it.
//!
//! What the request is in a given record is the matter of the room `rendering`; what becomes of a call, of
//! [`crate::effect::call`].

use std::fmt;
use std::time::Duration;

use crate::dedup::{Action, Kind, Places};
use crate::effect::call::Policy;
use crate::yaml::units;

use super::template::Template;

/// How many calls of a lane can be under way at most.
pub const IN_FLIGHT_MAX: usize = 1024;
/// The largest result that is kept, in bytes; of a larger one, the digest is.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;

/// A provider, and what records make it do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// The address, which [`super::address::Address`] can read. Path and query may hold parts of the record,
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
    /// How long an attempt may take.
    pub timeout: Duration,
    /// How many calls of a lane are under way at most.
    pub in_flight: usize,
    /// How many calls of a lane are begun in a time at most.
    pub rate: Option<Rate>,
    /// How calls are made.
    pub policy: Policy,
    /// What becomes of a record that the provider, or ratchet before it, refuses: also of one that no request can be made
    /// of.
    pub on_rejected: Action,
    /// What becomes of a record that asks for something else under a key that was used.
    pub on_conflict: Action,
    /// Where what was answered goes.
    pub result: Option<Results>,
    /// What a duplicate gets.
    pub on_duplicate: OnDuplicate,
}

impl Http {
    /// Whether a record of this kind makes a call. One that does not is remembered, and has no effect: a tombstone has no
    /// version of its own, so its call would have the key of the delete before it.
    pub const fn is_called_by(kind: Kind) -> bool {
        !matches!(kind, Kind::Tombstone)
    }
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

/// How many calls are begun in a time at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many; at least 1.
    pub calls: u32,
    /// In what time.
    pub per: Duration,
}

impl Rate {
    const UNITS: &[(&str, Duration)] =
        &[("s", Duration::from_secs(1)), ("m", Duration::from_secs(60)), ("h", Duration::from_secs(3_600))];

    /// Reads `100/s`, `30/m` or `1000/h`; `None` if it is none of these.
    pub fn parse(text: &str) -> Option<Self> {
        let (calls, unit) = text.split_once('/')?;
        let (_, per) = Self::UNITS.iter().find(|(known, _)| *known == unit.trim())?;
        let calls = calls.trim_end();
        let is_number = !calls.is_empty() && calls.bytes().all(|byte| byte.is_ascii_digit());
        let calls: u32 = is_number.then(|| calls.parse().ok())?.filter(|calls| *calls > 0)?;
        Some(Self { calls, per: *per })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = Self::UNITS.iter().find(|(_, per)| *per == self.per).map_or("", |(unit, _)| unit);
        write!(f, "{}/{unit}", self.calls)
    }
}

/// Where what was answered goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// The topic.
    pub topic: String,
    /// The largest that is kept, in bytes, at most [`RESULT_BYTES_MAX`]; of a larger one, the digest is.
    pub max: usize,
}

/// What a duplicate gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDuplicate {
    /// Nothing.
    Drop,
    /// The result that the first one got.
    Result,
}

impl OnDuplicate {
    /// Both of them.
    pub const ALL: &[OnDuplicate] = &[OnDuplicate::Drop, OnDuplicate::Result];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Result => "result",
        }
    }
}

/// A duration in milliseconds, for people.
pub fn shown(duration: Duration) -> String {
    units::show_duration_ms(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    //! Goal: a rate is read as it is written, and as nothing else.

    use super::*;

    #[test]
    fn rates_are_read_and_shown() {
        for (text, calls, seconds) in [("100/s", 100, 1), ("30/m", 30, 60), ("1000/h", 1000, 3_600), ("5 / s", 5, 1)] {
            let rate = Rate::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(rate, Rate { calls, per: Duration::from_secs(seconds) }, "{text}");
            assert_eq!(Rate::parse(&rate.to_string()), Some(rate));
        }
        for text in ["", "100", "/s", "0/s", "-1/s", "+1/s", "1.5/s", "100/d", "100/", "s/100", "99999999999/s"] {
            assert_eq!(Rate::parse(text), None, "{text}");
        }
    }
}
