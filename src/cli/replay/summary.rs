//! Counts of verdicts, and of other facts that show whether the rules fit.
//!
//! Memory: 32 bytes plus the table's slack for each identity, up to [`IDENTITIES_MAX`]; the summary says if there were
//! more. And 8 bytes plus slack for each distinct record, and for each version of an identity, up to [`KNOWN_MAX`] of
//! either; beyond that, redeliveries are not recognised.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use super::conflicts::Conflicts;
use super::hints::{self, Facts};
use super::seen::Seen;
use super::unfound::Unfound;
use super::watch::Watch;
use crate::capture::looks_like_kcat;
use crate::dedup::{Action, OnNull, Reason, Rules, Verdict};
use crate::record::Record;

/// Maximum number of identities that are watched for being on several partitions.
const IDENTITIES_MAX: usize = 10_000_000;
/// Maximum number of distinct records, and of versions of identities, that are remembered.
const KNOWN_MAX: usize = 10_000_000;
/// Maximum number of epochs that are counted.
const EPOCHS_MAX: usize = 1000;
/// How many lines are checked for an envelope that no option mentions.
const LINES_CHECKED: u64 = 100;
/// Maximum number of partitions, or epochs, that are named.
const NAMED_MAX: usize = 8;

/// What was counted so far.
#[derive(Debug)]
pub struct Summary {
    rules: RulesFacts,
    counts: BTreeMap<(Verdict, Reason), u64>,
    places: Places,
    /// Records seen, by partition, key, value and headers.
    records: Known,
    /// Versions seen, by partition, identity and epoch.
    versions: Known,
    streams: BTreeMap<(String, i32), Stream>,
    epochs: BTreeSet<String>,
    /// Identities that had a delete, by partition.
    deleted: Known,
    watch: Watch,
    facts: Facts,
    conflicts: Conflicts,
    unfound: Unfound,
    /// Lines without an envelope, up to [`LINES_CHECKED`].
    lines: u64,
}

/// Which hints make sense with these rules.
#[derive(Debug)]
struct RulesFacts {
    has_version: bool,
}

/// A partition's versions.
#[derive(Debug, Default)]
struct Stream {
    /// The highest version of each epoch.
    highest: HashMap<Option<String>, Vec<u8>>,
    /// How often a version was lower than that.
    falls: u64,
}

