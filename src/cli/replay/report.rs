//! What a replay says of records: an explanation of each, and counts of all.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::dedup::{Decision, Reason, Verdict};
use crate::record::Record;

/// One record's explanation as a JSON object in one line: topic, partition, offset, verdict, reason,
/// identity (a list of its parts) and version, the last two null where they were not read.
pub fn explanation(
    record: &Record<'_>,
    decision: &Decision,
    identity: Option<String>,
    version: Option<String>,
) -> String {
    let null = || "null".to_owned();
    format!(
        r#"{{"topic":{},"partition":{},"offset":{},"verdict":"{}","reason":"{}","identity":{},"version":{}}}"#,
        quoted(record.topic),
        record.partition,
        record.offset,
        decision.verdict,
        decision.reason,
        identity.unwrap_or_else(null),
        version.unwrap_or_else(null),
    )
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Counts of what was judged.
#[derive(Debug, Default)]
pub struct Summary {
    counts: BTreeMap<(Verdict, Reason), u64>,
    /// For each topic where an identity was seen. This is why counting takes memory.
    seen: HashMap<String, HashMap<String, Seen>>,
    on_several_partitions: u64,
}

/// Where an identity was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    On(i32),
    OnSeveral,
}

impl Summary {
    /// Counts a record; `identity` is `None` where it was not read.
    pub fn add(&mut self, record: &Record<'_>, decision: &Decision, identity: Option<String>) {
        *self.counts.entry((decision.verdict, decision.reason)).or_default() += 1;
        let Some(identity) = identity else { return };
        if !self.seen.contains_key(record.topic) {
            self.seen.insert(record.topic.to_owned(), HashMap::new());
        }
        let seen = self.seen.get_mut(record.topic).expect("it was inserted if it was missing");
        let place = seen.entry(identity).or_insert(Seen::On(record.partition));
        if matches!(*place, Seen::On(partition) if partition != record.partition) {
            *place = Seen::OnSeveral;
            self.on_several_partitions += 1;
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<10} {:>9}", "records", self.counts.values().sum::<u64>())?;
        for &verdict in Verdict::ALL {
            let reasons: Vec<_> = self.counts.iter().filter(|((of, _), _)| *of == verdict).collect();
            let count: u64 = reasons.iter().map(|(_, count)| **count).sum();
            write!(f, "{:<10} {count:>9}", verdict.as_str())?;
            for (number, ((_, reason), count)) in reasons.iter().enumerate() {
                write!(f, "{} {reason} {count}", if number == 0 { " " } else { "," })?;
            }
            writeln!(f)?;
        }
        let count = self.on_several_partitions;
        write!(f, "identities on several partitions of a topic: {count}")?;
        if count > 0 {
            write!(f, " (duplicates are recognised within one partition only)")?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stay_exact_numbers() {
        assert_eq!(
            number_or_quoted("-170141183460469231731687303715884105729"),
            "-170141183460469231731687303715884105729"
        );
        assert_eq!(number_or_quoted("0x80"), r#""0x80""#);
        assert_eq!(number_or_quoted("-"), r#""-""#);
    }

    #[test]
    fn an_identity_counts_once_however_many_partitions_it_is_on() {
        let mut summary = Summary::default();
        let decision = Decision::REPLAYED;
        for (topic, partition) in [("a", 0), ("a", 1), ("a", 2), ("a", 0), ("b", 5), ("b", 5)] {
            let record = Record {
                topic,
                partition,
                offset: 0,
                timestamp: None,
                key: None,
                value: None,
                headers: Default::default(),
            };
            summary.add(&record, &decision, Some("[1]".to_owned()));
            summary.add(&record, &decision, None);
        }
        assert_eq!(summary.on_several_partitions, 1);
        assert!(summary.to_string().contains("duplicate         12  replayed 12"), "{summary}");
    }
}
