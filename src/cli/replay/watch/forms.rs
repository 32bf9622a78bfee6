//! Forms in which versions are not what they seem: bytes in base64.

use serde_json::Value;

use crate::cli::replay::seen::Seen;
use crate::dedup::{Path, Reason, Rules, Source, VersionKind};
use crate::encodings::{Base64, base64};
use crate::words::{agreeing, counted};

/// Maximum number of malformed versions that are looked at: each takes reading the value as a tree.
const LOOKED_AT_MAX: u64 = 1_000;

/// What was seen.
#[derive(Debug)]
pub struct Forms {
    /// Where versions are in values.
    places: Vec<Path>,
    is_text: bool,
    looked_at: u64,
    base64: u64,
    first: Option<String>,
}

impl Forms {
    /// Nothing seen yet.
    pub fn new(rules: &Rules) -> Self {
        let parts = || rules.version.iter().flat_map(|version| &version.parts);
        let of_values = |path: &&Path| path.source == Source::Value;
        Self {
            places: parts().flat_map(|part| &part.of).filter(of_values).cloned().collect(),
            is_text: parts().any(|part| part.kind == VersionKind::Text),
            looked_at: 0,
            base64: 0,
            first: None,
        }
    }

    /// Watches a record.
    pub fn add(&mut self, seen: &Seen<'_>) {
        let is_malformed = seen.decision.reason == Reason::VersionMalformed;
        let is_told = is_malformed || (self.is_text && seen.explanation.version.is_some());
        if !is_told || self.looked_at >= LOOKED_AT_MAX {
            return;
        }
        self.looked_at += 1;
        let tree = seen.record.value.and_then(|value| serde_json::from_slice::<Value>(value).ok());
        let text = |path: &Path| {
            let found = |root: &Value| {
                path.steps.iter().try_fold(root.clone(), |at, step| at.get(step).cloned())?.as_str().map(str::to_owned)
            };
            let tree = tree.as_ref()?;
            found(tree).or_else(|| found(tree.get("payload")?))
        };
        if self.places.iter().filter_map(text).any(|text| base64(text.as_bytes()) == Some(Base64::Padded)) {
            self.base64 += 1;
            self.first.get_or_insert_with(|| seen.place());
        }
    }

    /// The hint about versions in base64.
    pub fn hint(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(format!(
            "{} {} like bytes in base64 (first at {first}), as Kafka Connect and Debezium write decimals: such texts do \
             not sort like their numbers, and one that happens to be all digits is read as another number; set \
             `decimal.handling.mode=string` in Debezium, or `decimal.format=NUMERIC` in Connect's JsonConverter",
            counted(self.base64, "version"),
            agreeing(self.base64, "looks", "look")
        ))
    }
}
