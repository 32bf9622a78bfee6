//! Chooses the fields for identity and version of records without a preset.
//!
//! Kinds of choices are tried on the sample, from the plainest to the last resort. The first that drops only what an
//! earlier record already said is taken. Names only decide between equally good fields.

use super::fields::{Field, Table};
use super::names::{self, CHANGED, EVENT, MOMENT, STRONG};
use super::trial::Trial;
use crate::words::{agreeing, counted};

/// Maximum number of fields that are tried as the identity, or as its first part.
const IDENTITIES_MAX: usize = 6;
/// Maximum number of fields that are tried together with each of them.
const COMPANIONS_MAX: usize = 12;
/// How a doubt begins about an identity that no record repeats.
pub const NOTHING_REPEATS: &str = "no record came twice";
/// How often a mere time must rise with a change to be taken as a version.
const RISES_MIN: usize = 5;

/// The chosen fields, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The identity's fields.
    pub identity: Vec<usize>,
    /// The version's field.
    pub version: Option<usize>,
    /// Its result on the sample.
    pub trial: Trial,
}

/// The fields that identify and version a table's records; `None` if no field identifies them.
pub fn choose(table: &Table) -> Option<Chosen> {
    let identities = identities(table);
    let companions = best(table, companion_score, Field::identifies, COMPANIONS_MAX);
    let versions = versions(table);
    let strong: Vec<usize> = above(table, &versions, CHANGED);
    let moments: Vec<usize> = above(table, &versions, MOMENT);
    // the id of a request may be that of each attempt
    let (attempts, own): (Vec<usize>, Vec<usize>) =
        identities.into_iter().partition(|&id| names::may_be_of_delivery(&table.fields[id].name));
    let alone = |ids: &[usize]| ids.iter().map(|&id| vec![id]).collect::<Vec<_>>();
    let (singles, attempts) = (alone(&own), alone(&attempts));
    let (states, kinds): (Vec<usize>, Vec<usize>) =
        companions.into_iter().partition(|&other| names::is_state(&table.fields[other].name));
    let with = |others: &[usize]| -> Vec<Vec<usize>> {
        let pair = |&id: &usize| others.iter().filter(move |&&other| other != id).map(move |&other| vec![id, other]);
        own.iter().flat_map(pair).collect()
    };
    let (pairs, with_states) = (with(&kinds), with(&states));
    let key: Vec<Vec<usize>> = whole_key(table).into_iter().map(|key| vec![key]).collect();
    // where records say what was done, a time is more likely that of a change
    let rises_min = if states.is_empty() && !has_changes(table) { RISES_MIN } else { 1 };
    let catches = |chosen: &Chosen| chosen.trial.caught + chosen.trial.alike > 0;

    upserted(table, &singles, &strong)
        .or_else(|| finer(table, seen(table, &singles), seen(table, &attempts)))
        .or_else(|| versioned(table, &singles, &strong, 1))
        .or_else(|| seen(table, &attempts).filter(|chosen| chosen.trial.caught > 0))
        .or_else(|| seen(table, &pairs).filter(|chosen| catches(chosen) || attempts.is_empty()))
        .or_else(|| versioned(table, &singles, &moments, rises_min))
        .or_else(|| versioned(table, &pairs, &strong, 1))
        .or_else(|| seen(table, &with_states).filter(catches))
        .or_else(|| seen(table, &attempts))
        .or_else(|| seen(table, &with_states))
        .or_else(|| versioned(table, &key, &strong, 1))
        .or_else(|| seen(table, &key))
}

/// The fields that may identify records, the likeliest by name first.
pub fn identities(table: &Table) -> Vec<usize> {
    best(table, |field| names::identity_score(&field.name), Field::identifies, IDENTITIES_MAX)
}

/// The fields that may be versions, the likeliest by name first.
pub fn versions(table: &Table) -> Vec<usize> {
    best(table, |field| names::version_score(&field.name), Field::versions, usize::MAX)
}

/// The first, unless it merges records that differ (and is no event's own id), while the second merges only equal records:
/// then the second, which tells more things apart.
fn finer(table: &Table, first: Option<Chosen>, second: Option<Chosen>) -> Option<Chosen> {
    let is_finer = |second: &Chosen| second.trial.caught > 0 && second.trial.alike == 0;
    let is_events = |chosen: &Chosen| names::identity_score(&table.fields[chosen.identity[0]].name) >= EVENT;
    match first {
        Some(first) if first.trial.alike > 0 && !is_events(&first) => second.filter(is_finer).or(Some(first)),
        first => first,
    }
}

