//! What checks have warned of. They are made again while a topology waits for a topic, or for the cluster, and for topics
//! that are refused: what they warn of is logged once, and again only if it has changed meanwhile.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::finding::{Finding, Severity};

/// The warnings of the last check, by topic.
#[derive(Debug, Default)]
pub struct Warned(Mutex<BTreeMap<String, Vec<Finding>>>);

impl Warned {
    /// These findings about a topic, without the warnings that were among those of the check before.
    pub fn without_said(&self, topic: &str, findings: Vec<Finding>) -> Vec<Finding> {
        let is_warning = |finding: &&Finding| finding.severity == Severity::Warning;
        let now: Vec<Finding> = findings.iter().filter(is_warning).cloned().collect();
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = warned.insert(topic.to_owned(), now).unwrap_or_default();
        findings.into_iter().filter(|finding| !before.contains(finding)).collect()
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a warning is logged once until it changes, and a refusal stays one at each check.

    use super::*;

    fn findings(kept: &str) -> Vec<Finding> {
        vec![
            Finding::warning(format!("the input keeps its records {kept}"), "set `retention`"),
            Finding::missing("the changelog is not there", "create it"),
        ]
    }

    #[test]
    fn warnings_come_once_until_they_change() {
        let warned = Warned::default();
        let severities = |topic: &str, kept: &str| -> Vec<Severity> {
            warned.without_said(topic, findings(kept)).iter().map(|finding| finding.severity).collect()
        };
        let (both, refusal) = ([Severity::Warning, Severity::Refused], [Severity::Refused]);
        assert_eq!(severities("orders", "8d"), both);
        assert_eq!(severities("orders", "8d"), refusal);
        assert_eq!(severities("payments", "8d"), both, "another topic");
        assert_eq!(severities("orders", "9d"), both, "it has changed");
        assert_eq!(severities("orders", "8d"), both, "and back");
        assert!(warned.without_said("orders", Vec::new()).is_empty());
        assert_eq!(severities("orders", "8d"), both, "it was gone meanwhile");
    }
}
