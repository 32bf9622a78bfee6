//! What a model says about the record that it judged last, as JSON text.

use crate::dedup::{Kind, Model};
use crate::topology::Topology;

/// What was read of a record and what it was compared with; each as JSON text, or `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// The kind of change, as its keyword.
    pub kind: Option<&'static str>,
    /// Its identity: an array of its parts.
    pub identity: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The scope of its version: an array of its parts.
    pub epoch: Option<String>,
    /// What it was compared with: an object with `version`, `epoch` and `last_seen`.
    pub against: Option<String>,
    /// Why it could not be judged, in words for people (not JSON).
    pub rejection: Option<String>,
}

impl Explanation {
    /// What `model` says about its last record, by this topology's rules.
    pub fn of(model: &Model, topology: &Topology) -> Self {
        Self {
            kind: model.kind().map(Kind::as_str),
            identity: model.identity(),
            version: model.version(),
            epoch: model.epoch(),
            against: model.against().map(str::to_owned),
            rejection: model.rejection().map(|rejection| topology.rejection(rejection).into_owned()),
        }
    }
}