/// Whether a field says what was done to a row, as in change data capture.
fn has_changes(table: &Table) -> bool {
    table.fields.iter().any(|field| field.is_change && names::companion_score(&field.name) >= names::COMPANION)
}

/// The id of a thing, not of an event, with a field that is a version by its name.
fn upserted(table: &Table, singles: &[Vec<usize>], versions: &[usize]) -> Option<Chosen> {
    let is_things = |identity: &&Vec<usize>| names::identity_score(&table.fields[identity[0]].name) < EVENT;
    let has_events_own =
        singles.iter().any(|identity| !is_things(&identity) && seen(table, std::slice::from_ref(identity)).is_some());
    let things: Vec<_> = singles.iter().filter(is_things).cloned().collect();
    // an id that repeats, and never with another version, is an event's own whatever its name
    let is_thing = |chosen: &Chosen| chosen.trial.rises > 0 || chosen.trial.caught + chosen.trial.alike == 0;
    if has_events_own { None } else { versioned(table, &things, versions, 0).filter(is_thing) }
}

/// Of the identities that lose nothing without a version, the first that catches most.
fn seen(table: &Table, identities: &[Vec<usize>]) -> Option<Chosen> {
    let tried = identities.iter().map(|identity| Chosen {
        identity: identity.clone(),
        version: None,
        trial: table.trial(identity, None),
    });
    let good = tried.filter(|chosen| chosen.trial.lost == 0 && chosen.may_be_alike(table));
    first_max(good, |chosen| (chosen.trial.caught, chosen.trial.alike))
}

/// Of the identities that lose nothing with a version that mostly rises, at least `rises_min` times, the first whose
/// version falls least.
fn versioned(table: &Table, identities: &[Vec<usize>], versions: &[usize], rises_min: usize) -> Option<Chosen> {
    let tried = identities.iter().flat_map(|identity| {
        let others = versions.iter().filter(|version| !identity.contains(version));
        others.map(move |&version| Chosen {
            identity: identity.clone(),
            version: Some(version),
            trial: table.trial(identity, Some(version)),
        })
    });
    let good = tried.filter(|Chosen { trial, .. }| {
        // a time that rises whenever a thing says the same again is rather the time of sending
        let is_sendings = trial.returns * 2 > trial.rises;
        trial.lost == 0 && trial.rises >= rises_min && trial.falls * 2 <= trial.rises && !is_sendings
    });
    first_max(good, |chosen| std::cmp::Reverse((chosen.trial.returns, chosen.trial.falls)))
}

/// The first item with the highest score.
fn first_max<T, K: Ord>(items: impl Iterator<Item = T>, score: impl Fn(&T) -> K) -> Option<T> {
    items.reduce(|best, item| if score(&item) > score(&best) { item } else { best })
}

/// The fields that are eligible, the best by name first; of equals, the less deeply nested.
fn best(
    table: &Table,
    score: impl Fn(&Field) -> u32,
    is_eligible: impl Fn(&Field, usize) -> bool,
    count_max: usize,
) -> Vec<usize> {
    let mut fields: Vec<usize> = (0..table.fields.len())
        .filter(|&number| is_eligible(&table.fields[number], table.rows) && score(&table.fields[number]) > 0)
        .collect();
    fields.sort_by_key(|&number| {
        let field = &table.fields[number];
        let is_constant = field.distinct == 1;
        (is_constant, std::cmp::Reverse(score(field)), field.path.steps.len(), std::cmp::Reverse(field.distinct))
    });
    fields.truncate(count_max);
    fields
}

fn above(table: &Table, versions: &[usize], score: u32) -> Vec<usize> {
    versions.iter().copied().filter(|&version| names::version_score(&table.fields[version].name) >= score).collect()
}

fn companion_score(field: &Field) -> u32 {
    // a version is not a companion, nor is `update`: a row is updated more than once
    let is_none = names::version_score(&field.name) > 0 || field.is_change || names::may_be_of_delivery(&field.name);
    if is_none { 0 } else { names::companion_score(&field.name) }
}

/// The whole key, if it is not a JSON object.
pub fn whole_key(table: &Table) -> Option<usize> {
    table.fields.iter().position(|field| field.path.to_string() == "key" && field.identifies(table.rows))
}

impl Chosen {
    /// Whether records that differ in a time or in a request's id may be one thing that was sent several times. If this
    /// applies to most records of an identity, the identity is rather a reporter, such as a sensor, and each record a report.
    fn may_be_alike(&self, table: &Table) -> bool {
        let is_events = |&field: &usize| names::identity_score(&table.fields[field].name) >= EVENT;
        self.trial.alike * 2 <= self.trial.rows || self.identity.iter().any(is_events)
    }

