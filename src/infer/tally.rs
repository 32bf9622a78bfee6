//! The verdicts of a proposed topology on the sample that it is based on.

use std::collections::{BTreeMap, HashSet};

use super::fields::content;
use super::names;
use super::sample::Sample;
use super::ties::{Ties, Watch};
use crate::dedup::{Action, Reason, Verdict};
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
    /// Why the first record of each reason is invalid.
    rejections: BTreeMap<Reason, String>,
    /// Null values that were not passed on, of identities without a delete before them.
    undeleted_nulls: usize,
    /// Duplicates that differ from every earlier record of their identity.
    unlike: usize,
    /// The longest row of stale records at the end of a partition that differ from every earlier record of their identity,
    /// with no newer record among them.
    unlike_stale: usize,
    /// Records with the identity and the version of an earlier one.
    ties: Ties,
}

impl Tally {
    /// Replays the sample with this topology.
    pub fn of(sample: &Sample, topology: &Topology) -> Self {
        // a proposal must not depend on the clock
        let wall_ms = sample.records.iter().filter_map(|observed| observed.captured.timestamp).max().unwrap_or(0);
        let mut partitions = Partitions::new(&topology.rules, &topology.schemas);
        let mut tally = Self::default();
        let (mut deleted, mut said) = (HashSet::new(), HashSet::new());
        let mut runs: BTreeMap<(String, i32), usize> = BTreeMap::new();
        // fields that may differ between deliveries, such as the times of a connector
        let is_left_out = |name: &str| names::is_of_delivery(name) || names::may_be_of_delivery(name);
        let mut ties = Watch::new(sample, &topology.rules);
        for observed in &sample.records {
            let record = observed.captured.record();
            let model = partitions.model(record.topic, record.partition);
            let decision = model.judge(&record, wall_ms);
            *tally.counts.entry((decision.verdict, decision.reason)).or_default() += 1;
            *tally.topics.entry((decision.reason, record.topic.to_owned())).or_default() += 1;
            let explanation = Explanation::of(model, topology);
            ties.add(&decision, &explanation);
            let place = (record.topic.to_owned(), record.partition, explanation.identity.clone());
            if observed.value.is_some() && decision.reason != Reason::Replayed {
                let is_new = said.insert((place.clone(), content(observed.value.as_ref(), &is_left_out)));
                // Where contents are compared, what they say to be the same is the same.
                let is_tie = match topology.rules.contents {
                    Some(_) => decision.reason.is_conflict(),
                    None => matches!(decision.reason, Reason::VersionEqual | Reason::Seen),
                };
                tally.unlike += usize::from(is_new && is_tie && decision.action == Action::Drop);
                let run = runs.entry((record.topic.to_owned(), record.partition)).or_default();
                match decision.reason {
                    Reason::Newer => *run = 0,
                    reason => *run += usize::from(is_new && reason == Reason::VersionOlder),
                }
            }
            if explanation.kind == Some("delete") {
                deleted.insert(place);
            } else if record.value.is_none() && decision.action != Action::Forward {
                tally.undeleted_nulls += usize::from(!deleted.contains(&place));
            }
            if decision.verdict == Verdict::Invalid {
                let words = || explanation.rejection.unwrap_or_else(|| topology.meaning(decision.reason).into_owned());
                tally.rejections.entry(decision.reason).or_insert_with(words);
            }
        }
        tally.unlike_stale = runs.into_values().max().unwrap_or(0);
        tally.ties = ties.done();
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

    /// Why records are invalid: each reason, how many records have it, and why the first of them does.
    pub fn invalid(&self) -> impl Iterator<Item = (Reason, usize, &str)> {
        self.rejections.iter().map(|(&reason, words)| {
            let count = self.counts.get(&(Verdict::Invalid, reason)).copied().unwrap_or(0);
            (reason, count, words.as_str())
        })
    }

    /// How many duplicates, and how many stale records in a row at a partition's end, differ from every earlier record of
    /// their identity, not counting fields that may belong to the delivery.
    pub fn unlike(&self) -> (usize, usize) {
        (self.unlike, self.unlike_stale)
    }

    /// The records with the identity and the version of an earlier one.
    pub fn ties(&self) -> &Ties {
        &self.ties
    }

    /// How many null values were not passed on, although their identities had no delete before them.
    pub fn undeleted_nulls(&self) -> usize {
        self.undeleted_nulls
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