impl Summary {
    /// Nothing judged yet. The texts are the preset's, for records without an identity, without a version, and with a
    /// malformed one. Records that have schemas must be given as JSON.
    pub fn new(
        rules: &Rules,
        [without_identity, without_version, malformed_version]: [Option<&'static str>; 3],
    ) -> Self {
        let (reads_schemas, rules) = (rules.reads_schemas(), &rules.for_json());
        let null_value = match rules.actions.null_value {
            OnNull::Act(action) => action.as_str(),
            OnNull::FollowDelete => hints::FOLLOW_DELETE,
            OnNull::Delete => "delete",
        };
        Self {
            rules: RulesFacts { has_version: rules.version.is_some() },
            counts: BTreeMap::new(),
            places: Places::default(),
            records: Known::default(),
            versions: Known::default(),
            streams: BTreeMap::new(),
            epochs: BTreeSet::new(),
            deleted: Known::default(),
            watch: Watch::new(rules),
            facts: Facts {
                on_null_value: null_value,
                without_identity,
                without_version,
                malformed_version,
                ..Facts::default()
            },
            conflicts: Conflicts::new(rules, reads_schemas),
            unfound: Unfound::new(rules),
            lines: 0,
        }
    }

    /// The same, if it is this preset that says what conflicts are, and passes them on.
    pub fn decided_by(mut self, preset: Option<String>) -> Self {
        self.conflicts.preset = preset;
        self
    }

    /// Checks whether a line that is taken for a value looks like an envelope.
    pub fn add_line(&mut self, line: &[u8]) {
        if self.lines < LINES_CHECKED {
            self.lines += 1;
            self.facts.like_kcat += u64::from(looks_like_kcat(line));
        }
    }

    /// Counts a record.
    pub fn add(&mut self, seen: &Seen<'_>) {
        let Seen { record, decision, explanation, version } = seen;
        self.conflicts.add(seen);
        self.unfound.add(seen);
        *self.counts.entry((decision.verdict, decision.reason)).or_default() += 1;
        self.add_null_or_delete(seen);
        if decision.verdict == Verdict::Invalid {
            let words = || explanation.rejection.as_deref().unwrap_or(decision.reason.meaning()).to_owned();
            self.facts.rejections.entry(decision.reason).or_insert_with(|| (0, words())).0 += 1;
        }
        let has_change = matches!(explanation.kind, Some("change" | "delete" | "read")) && record.value.is_some();
        let is_judged = decision.verdict != Verdict::Invalid && decision.reason != Reason::Replayed;
        self.facts.unversioned +=
            u64::from(has_change && is_judged && explanation.identity.is_some() && version.is_none());
        if let Some(identity) = &explanation.identity {
            self.facts.identified += 1;
            self.places.add(record.topic, record.partition, identity);
        }
        if let Some(epoch) = &explanation.epoch
            && self.epochs.len() < EPOCHS_MAX
            && !self.epochs.contains(epoch)
        {
            self.epochs.insert(epoch.clone());
        }
        let is_dropped = matches!(decision.verdict, Verdict::Duplicate | Verdict::Stale);
        // A record that was recognised by its offset was not read.
        let came_again = decision.reason != Reason::Replayed && self.records.add(&content(record)) && is_dropped;
        if came_again {
            let again = &mut self.facts.again;
            again.duplicate += u64::from(decision.verdict == Verdict::Duplicate);
            again.stale += u64::from(decision.verdict == Verdict::Stale);
        }
        let was_redelivered = version.map_or(came_again, |version| self.add_version(seen, version, came_again));
        self.watch.add(seen, was_redelivered);
    }

    /// Counts null values that were lost although nothing deleted their identity.
    fn add_null_or_delete(&mut self, seen: &Seen<'_>) {
        let Seen { record, decision, explanation, .. } = seen;
        let place = (record.topic, record.partition, &explanation.identity);
        if explanation.kind == Some("delete") {
            self.deleted.add(&place);
        }
        if record.value.is_none() {
            self.facts.nulls += 1;
            let is_lost = matches!(decision.reason, Reason::NullValue | Reason::TombstoneNotOwed);
            let is_lost = is_lost && decision.action != Action::Forward;
            if is_lost && !self.deleted.contains(&place) {
                self.facts.undeleted_nulls += 1;
                self.facts.undeleted_null_first.get_or_insert_with(|| seen.place());
            }
        }
    }

    /// Counts a record with a version; returns whether it was redelivered.
    fn add_version(&mut self, seen: &Seen<'_>, version: &[u8], came_again: bool) -> bool {
        self.facts.versioned += 1;
        let Seen { record, decision, explanation, .. } = seen;
        let known =
            self.versions.add(&(record.topic, record.partition, &explanation.identity, &explanation.epoch, version));
        let was_redelivered = came_again || known;
        if was_redelivered {
            let redelivered = &mut self.facts.redelivered;
            redelivered.versioned += 1;
            redelivered.stale += u64::from(decision.verdict == Verdict::Stale);
            redelivered.older += u64::from(decision.reason == Reason::VersionOlder);
        }
        let stream = self.streams.entry((record.topic.to_owned(), record.partition)).or_default();
        let highest = stream.highest.entry(explanation.epoch.clone()).or_default();
        if version < highest.as_slice() {
            stream.falls += 1;
            self.facts.falls += 1;
            self.facts.redelivered.falls += u64::from(was_redelivered);
            self.facts.falls_forwarded += u64::from(decision.verdict == Verdict::Forwarded && !was_redelivered);
        } else {
            highest.clear();
            highest.extend_from_slice(version);
        }
        was_redelivered
    }

    fn facts(&self) -> Facts {
        let verdict = |of: Verdict| self.counts.iter().filter(|((verdict, _), _)| *verdict == of).map(|(_, n)| n).sum();
        let reason = |of: Reason| self.counts.iter().filter(|((_, reason), _)| *reason == of).map(|(_, n)| n).sum();
        Facts {
            records: self.counts.values().sum(),
            duplicate: verdict(Verdict::Duplicate),
            stale: verdict(Verdict::Stale),
            replayed: reason(Reason::Replayed),
            older: reason(Reason::VersionOlder),
            unidentified: reason(Reason::IdentityMissing),
            noticed: self.watch.noticed(self.counts.values().sum()),
            has_version: self.rules.has_version,
            on_several_partitions: self.places.several,
            ..self.facts.clone()
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.facts();
        writeln!(f, "{:<10} {:>9}", "records", facts.records)?;
        for &verdict in Verdict::ALL {
            let reasons: Vec<_> = self.counts.iter().filter(|((of, _), _)| *of == verdict).collect();
            let count: u64 = reasons.iter().map(|(_, count)| **count).sum();
            write!(f, "{:<10} {count:>9}", verdict.as_str())?;
            for (number, ((_, reason), count)) in reasons.iter().enumerate() {
                write!(f, "{} {reason} {count}", if number == 0 { " " } else { "," })?;
            }
            writeln!(f)?;
        }
        writeln!(f, "duplicates: {}", share(facts.duplicate, facts.records))?;
        self.write_versions(f, &facts)?;
        if !self.epochs.is_empty() {
            let named: Vec<&str> = self.epochs.iter().map(String::as_str).take(NAMED_MAX).collect();
            let more = more(self.epochs.len());
            writeln!(f, "epochs: {}: {}{more}", self.epochs.len(), named.join(", "))?;
        }
        write!(f, "identities on several partitions of a topic: ")?;
        if self.lines > 0 {
            write!(f, "not known, the lines name no partitions")?;
        } else {
            write!(f, "{}", self.places.several)?;
        }
        if self.places.is_full() {
            write!(f, " (only the first {IDENTITIES_MAX} identities were watched)")?;
        }
        writeln!(f)?;
        hints::hints(&facts).iter().try_for_each(|hint| writeln!(f, "hint: {hint}"))?;
        write!(f, "{}{}", self.unfound, self.conflicts)
    }
}

impl Summary {
    fn write_versions(&self, f: &mut fmt::Formatter<'_>, facts: &Facts) -> fmt::Result {
        if !facts.has_version {
            return Ok(());
        }
        let mut fallen: Vec<_> = self.streams.iter().filter(|(_, stream)| stream.falls > 0).collect();
        fallen.sort_by_key(|(_, stream)| std::cmp::Reverse(stream.falls));
        let named: Vec<_> = fallen
            .iter()
            .take(NAMED_MAX)
            .map(|((topic, partition), stream)| format!("{topic}:{partition} {}", stream.falls))
            .collect();
        write!(f, "versions below the highest of their partition: {}", facts.falls)?;
        if !named.is_empty() {
            write!(f, " ({}{})", named.join(", "), more(fallen.len()))?;
        }
        writeln!(f, "; below their identity's own: {}", facts.older)
    }
}

/// How many were not named, if any.
fn more(count: usize) -> String {
    if count > NAMED_MAX { format!(" and {} more", count - NAMED_MAX) } else { String::new() }
}

/// A share as a percentage.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "none".to_owned();
    }
    // a capture's counts are far below what a double holds exactly
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

/// What equal records of a partition have in common.
fn content<'a>(record: &Record<'a>) -> impl Hash + use<'a> {
    (record.topic, record.partition, record.key, record.value, record.headers)
}