    /// Why this identity, in sentences.
    pub fn why_identity(&self, table: &Table) -> Vec<String> {
        let mut why: Vec<String> = self.identity.iter().map(|&field| table.fields[field].words(table.rows)).collect();
        let Trial { caught, alike, rises, .. } = self.trial;
        let again = caught + alike;
        let (records, have) = (counted(again, "record"), agreeing(again, "has", "have"));
        let differing = table.differing(&self.identity, self.version);
        let except =
            if differing.is_empty() { String::new() } else { format!(", except for {}", differing.join(", ")) };
        why.push(match again {
            0 if rises + self.trial.falls > 0 => {
                "records that have the same differ otherwise, so a version shows which is newer".to_owned()
            }
            0 if table.has_several_partitions() => "no two records of a partition have the same".to_owned(),
            0 => "no two records have the same".to_owned(),
            _ if rises + self.trial.falls == 0 => {
                let says = agreeing(again, "it says", "each of them says");
                format!("{records} {have} what another had before, and {says} the same as that one{except}")
            }
            _ => {
                let say = agreeing(again, "says", "say");
                format!(
                    "{records} {say} what another with the same has said{except}; others differ, so a version shows \
                     which is newer"
                )
            }
        });
        why
    }

    /// Why this version, in sentences; empty if there is none.
    pub fn why_version(&self, table: &Table) -> Vec<String> {
        let Some(version) = self.version else { return Vec::new() };
        let Trial { rises, falls, shared, .. } = self.trial;
        let mut why = vec![table.fields[version].words(table.rows)];
        let sharing = match shared {
            0 => "no two changes share one".to_owned(),
            shared => format!("{} {} that of another", counted(shared, "change"), agreeing(shared, "has", "have")),
        };
        why.push(if rises == 0 {
            "nothing came in two versions, so only its name says that it is one".to_owned()
        } else {
            format!(
                "within an identity it rises {}, falls {}, and {sharing}",
                counted(rises, "time"),
                counted(falls, "time")
            )
        });
        why
    }

    /// Whether nothing but its name makes its version one.
    pub fn is_versioned_by_name(&self) -> bool {
        self.version.is_some() && self.trial.rises == 0
    }

    /// What the sample does not show.
    pub fn unsure(&self, table: &Table) -> Vec<String> {
        let paths = self.identity.iter().map(|&field| table.fields[field].path.to_string()).collect::<Vec<_>>();
        let identity = paths.join(" and ");
        let mut unsure = Vec::new();
        if self.trial.caught + self.trial.alike == 0 {
            unsure.push(format!(
                "{NOTHING_REPEATS}, so nothing shows that {identity} stays the same when a record is delivered again"
            ));
        }
        unsure.extend(self.unsure_of_identity(table, &identity));
        if let Some(version) = self.version {
            unsure.extend(self.unsure_of_version(table, version));
        }
        unsure
    }

    /// Doubts about the identity.
    fn unsure_of_identity(&self, table: &Table, identity: &str) -> Vec<String> {
        let mut unsure = Vec::new();
        let Trial { alike, caught, .. } = self.trial;
        if alike > 0 {
            let differing = table.differing(&self.identity, self.version).join(", ");
            unsure.push(format!(
                "{} {} from an earlier one with the same {identity} only in {differing}, and {} taken for that one sent \
                 again; if each is an event of its own, add what distinguishes them to `identity`",
                counted(alike, "record"),
                agreeing(alike, "differs", "differ"),
                agreeing(alike, "is", "are")
            ));
        }
        for &field in self.identity.iter().skip(1) {
            let Field { path, name, .. } = &table.fields[field];
            if names::is_state(name) {
                unsure.push(format!(
                    "a thing that returns to a {path} that it had before counts as a duplicate: if that happens, name a \
                     `version`, a field that rises with each change"
                ));
            } else if self.version.is_none() && names::companion_score(name) >= names::COMPANION {
                unsure.push(format!("a second event with the same {identity} counts as a duplicate of the first"));
            }
        }
        if caught + alike == 0 && self.version.is_none() {
            let (count, of) = table.alike_without(&self.identity);
            if count * 20 > of {
                unsure.push(format!(
                    "{} {} the same as an earlier one except for {identity} and times: if that is one thing sent again, \
                     {identity} changes with each sending, and does not identify it",
                    counted(count, "record"),
                    agreeing(count, "says", "say")
                ));
            }
        }
        unsure
    }

