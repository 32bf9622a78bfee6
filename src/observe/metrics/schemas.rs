//! The metrics of a schema registry, shown once one is used.

use prometheus::{IntCounterVec, IntGauge, Registry};
use std::sync::OnceLock;

use super::register::{VALID, counter, int_gauge};

/// Registered once a schema registry is used.
pub(super) struct Families {
    registry: Registry,
    shown: OnceLock<SchemaMetrics>,
}

/// The metrics of this process's schema registry.
#[derive(Clone)]
pub struct SchemaMetrics {
    requests: IntCounterVec,
    schemas: IntGauge,
}

impl std::fmt::Debug for SchemaMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SchemaMetrics")
    }
}

/// How a request to a schema registry ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The registry has returned the schema.
    Found,
    /// The registry does not have the schema.
    Absent,
    /// The registry has refused the login.
    Refused,
    /// There was no answer, or not that of a registry.
    Failed,
}

impl Asked {
    /// All results.
    const ALL: [Self; 4] = [Self::Found, Self::Absent, Self::Refused, Self::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Absent => "absent",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl Families {
    pub fn new(registry: &Registry) -> Self {
        Self { registry: registry.clone(), shown: OnceLock::new() }
    }

    pub fn get(&self) -> SchemaMetrics {
        self.shown.get_or_init(|| SchemaMetrics::new(&self.registry)).clone()
    }
}

impl SchemaMetrics {
    fn new(registry: &Registry) -> Self {
        let name = "ratchet_schema_registry_requests_total";
        let requests = counter(registry, name, "Requests to the schema registry, by how they ended.", &["result"]);
        for asked in Asked::ALL {
            requests.with_label_values(&[asked.as_str()]);
        }
        let known = int_gauge(
            registry,
            "ratchet_schema_registry_schemas",
            "Schemas that have been fetched from the schema registry.",
            &[],
        );
        let none: &[&str] = &[];
        Self { requests, schemas: known.get_metric_with_label_values(none).expect(VALID) }
    }

    /// A request has ended.
    pub fn asked(&self, how: Asked) {
        self.requests.with_label_values(&[how.as_str()]).inc();
    }

    /// This number of schemas is known.
    pub fn known(&self, count: usize) {
        self.schemas.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    //! Goal: the metrics of a schema registry are shown once one is used, with all results.

    use super::super::Metrics;
    use super::Asked;

    #[test]
    fn requests_and_schemas_are_shown_once_there_is_a_registry() {
        let metrics = Metrics::new();
        assert!(!metrics.render().contains("schema_registry"), "no registry is used yet");
        let schemas = metrics.schemas();
        schemas.asked(Asked::Found);
        metrics.schemas().asked(Asked::Found);
        schemas.known(7);
        let said = metrics.render();
        for line in [
            "ratchet_schema_registry_requests_total{result=\"found\"} 2",
            "ratchet_schema_registry_requests_total{result=\"refused\"} 0",
            "ratchet_schema_registry_schemas 7",
        ] {
            assert!(said.contains(&format!("{line}\n")), "{line}: {said}");
        }
    }
}
