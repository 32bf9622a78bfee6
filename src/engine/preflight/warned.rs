//! The warnings of checks. Checks are repeated while a topology waits for a topic, or for the cluster, and for refused
//! topics: each warning is logged once, and again only if it has changed meanwhile.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::finding::{Finding, Severity};

/// The warnings of the last check, by topic.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<BTreeMap<String, Vec<Finding>>>);

impl Warnings {
    /// These findings about a topic, without the warnings that the previous check also found.
    pub fn without_repeated(&self, topic: &str, findings: Vec<Finding>) -> Vec<Finding> {
        let is_warning = |finding: &&Finding| finding.severity == Severity::Warning;
        let current: Vec<Finding> = findings.iter().filter(is_warning).cloned().collect();
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let former = warned.insert(topic.to_owned(), current).unwrap_or_default();
        findings.into_iter().filter(|finding| !former.contains(finding)).collect()
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a warning is logged once until it changes, and a refusal is reported by each check.

    use super::*;

    fn findings(kept: &str) -> Vec<Finding> {
        vec![
            Finding::warning(format!("the input keeps its records {kept}"), "set `retention`"),
            Finding::missing("the changelog is not there", "create it"),
        ]
    }

    #[test]
    fn warning_is_reported_once_until_it_changes() {
        let warned = Warnings::default();
        let severities = |topic: &str, kept: &str| -> Vec<Severity> {
            warned.without_repeated(topic, findings(kept)).iter().map(|finding| finding.severity).collect()
        };
        let (both, refusal) = ([Severity::Warning, Severity::Refused], [Severity::Refused]);
        assert_eq!(severities("orders", "8d"), both);
        assert_eq!(severities("orders", "8d"), refusal);
        assert_eq!(severities("payments", "8d"), both, "another topic has its own warnings");
        assert_eq!(severities("orders", "9d"), both, "the warning has changed");
        assert_eq!(severities("orders", "8d"), both, "the warning has changed back");
        assert!(warned.without_repeated("orders", Vec::new()).is_empty());
        assert_eq!(severities("orders", "8d"), both, "the warning was gone meanwhile");
    }
}