    /// Doubts about the version.
    fn unsure_of_version(&self, table: &Table, version: usize) -> Vec<String> {
        let (Field { path, name, .. }, mut unsure) = (&table.fields[version], Vec::new());
        if self.is_versioned_by_name() {
            unsure.push(format!(
                "{path} is a version by its name only: nothing came in two versions. With a version ratchet would \
                 remember every identity for ever, so `retention` limits that: remove it if {path} rises with each \
                 change, or remove both if it does not"
            ));
        } else if names::version_score(name) < STRONG {
            unsure.push(format!(
                "{path} is a time: two changes within its precision are passed on as they come, whichever is the newer one"
            ));
        }
        if self.trial.returns > 0 {
            unsure.push(format!(
                "{} with a greater {path} {} what had been said before: if {} sent again, {path} is the time of the \
                 sending and no version",
                counted(self.trial.returns, "record"),
                agreeing(self.trial.returns, "says", "say"),
                agreeing(self.trial.returns, "it was", "they were")
            ));
        }
        unsure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Captured;
    use crate::infer::Sample;

    /// What is chosen for these values: identity and version.
    fn chosen(values: &[&str]) -> Option<(Vec<String>, Option<String>)> {
        let mut sample = Sample::default();
        for value in values {
            let mut captured = Captured::default();
            captured.read_value(value.as_bytes());
            sample.add(captured);
        }
        let table = Table::of(&sample);
        let path = |field: usize| table.fields[field].path.to_string();
        choose(&table).map(|chosen| (chosen.identity.into_iter().map(path).collect(), chosen.version.map(path)))
    }

    fn of(identity: &[&str], version: Option<&str>) -> Option<(Vec<String>, Option<String>)> {
        Some((identity.iter().map(|path| (*path).to_owned()).collect(), version.map(str::to_owned)))
    }

    #[test]
    fn events_own_id_needs_no_version() {
        let events = [
            r#"{"event_id":"a1","customer_id":7,"version":1,"x":1}"#,
            r#"{"event_id":"a1","customer_id":7,"version":1,"x":1}"#,
            r#"{"event_id":"b2","customer_id":7,"version":1,"x":2}"#,
        ];
        assert_eq!(chosen(&events), of(&["value.event_id"], None));
    }

    #[test]
    fn thing_that_changes_has_a_version() {
        let rows = [
            r#"{"id":1,"name":"a","version":1}"#,
            r#"{"id":2,"name":"b","version":1}"#,
            r#"{"id":1,"name":"c","version":2}"#,
            r#"{"id":1,"name":"a","version":1}"#,
        ];
        assert_eq!(chosen(&rows), of(&["value.id"], Some("value.version")));
        let times =
            rows.map(|row| row.replace("\"version\":", "\"updated_at\":\"2024-01-01T00:00:0").replace('}', "Z\"}"));
        let times: Vec<&str> = times.iter().map(String::as_str).collect();
        assert_eq!(chosen(&times), of(&["value.id"], Some("value.updated_at")));
    }

    #[test]
    fn business_key_may_take_two_fields() {
        let charges = [
            r#"{"order_id":7,"operation":"charge","amount":5}"#,
            r#"{"order_id":7,"operation":"charge","amount":5}"#,
            r#"{"order_id":7,"operation":"refund","amount":5}"#,
            r#"{"order_id":8,"operation":"charge","amount":5}"#,
        ];
        assert_eq!(chosen(&charges), of(&["value.order_id", "value.operation"], None));
    }

    #[test]
    fn constant_field_is_not_taken_as_a_version() {
        // a schema's version is the same for all changes
        let rows = [
            r#"{"id":1,"version":1,"type":"a"}"#,
            r#"{"id":1,"version":1,"type":"b"}"#,
            r#"{"id":1,"version":1,"type":"b"}"#,
        ];
        assert_eq!(chosen(&rows), of(&["value.id", "value.type"], None));
    }

    #[test]
    fn time_is_a_version_only_if_it_rises_often_enough() {
        let row = |second: usize| format!(r#"{{"user_id":1,"level":{second},"ts":{second}}}"#);
        let few: Vec<String> = (0..3).map(row).collect();
        let many: Vec<String> = (0..9).map(row).collect();
        let texts = |rows: &[String]| chosen(&rows.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(texts(&few), None);
        assert_eq!(texts(&many), of(&["value.user_id"], Some("value.ts")));
    }

    #[test]
    fn nothing_is_chosen_if_no_field_identifies() {
        assert_eq!(chosen(&[r#"{"temperature":20.5}"#, r#"{"temperature":21.5}"#]), None);
        assert_eq!(chosen(&[]), None);
    }
}