/// A set of hashes of what was seen.
#[derive(Debug, Default)]
struct Known {
    hasher: RandomState,
    hashes: HashSet<u64>,
}

impl Known {
    /// Adds something; returns whether an equal one was there. Collisions are very rare among millions, and would at
    /// worst give a wrong hint.
    fn add(&mut self, what: &impl Hash) -> bool {
        let hash = self.hasher.hash_one(what);
        if self.hashes.len() < KNOWN_MAX { !self.hashes.insert(hash) } else { self.hashes.contains(&hash) }
    }

    /// Whether an equal one was added.
    fn contains(&self, what: &impl Hash) -> bool {
        self.hashes.contains(&self.hasher.hash_one(what))
    }
}

/// The partition on which each identity was seen, by the identity's hash.
#[derive(Debug, Default)]
struct Places {
    hashers: [RandomState; 2],
    partitions: HashMap<u128, i32>,
    several: u64,
}

/// Instead of a partition: there were several.
const SEVERAL: i32 = -1;

impl Places {
    fn add(&mut self, topic: &str, partition: i32, identity: &str) {
        // two hashes with random keys, so that no two identities of a capture collide
        let [high, low] = [0, 1].map(|index| u128::from(self.hashers[index].hash_one((topic, identity))));
        let hash = high << 64 | low;
        if self.is_full() && !self.partitions.contains_key(&hash) {
            return;
        }
        let seen = self.partitions.entry(hash).or_insert(partition);
        if *seen != partition && *seen != SEVERAL {
            *seen = SEVERAL;
            self.several += 1;
        }
    }

