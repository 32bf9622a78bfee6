//! `gate`: who is asked whether an identity was passed on elsewhere.

use crate::topology::gate::OnUnavailable;
use crate::topology::keys;
use crate::topology::spec::reader::{SpecReader, choices};
use crate::yaml::{Field, Place, Placed, Text};

/// Stands for an address that is not known, where nothing is connected to.
const UNKNOWN_URL: &str = "redis://unknown";

/// A gate as written; `None` means left out, or already reported.
#[derive(Debug)]
pub struct GateSpec {
    /// Where `gate` is.
    pub place: Place,
    pub url: Option<Placed<Text>>,
    pub name: Option<Placed<Text>>,
    pub retention_ms: Option<Placed<i64>>,
    pub on_unavailable: Option<Placed<OnUnavailable>>,
}

impl SpecReader<'_, '_> {
    /// A gate; nothing is missing from it that was not reported.
    pub fn gate(&mut self, field: &Field<'_>) -> GateSpec {
        let mut gate =
            GateSpec { place: field.key_place, url: None, name: None, retention_ms: None, on_unavailable: None };
        let Some(fields) = self.reader.fields(field, &keys::GATE) else { return gate };
        let Some(redis) = fields.require("redis", self.reader) else { return gate };
        let Some(fields) = self.reader.fields(redis, &keys::REDIS) else { return gate };
        let words = choices(OnUnavailable::ALL, OnUnavailable::as_str);
        gate.url = fields.require("url", self.reader).and_then(|field| self.reader.address(field, UNKNOWN_URL));
        gate.name = fields.get("name").and_then(|field| self.reader.text(field));
        gate.retention_ms = fields.get("retention").and_then(|field| self.reader.duration_ms(field));
        gate.on_unavailable = fields.get("on_unavailable").and_then(|field| self.reader.choice(field, &words));
        gate
    }
}
