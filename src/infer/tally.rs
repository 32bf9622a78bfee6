//! The verdicts of a proposed topology on the sample that it is based on.

use std::collections::BTreeMap;

use super::sample::Sample;
use crate::dedup::{Reason, Verdict};
use crate::rehearsal::{Explanation, Partitions};
use crate::topology::Topology;
use crate::words::counted;

/// Maximum number of topics that are named.
const TOPICS_MAX: usize = 8;

/// How many records of the sample got which verdict, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: BTreeMap<(Verdict, Reason), usize>,
    /// The same for each topic.
    topics: BTreeMap<(Reason, String), usize>,
    /// Why the first invalid record is invalid.
    rejection: Option<String>,
}

impl Tally {
    /// Replays the sample with this topology.
    pub fn of(sample: &Sample, topology: &Topology) -> Self {
        // a proposal must not depend on the clock
        let wall_ms = sample.records.iter().filter_map(|observed| observed.captured.timestamp).max().unwrap_or(0);
        let mut partitions = Partitions::new(&topology.rules);
        let mut tally = Self::default();
        for observed in &sample.records {
            let record = observed.captured.record();
            let model = partitions.model(record.topic, record.partition);
            let decision = model.judge(&record, wall_ms);
            *tally.counts.entry((decision.verdict, decision.reason)).or_default() += 1;
            *tally.topics.entry((decision.reason, record.topic.to_owned())).or_default() += 1;
            if decision.verdict == Verdict::Invalid && tally.rejection.is_none() {
                let rejection = Explanation::of(model, topology).rejection;
                let words = rejection.unwrap_or_else(|| topology.meaning(decision.reason).into_owned());
                tally.rejection = Some(format!("{words} ({})", decision.reason));
            }
        }
        tally
    }

    /// The topics of the records with this reason, in words; empty if the sample has only one topic.
    pub fn topics_of(&self, reason: Reason, sample: &Sample) -> String {
        if sample.topics().len() < 2 {
            return String::new();
        }
        let mut topics: Vec<_> = self.topics.iter().filter(|((of, _), _)| *of == reason).collect();
        topics.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let named: Vec<String> =
            topics.iter().take(TOPICS_MAX).map(|((_, topic), count)| format!("{count} of `{topic}`")).collect();
        let more = topics.len() - named.len();
        let more = if more == 0 { String::new() } else { format!(" and of {}", counted(more, "more topic")) };
        format!(" ({}{more})", named.join(", "))
    }

    /// If all records are invalid: why the first one is, with its reason.
    pub fn all_invalid(&self) -> Option<&str> {
        let is_all = self.counts.keys().all(|(verdict, _)| *verdict == Verdict::Invalid);
        self.rejection.as_deref().filter(|_| is_all)
    }

    /// How many records got this verdict.
    pub fn of_verdict(&self, verdict: Verdict) -> usize {
        self.counts.iter().filter(|((of, _), _)| *of == verdict).map(|(_, count)| count).sum()
    }

    /// How many records got this reason.
    pub fn of_reason(&self, reason: Reason) -> usize {
        self.counts.iter().filter(|((_, of), _)| *of == reason).map(|(_, count)| count).sum()
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, &verdict) in Verdict::ALL.iter().enumerate() {
            write!(f, "{}{} {verdict}", if number == 0 { "" } else { ", " }, self.of_verdict(verdict))?;
        }
        Ok(())
    }
}
