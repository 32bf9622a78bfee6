//! What a model says of the record that it judged last, as JSON text.

use crate::dedup::{Kind, Model};
use crate::topology::Topology;

/// What was read of a record and what it was compared with; each as JSON text, `None` where there is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// What kind of change it is, by its word.
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
    pub refusal: Option<String>,
}

impl Told {
    /// What `model` has to say of the last record, by this topology's rules.
    pub fn of(model: &Model, topology: &Topology) -> Self {
        Self {
            kind: model.kind().map(Kind::as_str),
            identity: model.identity(),
            version: model.version(),
            epoch: model.epoch(),
            against: model.against().map(str::to_owned),
            refusal: model.refusal().map(|refusal| topology.refusal(refusal).into_owned()),
        }
    }
}
