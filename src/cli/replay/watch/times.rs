//! Times in versions and in records: their units, and versions far beyond the record's time.

use std::collections::{BTreeMap, HashMap};

use crate::capture::guesses;
use crate::cli::replay::hints::is_share;
use crate::cli::replay::seen::Seen;
use crate::dedup::{Reason, Rules, VersionKind, parse_timestamp};
use crate::words::{agreeing, counted};

/// A version this much later than its record is a mistake of the source, not a difference of clocks or zones.
const BEYOND_SECONDS: i128 = 2 * 86_400;
/// Two readings of numbers in different units may be so far apart and still be of one stream.
const NEAR_SECONDS: i128 = 366 * 86_400;
/// The last second of the year 9999, which sources write for "for ever".
const LAST_SECOND: i128 = 253_402_300_799;

/// What was seen of times.
#[derive(Debug)]
pub struct Times {
    /// Whether the version is a time by the rules; else it may be one that is read as an integer.
    kind: Option<VersionKind>,
    /// Each partition's last version that is a time: its unit, and its seconds.
    last: HashMap<(String, i32), (&'static str, i128)>,
    /// How many versions have each unit, and where the second unit was first seen.
    units: Vec<(&'static str, u64)>,
    changed: Option<String>,
    /// Versions far beyond the record's time, and the first of them.
    beyond: u64,
    first_beyond: Option<String>,
    /// Records with a timestamp in another unit, its name, and the first of them.
    odd: u64,
    first_odd: Option<(&'static str, String)>,
    /// How many of those are late, or from the future.
    rejected: BTreeMap<Reason, u64>,
}

impl Times {
    /// Nothing seen yet.
    pub fn new(rules: &Rules) -> Self {
        let kind = rules.version.as_ref().and_then(|version| version.parts.first()).map(|part| part.kind);
        Self {
            kind: kind
                .filter(|kind| matches!(kind, VersionKind::Timestamp | VersionKind::Integer | VersionKind::Decimal)),
            last: HashMap::new(),
            units: Vec::new(),
            changed: None,
            beyond: 0,
            first_beyond: None,
            odd: 0,
            first_odd: None,
            rejected: BTreeMap::new(),
        }
    }

    /// Watches a record.
    pub fn add(&mut self, seen: &Seen<'_>) {
        let timestamp = seen.record.timestamp;
        let odd = timestamp.and_then(guesses::unit_of_timestamp);
        if let Some(unit) = odd {
            self.odd += 1;
            self.first_odd.get_or_insert_with(|| (unit, seen.place()));
            let reason = seen.decision.reason;
            if matches!(reason, Reason::Late | Reason::TimestampInFuture) {
                *self.rejected.entry(reason).or_default() += 1;
            }
        }
        let (Some(kind), Some(version)) = (self.kind, seen.explanation.version.as_deref()) else { return };
        let place_of = (seen.record.topic.to_owned(), seen.record.partition);
        let last = self.last.get(&place_of).copied();
        let Some((unit, seconds)) = time_of(version, kind, last.map(|(unit, _)| unit)) else { return };
        if let Some((other, before)) = last
            && other != unit
            && (seconds - before).abs() < NEAR_SECONDS
        {
            self.changed.get_or_insert_with(|| seen.place());
        }
        match self.units.iter_mut().find(|(known, _)| *known == unit) {
            Some((_, count)) => *count += 1,
            None => self.units.push((unit, 1)),
        }
        self.last.insert(place_of, (unit, seconds));
        let believed = timestamp.filter(|_| odd.is_none()).map(|ms| i128::from(ms) / 1_000);
        if believed.is_some_and(|at| seconds > at + BEYOND_SECONDS) {
            self.beyond += 1;
            self.first_beyond.get_or_insert_with(|| format!("{}, {version}", seen.place()));
        }
    }

    /// The hint about units that change.
    pub fn units(&self) -> Option<String> {
        let changed = self.changed.as_ref()?;
        let units: Vec<String> =
            self.units.iter().map(|(unit, count)| format!("{} in {unit}", counted(*count, "record"))).collect();
        Some(format!(
            "versions look like times in several units ({}; another one than before first at {changed}), so a greater \
             number need not be newer: let the source keep one unit (Debezium's `time.precision.mode=adaptive` changes it \
             with the precision of a column), or take a version that is no time",
            units.join(", ")
        ))
    }

    /// The hint about versions far beyond their records.
    pub fn beyond(&self) -> Option<String> {
        let first = self.first_beyond.as_ref()?;
        let (versions, are) = (counted(self.beyond, "version"), agreeing(self.beyond, "is", "are"));
        Some(format!(
            "{versions} {are} more than two days later than the record's own timestamp (first at {first}): nothing with an \
             earlier one passes for that identity from then on; correct the source, or `unit` if the number is read in a \
             wrong one"
        ))
    }

    /// The hint about timestamps in another unit than milliseconds.
    pub fn timestamps(&self, records: u64) -> Option<String> {
        let (unit, first) = self.first_odd.as_ref().filter(|_| is_share(self.odd, records))?;
        let of = |reason: Reason, words: &str| {
            let count = *self.rejected.get(&reason)?;
            Some(format!("{count} {} {words} ({reason})", agreeing(count, "is", "are")))
        };
        let late = of(Reason::Late, "late");
        let future = of(Reason::TimestampInFuture, "from the future");
        let effect: Vec<String> = [&late, &future].into_iter().flatten().cloned().collect();
        let by_them = if effect.is_empty() { String::new() } else { format!(", and by them {}", effect.join(", ")) };
        let forever = if late.is_some() { "; `retention: forever` lets no record be late" } else { "" };
        Some(format!(
            "the timestamps of {} of {} look like {unit} (first at {first}), where Kafka has milliseconds, so they lie \
             decades away{by_them}: have the producer correct them, or the topic write its own \
             (`message.timestamp.type=LogAppendTime`){forever}",
            self.odd,
            counted(records, "record")
        ))
    }

    /// How many records that hint explains, by their reasons.
    pub fn explained(&self, records: u64) -> BTreeMap<Reason, u64> {
        if is_share(self.odd, records) { self.rejected.clone() } else { BTreeMap::new() }
    }
}

/// The time that a version is: the unit in which it seems to be written, and its seconds since 1970. `usual` is the unit
/// of the version before it: in that one, times far ahead are recognised as well.
fn time_of(version: &str, kind: VersionKind, usual: Option<&'static str>) -> Option<(&'static str, i128)> {
    let first = version.trim_start_matches('[').split([',', ']']).next()?;
    if let Some(text) = first.strip_prefix('"') {
        return of_nanoseconds(parse_timestamp(text.trim_end_matches('"').as_bytes())?.nanoseconds);
    }
    let number: i128 = first.split('.').next()?.parse().ok()?;
    if kind == VersionKind::Timestamp {
        return of_nanoseconds(number);
    }
    let in_unit = |(unit, per_second): (&'static str, i128)| (unit, number / per_second);
    guesses::unit_of(number).map(in_unit).or_else(|| {
        let (unit, seconds) = guesses::UNITS.into_iter().find(|(unit, _)| Some(*unit) == usual).map(in_unit)?;
        (0..=LAST_SECOND).contains(&seconds).then_some((unit, seconds))
    })
}

/// A moment that was read in the unit of the rules, in nanoseconds: as it is, or, where that is no time of our days,
/// read in another unit.
fn of_nanoseconds(nanoseconds: i128) -> Option<(&'static str, i128)> {
    let is_today = |seconds: i128| guesses::unit_of(seconds).is_some_and(|(unit, _)| unit == "seconds");
    let seconds = nanoseconds.div_euclid(1_000_000_000);
    if is_today(seconds) {
        return Some(("the unit of the rules", seconds));
    }
    let finer = [1_000, 1_000_000, 1_000_000_000].map(|factor| ("a finer unit", seconds / factor));
    let coarser =
        [1_000, 1_000_000, 1_000_000_000].map(|factor| ("a coarser unit", nanoseconds * factor / 1_000_000_000));
    let other = finer.into_iter().chain(coarser).find(|(_, seconds)| is_today(*seconds));
    other.filter(|_| nanoseconds > 0).or_else(|| (seconds > 0).then_some(("the unit of the rules", seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedup::{Decision, Identity, Path};
    use crate::record::Record;
    use crate::rehearsal::Explanation;

    #[test]
    fn unit_of_a_version_is_told_by_its_size() {
        let integer = |text: &str, usual| time_of(text, VersionKind::Integer, usual);
        assert_eq!(integer("1735689600123", None), Some(("milliseconds", 1_735_689_600)));
        assert_eq!(integer("[1735689600123456,7]", None), Some(("microseconds", 1_735_689_600)));
        assert_eq!(integer("7", None), None);
        assert_eq!(integer("253402300799000", None), None);
        assert_eq!(integer("253402300799000", Some("milliseconds")), Some(("milliseconds", LAST_SECOND)));
        let read = |text: &str| time_of(text, VersionKind::Timestamp, None);
        assert_eq!(read("\"2025-01-01T00:00:00Z\""), Some(("the unit of the rules", 1_735_689_600)));
        // microseconds that were read as milliseconds, and seconds that were
        assert_eq!(read("1735689600123456000000"), Some(("a finer unit", 1_735_689_600)));
        assert_eq!(read("\"1970-01-21T02:08:09.6Z\""), Some(("a coarser unit", 1_735_689_600)));
        assert_eq!(read("\"9999-12-31T00:00:00Z\"").unwrap().0, "the unit of the rules");
        // finer than nanoseconds
        assert_eq!(read("\"2025-01-01T00:00:00.000000000001Z\""), Some(("the unit of the rules", 1_735_689_600)));
    }

    /// Watches records with these timestamps and reasons.
    fn watched(records: &[(i64, Reason)]) -> Times {
        let rules = Rules::new(Identity::of_paths([Path::parse("value.id").unwrap()]), None);
        let mut times = Times::new(&rules);
        for (offset, &(ms, reason)) in records.iter().enumerate() {
            let record = Record {
                topic: "in",
                partition: 0,
                offset: offset as i64,
                timestamp: Some(ms),
                key: None,
                value: Some(b"{}"),
                headers: Default::default(),
            };
            let decision = Decision { reason, ..Decision::REPLAYED };
            times.add(&Seen {
                record: &record,
                decision: &decision,
                explanation: &Explanation::default(),
                version: None,
            });
        }
        times
    }

    const SECONDS: i64 = 1_764_300_000;
    const MICROSECONDS: i64 = SECONDS * 1_000_000;

    #[test]
    fn timestamps_are_said_to_make_records_late_only_where_they_did() {
        let times = watched(&[(SECONDS, Reason::First), (SECONDS * 1_000, Reason::Late)]);
        let hint = times.timestamps(2).unwrap();
        assert!(hint.starts_with("the timestamps of 1 of 2 records look like seconds (first at in:0:0)"), "{hint}");
        assert!(!["late", "future", "forever"].iter().any(|word| hint.contains(word)), "{hint}");
        assert_eq!(times.explained(2), BTreeMap::new());

        let times = watched(&[(SECONDS, Reason::Late), (SECONDS, Reason::Late), (SECONDS, Reason::First)]);
        let hint = times.timestamps(3).unwrap();
        assert!(hint.contains("so they lie decades away, and by them 2 are late (late): have the"), "{hint}");
        assert!(hint.ends_with("`retention: forever` lets no record be late"), "{hint}");
        assert_eq!(times.explained(3), BTreeMap::from([(Reason::Late, 2)]));

        let times = watched(&[(MICROSECONDS, Reason::TimestampInFuture)]);
        let hint = times.timestamps(1).unwrap();
        assert!(
            hint.contains("by them 1 is from the future (timestamp_in_future): have") && !hint.contains("forever"),
            "{hint}"
        );
    }

    #[test]
    fn few_odd_timestamps_give_no_hint_and_explain_nothing() {
        let times = watched(&[(SECONDS, Reason::Late)]);
        assert!(times.timestamps(100).is_some() && !times.explained(100).is_empty());
        assert!(times.timestamps(101).is_none() && times.explained(101).is_empty());
    }
}