    fn is_full(&self) -> bool {
        self.partitions.len() >= IDENTITIES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedup::{Decision, Identity, Path, Version};
    use crate::record::HeaderBuf;
    use crate::rehearsal::Explanation;

    fn summary() -> Summary {
        let path = |text: &str| Path::parse(text).unwrap();
        let rules = Rules::new(Identity::of_paths([path("value.id")]), Some(Version::integer(path("value.v"))));
        Summary::new(&rules, [None; 3])
    }

    fn add(
        summary: &mut Summary,
        place: (&str, i32),
        explanation: &Explanation,
        version: Option<&[u8]>,
        decision: &Decision,
    ) {
        let (topic, partition) = place;
        // no two records are equal
        let value = format!("{{\"sent_at\":{}}}", summary.facts().records);
        let record = Record {
            topic,
            partition,
            offset: 0,
            timestamp: None,
            key: None,
            value: Some(value.as_bytes()),
            headers: Default::default(),
        };
        summary.add(&Seen { record: &record, decision, explanation, version });
    }

    fn decision(verdict: Verdict, reason: Reason) -> Decision {
        Decision { verdict, reason, ..Decision::REPLAYED }
    }

    fn explained(identity: &str, epoch: Option<&str>) -> Explanation {
        Explanation { identity: Some(identity.to_owned()), epoch: epoch.map(str::to_owned), ..Explanation::default() }
    }

    #[test]
    fn identity_on_three_partitions_counts_once() {
        let mut summary = summary();
        for place in [("a", 0), ("a", 1), ("a", 2), ("a", 0), ("b", 5), ("b", 5)] {
            add(&mut summary, place, &explained("[1]", None), None, &Decision::REPLAYED);
            add(&mut summary, place, &Explanation::default(), None, &Decision::REPLAYED);
        }
        assert_eq!(summary.places.several, 1);
        let text = summary.to_string();
        assert!(text.contains("duplicate         12  replayed 12") && text.contains("duplicates: 100.0 %"), "{text}");
    }

    #[test]
    fn record_with_other_headers_is_not_a_redelivery() {
        let mut known = Known::default();
        let mut headers = HeaderBuf::default();
        let mut add = |version: &[u8]| {
            headers.clear();
            headers.push(b"version", Some(version));
            let record = Record {
                topic: "a",
                partition: 0,
                offset: 0,
                timestamp: None,
                key: Some(b"k"),
                value: Some(b"{}"),
                headers: headers.as_headers(),
            };
            known.add(&content(&record))
        };
        assert_eq!([b"2", b"1", b"2"].map(|version| add(version)), [false, false, true]);
    }

    #[test]
    fn falling_versions_are_counted_per_partition_and_epoch() {
        let mut summary = summary();
        let mut see = |partition, version: &[u8], epoch| {
            add(&mut summary, ("a", partition), &explained("[1]", epoch), Some(version), &Decision::REPLAYED);
        };
        see(0, &[5], None);
        see(0, &[4], None);
        see(0, &[5], None);
        see(0, &[1], Some("[\"other\"]"));
        see(1, &[3], None);
        see(1, &[2], None);
        see(1, &[1], None);
        let text = summary.to_string();
        assert!(text.contains("highest of their partition: 3 (a:1 2, a:0 1)"), "{text}");
        assert!(text.contains("epochs: 1: [\"other\"]"), "{text}");
    }

    #[test]
    fn record_with_a_known_version_of_its_identity_is_a_redelivery() {
        let mut summary = summary();
        let mut see = |partition, identity, version: &[u8], decision: &Decision| {
            add(&mut summary, ("a", partition), &explained(identity, None), Some(version), decision);
        };
        let (new, old) = (decision(Verdict::Forwarded, Reason::Newer), decision(Verdict::Stale, Reason::VersionOlder));
        see(0, "[1]", &[5], &new);
        see(0, "[2]", &[4], &new);
        see(0, "[1]", &[6], &new);
        // both came before, in this partition
        see(0, "[1]", &[5], &old);
        see(0, "[2]", &[4], &decision(Verdict::Duplicate, Reason::VersionEqual));
        // none of these did
        see(0, "[2]", &[3], &old);
        see(1, "[1]", &[6], &new);
        see(1, "[1]", &[5], &old);
        let facts = summary.facts();
        assert_eq!((facts.falls, facts.older, facts.falls_forwarded), (5, 3, 1));
        assert_eq!(facts.redelivered, hints::Redelivered { versioned: 2, stale: 1, older: 1, falls: 2 });
    }

    #[test]
    fn summary_of_no_records_has_no_share() {
        assert!(summary().to_string().contains("duplicates: none"));
    }
}
