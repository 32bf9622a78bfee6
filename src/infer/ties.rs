//! Records that have the identity, and the version, of an earlier one: whether they say the same, in what they differ, and
//! which of them the proposed rules take for conflicts.
//!
//! What a record says leaves out what belongs to the delivery, as in [`Trial`](super::trial::Trial).

use std::collections::{BTreeSet, HashMap};

use super::fields::content;
use super::names;
use super::sample::{Observed, Sample};
use crate::capture::{self, Captured};
use crate::dedup::{Action, Decision, Path, Reason, Rules, Source};
use crate::rehearsal::{Contrast, Explanation};

/// Maximum number of differing fields that are named of a conflict.
pub const NAMED_MAX: usize = 5;

/// What replaying a proposal has shown of ties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ties {
    /// Records that say the same as an earlier one.
    pub repeats: usize,
    /// Those of them that differ in what belongs to the delivery, and the paths of what differs.
    pub redelivered: usize,
    /// See `redelivered`.
    pub differing: BTreeSet<String>,
    /// Those that hold the same JSON in other bytes.
    pub rewritten: usize,
    /// Records that say something else.
    pub others: usize,
    /// Records that have other contents by the proposal.
    pub conflicts: usize,
    /// The first of them.
    pub first: Option<Conflict>,
}

/// A record with other contents, and the one that it differs from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Its coordinates, or its line.
    pub place: String,
    /// Those of the other one, and the paths of the fields that differ, if there is one to compare with.
    pub other: Option<(String, Vec<String>)>,
}

impl Conflict {
    /// The first conflict, in words.
    pub fn words(&self) -> String {
        match &self.other {
            None => format!("the first is {}", self.place),
            Some((other, fields)) if fields.is_empty() => {
                format!("the first is {}, which differs from {other}", self.place)
            }
            Some((other, fields)) => {
                format!("the first is {}, which differs from {other} in {}", self.place, listed(fields))
            }
        }
    }
}

/// `a`, `a and b`, `a, b and c`.
pub fn listed(words: &[String]) -> String {
    match words {
        [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        words => words.concat(),
    }
}

/// Watches a replay for ties.
pub struct Watch<'s> {
    sample: &'s Sample,
    rules: &'s Rules,
    /// The kind of each record that was judged, by its number.
    kinds: Vec<Option<&'static str>>,
    known: HashMap<Thing, Known>,
    ties: Ties,
}

/// A topic, a partition and an identity.
type Thing = (String, i32, String);

/// What the records of an identity have said at its newest version.
struct Known {
    /// The first record that said so, by the hash of what it says.
    said: HashMap<u64, usize>,
    /// The last record.
    last: usize,
}

impl<'s> Watch<'s> {
    pub fn new(sample: &'s Sample, rules: &'s Rules) -> Self {
        Self { sample, rules, kinds: Vec::new(), known: HashMap::new(), ties: Ties::default() }
    }

    /// Watches the next record of the sample, which has just been judged.
    pub fn add(&mut self, decision: &Decision, explanation: &Explanation) {
        let number = self.kinds.len();
        self.kinds.push(explanation.kind);
        let observed = &self.sample.records[number];
        let (Some(identity), Some(_)) = (&explanation.identity, &observed.captured.value) else { return };
        let place = (observed.captured.topic.clone(), observed.captured.partition, identity.clone());
        let core = content(observed.value.as_ref(), &is_of_delivery);
        let is_conflict = decision.reason.is_conflict();
        let is_tie = is_conflict || matches!(decision.reason, Reason::VersionEqual | Reason::Seen);
        let Some(known) = self.known.get_mut(&place).filter(|_| is_tie) else {
            if is_conflict {
                self.add_conflict(number, None);
            }
            if is_tie || decision.action == Action::Forward {
                self.known.insert(place, Known { said: HashMap::from([(core, number)]), last: number });
            }
            return;
        };
        let same = known.said.get(&core).copied();
        let other = same.unwrap_or(known.last);
        known.said.entry(core).or_insert(number);
        known.last = number;
        match same {
            Some(_) => self.ties.add_repeat(observed, &self.sample.records[other]),
            None => self.ties.others += 1,
        }
        if is_conflict {
            self.add_conflict(number, Some(other));
        }
    }

    /// Counts a conflict; the first is explained by the record of this other number.
    fn add_conflict(&mut self, number: usize, other: Option<usize>) {
        self.ties.conflicts += 1;
        if self.ties.first.is_some() {
            return;
        }
        let of = |number: usize| (&self.sample.records[number].captured, self.kinds[number]);
        let place = |number: usize| self.sample.records[number].place();
        let other = other.map(|other| (place(other), differing(self.rules, of(other), of(number))));
        self.ties.first = Some(Conflict { place: place(number), other });
    }

    /// What was seen.
    pub fn done(self) -> Ties {
        self.ties
    }
}

impl Ties {
    fn add_repeat(&mut self, observed: &Observed, earlier: &Observed) {
        self.repeats += 1;
        let (Some(value), Some(before)) = (&observed.value, &earlier.value) else { return };
        // an exception has to name a field: within lists there are none
        let differing: BTreeSet<String> =
            capture::differences(value, before).iter().filter_map(|place| excepted(place)).collect();
        self.redelivered += usize::from(!differing.is_empty());
        self.rewritten += usize::from(value == before && observed.captured.value != earlier.captured.value);
        self.differing.extend(differing);
    }
}

/// A record's kind beside it.
type OfKind<'a> = (&'a Captured, Option<&'static str>);

/// In what two records differ, of what is compared.
fn differing(rules: &Rules, earlier: OfKind<'_>, later: OfKind<'_>) -> Vec<String> {
    let contrast = Contrast::of(rules, earlier, later);
    if contrast.kinds.is_some() {
        return vec!["its kind of change".to_owned()];
    }
    // What belongs to the delivery is no reason, unless there is no other.
    let (of_delivery, own): (Vec<Path>, Vec<Path>) =
        contrast.compared.into_iter().partition(|path| excepted(&path.steps).is_some());
    let named = if own.is_empty() { of_delivery } else { own };
    named.iter().take(NAMED_MAX).map(Path::to_string).collect()
}

/// Whether a field may differ between two deliveries, by its name.
fn is_of_delivery(name: &str) -> bool {
    names::is_of_delivery(name) || names::may_be_of_delivery(name)
}

/// The path of the field that may differ between two deliveries, if this place is in one.
pub fn excepted(place: &[String]) -> Option<String> {
    let end = place.iter().position(|name| is_of_delivery(name))?;
    Some(path(&place[..=end]))
}

pub fn path(steps: &[String]) -> String {
    Path { source: Source::Value, steps: steps.to_vec() }.to_string()
}
