//! Ids that are not proposed because a few records with the same id have other contents, and the reason in words.
//!
//! A single mistake of a producer is enough for [`choose`](super::choose::choose) to give up an id, since it accepts only
//! an identity that drops nothing new. Without a reason, users would miss the field that they know to be the id.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::choose::{self, Chosen};
use super::draft::{Draft, in_yaml};
use super::fields::{Field, Table};
use super::names::{self, EVENT};
use super::sample::{Observed, Sample};
use super::ties::{NAMED_MAX, excepted, listed, path};
use super::trial::Trial;
use crate::capture;
use crate::words::{agreeing, counted};

/// Maximum number of fields that are named.
const TOLD_MAX: usize = 2;
/// One record in this many may contradict an earlier record with its id.
const SHARE: usize = 10;
/// The same, if the field is an event's own id by its name.
const SHARE_OF_EVENTS: usize = 2;

/// A field that identifies most records, and is not proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The field.
    identity: usize,
    /// The version with which fewest records stand against it.
    version: Option<usize>,
    /// Its result on the sample.
    trial: Trial,
}

/// A record with the id of another and other contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    place: String,
    other: String,
    /// The fields in which the two differ, as paths.
    fields: Vec<String>,
}

impl Refused {
    /// The fields that are better known by their names than what was chosen, or part of it, and were given up because of a
    /// few records; the likeliest first.
    pub fn all(table: &Table, chosen: Option<&Chosen>) -> Vec<Self> {
        let score = |field: usize| names::identity_score(&table.fields[field].name);
        let identity = chosen.map_or(&[][..], |chosen| &chosen.identity);
        let best = identity.iter().map(|&field| score(field)).max().unwrap_or(0);
        let is_part = |field: usize| identity.contains(&field);
        let is_better = |field: usize| {
            let may_be_attempts = names::may_be_of_delivery(&table.fields[field].name);
            score(field) > best && (chosen.is_none() || !may_be_attempts)
        };
        // the key is the last that is tried
        let key = choose::whole_key(table).filter(|_| chosen.is_none());
        let candidates = choose::identities(table).into_iter();
        let candidates = candidates.filter(|&field| if is_part(field) { identity.len() > 1 } else { is_better(field) });
        let candidates = candidates.chain(key);
        candidates.filter_map(|field| Self::of(table, field, is_part(field))).take(TOLD_MAX).collect()
    }

    /// What stands against this field; `None` if nothing does, or too many records do.
    fn of(table: &Table, identity: usize, is_part: bool) -> Option<Self> {
        let versions = choose::versions(table).into_iter().filter(|&version| version != identity).map(Some);
        let tried = std::iter::once(None).chain(versions).map(|version| Self {
            identity,
            version,
            trial: table.trial(&[identity], version),
        });
        let few = tried.filter(|refused| refused.is_few(&table.fields[identity], is_part));
        few.min_by_key(|refused| (refused.trial.lost, refused.version.is_some(), Reverse(refused.trial.caught)))
    }

    /// Whether only few records stand against it.
    fn is_few(&self, field: &Field, is_part: bool) -> bool {
        let Trial { lost, caught, alike, rises, falls, returns, rows, .. } = self.trial;
        let agree = caught + alike;
        let is_order = self.version.is_none() || rises > 0 && falls * 2 <= rises && returns * 2 <= rises;
        let share = if names::identity_score(&field.name) >= EVENT { SHARE_OF_EVENTS } else { SHARE };
        let is_few = if is_part { lost * 2 <= agree } else { lost <= agree || lost * share <= rows };
        lost > 0 && is_few && is_order
    }

