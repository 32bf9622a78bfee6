//! Registers families of metrics: each once, by a constant name.

use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

/// Labels of what belongs to a topology.
pub(super) const TOPOLOGY: &[&str] = &["topology"];
/// Labels of what belongs to one input partition.
pub(super) const PARTITION: &[&str] = &["topology", "topic", "partition"];

/// Names and labels are constants in this folder, so only a bug can make one of these fail, and every
/// test would show it.
pub(super) const VALID: &str = "names and labels are valid and registered once";

pub(super) fn counter(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    let family = IntCounterVec::new(Opts::new(name, help), labels).expect(VALID);
    registry.register(Box::new(family.clone())).expect(VALID);
    family
}

pub(super) fn int_gauge(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    let family = IntGaugeVec::new(Opts::new(name, help), labels).expect(VALID);
    registry.register(Box::new(family.clone())).expect(VALID);
    family
}

pub(super) fn gauge(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    let family = GaugeVec::new(Opts::new(name, help), labels).expect(VALID);
    registry.register(Box::new(family.clone())).expect(VALID);
    family
}

pub(super) fn histogram(registry: &Registry, name: &str, help: &str, buckets: Vec<f64>) -> HistogramVec {
    histogram_by(registry, name, help, (TOPOLOGY, buckets))
}

pub(super) fn histogram_by(
    registry: &Registry,
    name: &str,
    help: &str,
    (labels, buckets): (&[&str], Vec<f64>),
) -> HistogramVec {
    let family = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels).expect(VALID);
    registry.register(Box::new(family.clone())).expect(VALID);
    family
}

pub(super) fn exponential(first: f64, factor: f64, count: usize) -> Vec<f64> {
    prometheus::exponential_buckets(first, factor, count).expect(VALID)
}