    /// Adds why it is not proposed, and what to do if it is the identity all the same.
    pub fn tell(&self, body: &mut Draft, sample: &Sample, table: &Table) {
        let Some(first) = self.counterexample(sample, table) else { return };
        let path = |field: usize| table.fields[field].path.to_string();
        let named = match self.version {
            None => path(self.identity),
            Some(version) => format!("{} with the version {}", path(self.identity), path(version)),
        };
        let Trial { lost, caught, alike, .. } = self.trial;
        let agree = caught + alike;
        let against = match agree {
            0 => format!(
                "{} {} the id of an earlier record and {} something else, and none says the same",
                counted(lost, "record"),
                agreeing(lost, "has", "have"),
                agreeing(lost, "says", "say")
            ),
            _ => format!(
                "{} {} the id of an earlier record and {} the same, but {lost} {} something else",
                counted(agree, "record"),
                agreeing(agree, "has", "have"),
                agreeing(agree, "says", "say"),
                agreeing(lost, "says", "say"),
            ),
        };
        let version = self.version.map_or_else(String::new, |version| {
            format!(", `version: {{of: {}, as: {}}}`", in_yaml(&path(version)), table.fields[version].version_kind())
        });
        body.comment(&format!(
            "{named} is not proposed as the identity: {against}. The first is {}. If that is a mistake, and {named} identifies a \
             thing all the same, write `identity: {}`{version}, and with `on_conflict` what becomes of such a record: \
             `forward` passes it on, `dead_letter` sets it aside, `drop` drops it.",
            first.words(),
            in_yaml(&path(self.identity)),
        ));
        body.unsure.push(format!(
            "{named} would identify the records, but {} {} the id of an earlier record and {} something else: the first is {}; if \
             that is a mistake, name the field as `identity`, and write `on_conflict`",
            counted(lost, "record"),
            agreeing(lost, "has", "have"),
            agreeing(lost, "says", "say"),
            first.words()
        ));
    }

    fn counterexample(&self, sample: &Sample, table: &Table) -> Option<Counterexample> {
        Counterexample::first(sample, table, &[self.identity], self.version)
    }
}

impl Counterexample {
    /// The first record that [`Table::trial`] counts as lost, with the one that it contradicts.
    pub fn first(sample: &Sample, table: &Table, identity: &[usize], version: Option<usize>) -> Option<Self> {
        let (row, other) = first_lost(table, identity, version)?;
        // rows are the records with a value that is JSON
        let mut records = sample.records.iter().filter(|observed| observed.value.is_some());
        let (other, record) = (records.clone().nth(other)?, records.nth(row)?);
        Some(Self { place: record.place(), other: other.place(), fields: differing(record, other) })
    }

    /// `in:0:7, which differs from in:0:3 in value.amount`.
    pub fn words(&self) -> String {
        let fields = if self.fields.is_empty() { String::new() } else { format!(" in {}", listed(&self.fields)) };
        format!("{}, which differs from {}{fields}", self.place, self.other)
    }
}

/// The first row that would be dropped although no earlier row of its identity says the same, and the row before it.
fn first_lost(table: &Table, identity: &[usize], version: Option<usize>) -> Option<(usize, usize)> {
    struct Known {
        highest: i128,
        last: usize,
        cores: HashSet<u64>,
    }
    let mut known: HashMap<u64, Known> = HashMap::new();
    for row in 0..table.rows {
        let Some(key) = table.key(identity, row, true) else { continue };
        let order = match version {
            None => 0,
            Some(version) => match table.fields[version].values[row].and_then(|cell| cell.order) {
                Some(order) => order,
                None => continue,
            },
        };
        let entry = known.entry(key).or_insert_with(|| Known { highest: order, last: row, cores: HashSet::new() });
        let is_new = entry.cores.insert(table.cores[row]);
        if is_new && order == entry.highest && entry.last != row {
            return Some((row, entry.last));
        }
        if order >= entry.highest {
            (entry.highest, entry.last) = (order, row);
        }
    }
    None
}

/// In what two values differ; what may belong to the delivery only if nothing else does.
fn differing(record: &Observed, other: &Observed) -> Vec<String> {
    let (Some(value), Some(before)) = (&record.value, &other.value) else { return Vec::new() };
    let places = capture::differences(value, before).into_iter().filter(|place| !place.is_empty());
    let (of_delivery, own): (Vec<_>, Vec<_>) = places.partition(|place| excepted(place).is_some());
    let named = if own.is_empty() { of_delivery } else { own };
    named.iter().take(NAMED_MAX).map(|place| path(place)).collect()
}
