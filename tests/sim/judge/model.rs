//! What ratchet promises, as a sequential program over one partition: a tree of JSON, a map, one record after
//! another. It knows the rules, and nothing about how the engine implements them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::kafka::{Bytes, Record};

use super::bytes::{self, Said};
use super::epochs::{Relation, Scopes};
use super::rules::{OnConflict, Rules, future_max_ms};

/// Keys and values that a changelog or a store has to hold.
pub type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// The decision on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Forwarded,
    /// With the reason, as in the next two.
    Duplicate(&'static str),
    Stale(&'static str),
    DeadLettered(&'static str),
}

/// What is remembered of an identity.
#[derive(Clone, Debug)]
struct Entry {
    last_seen: i64,
    version: Option<i128>,
    scope: Option<usize>,
    /// Whether it came from a snapshot read.
    from_read: bool,
    owes_tombstone: bool,
    record_key: Option<Bytes>,
    /// The contents of its version, oldest first.
    contents: Vec<[u8; 8]>,
}

/// How many contents an entry knows.
const CONTENTS_MAX: usize = 8;

impl Entry {
    fn bytes(&self) -> Vec<u8> {
        let version = self.version.map(bytes::version);
        let remembered = bytes::Remembered {
            record_key: self.record_key.as_deref(),
            last_seen: self.last_seen,
            version: version.as_deref(),
            scope: self.scope.map(|number| number as u16),
            from_read: self.from_read,
            owes_tombstone: self.owes_tombstone,
            contents: &self.contents,
        };
        remembered.encode()
    }

    /// Whether it knows contents, and these are not among them.
    fn conflicts(&self, contents: Option<[u8; 8]>) -> bool {
        contents.is_some_and(|contents| !self.contents.is_empty() && !self.contents.contains(&contents))
    }

    fn learn(&mut self, contents: Option<[u8; 8]>) {
        self.contents.extend(contents);
        let over = self.contents.len().saturating_sub(CONTENTS_MAX);
        self.contents.drain(..over);
    }
}

/// One partition's state.
pub struct Model<'a> {
    rules: &'a Rules,
    /// How long the current owner remembers an identity; `None` is for ever.
    pub retention_ms: Option<i64>,
    entries: HashMap<Vec<u8>, Entry>,
    /// The highest timestamp seen.
    pub stream_time: i64,
    /// The highest `stream time - retention`.
    pub horizon: i64,
    /// How many truncates were forwarded.
    pub truncates: u64,
    changed: BTreeSet<Vec<u8>>,
    /// Whether a database refuses what the next record causes.
    pub is_refused: bool,
    /// Whether the next record does not come to the output, whatever its size: a gate drops it.
    pub is_dropped: bool,
    scopes: Scopes,
    /// The scopes and segments there would have been with the last record that the output rejected.
    tried: (usize, usize),
}

impl<'a> Model<'a> {
    pub fn new(rules: &'a Rules) -> Self {
        Self {
            rules,
            retention_ms: rules.retention_ms,
            entries: HashMap::new(),
            stream_time: -1,
            horizon: i64::MIN,
            truncates: 0,
            changed: BTreeSet::new(),
            is_refused: false,
            is_dropped: false,
            scopes: Scopes::default(),
            tried: (0, 0),
        }
    }

    /// Decides on the next record. `wall_ms` is the lowest and the highest time that clocks may have shown; between
    /// them, `was_disbelieved` says whether the timestamp was rejected.
    pub fn apply(&mut self, offset: i64, record: &Record, wall_ms: (i64, i64), was_disbelieved: bool) -> Verdict {
        if self.is_disbelieved(record.timestamp, wall_ms, was_disbelieved) {
            return Verdict::DeadLettered("timestamp_in_future");
        }
        if let Some(timestamp) = record.timestamp {
            self.stream_time = self.stream_time.max(timestamp);
            if let Some(retention) = self.retention_ms {
                self.horizon = self.horizon.max(self.stream_time - retention);
            }
        }
        let Read { identity, version, scope, kind, table, contents } = match read(self.rules, record) {
            Ok(read) => read,
            // Nothing about it is remembered.
            Err("null_value") if self.rules.forwards_null => return Verdict::Forwarded,
            Err(reason) => return Verdict::DeadLettered(reason),
        };
        if record.timestamp.is_some_and(|timestamp| timestamp < self.horizon) {
            return Verdict::DeadLettered("late");
        }
        if self.rules.has_changes {
            return self.apply_change((identity, version, kind, table), contents, record);
        }
        let known = self.entries.get(&identity).filter(|entry| !self.is_expired(entry));
        let (verdict, came_back) = match (self.rules.version.is_some(), version, known) {
            (true, None, _) => return self.sent(record),
            (_, _, None) => (Verdict::Forwarded, None),
            (false, _, Some(_)) => (Verdict::Duplicate("seen"), None),
            (true, Some(new), Some(entry)) => self.compare(new, scope.as_deref(), entry),
        };
        let is_conflict = known.is_some_and(|entry| entry.conflicts(contents));
        let (verdict, ties) = self.on_tie(verdict, is_conflict);
        let verdict = if verdict == Verdict::Forwarded { self.sent(record) } else { verdict };
        if let Verdict::DeadLettered(_) = verdict {
            // It was not forwarded: nothing about it is remembered, so a repetition is as new as it was. Whether
            // there is room for it is checked before it is sent.
            if let (Some(name), Some(version)) = (&scope, version) {
                let mut tried = self.scopes.clone();
                tried.see(name, version, offset, came_back);
                self.tried = tried.counts();
            }
            return verdict;
        }
        let number = scope.as_deref().map(|name| self.scopes.number_or_next(name));
        if let (Some(name), Some(version)) = (&scope, version) {
            self.scopes.see(name, version, offset, came_back);
        }
        if verdict == Verdict::Forwarded {
            self.remember(identity, (version, number), (Change::Upsert, contents, ties), record);
        } else if ties && matches!(verdict, Verdict::Duplicate(_)) {
            self.learn(identity, contents);
        }
        verdict
    }

    /// The verdict on a repetition, or on a conflict, and whether the record's contents join the known ones.
    fn on_tie(&self, verdict: Verdict, is_conflict: bool) -> (Verdict, bool) {
        let reason = match verdict {
            Verdict::Duplicate("seen") if is_conflict => "seen_otherwise",
            Verdict::Duplicate("version_equal") if is_conflict => "version_tied",
            other => return (other, false),
        };
        match self.rules.conflict {
            OnConflict::Forward => (Verdict::Forwarded, true),
            OnConflict::Drop => (Verdict::Duplicate(reason), true),
            OnConflict::DeadLetter => (Verdict::DeadLettered(reason), false),
        }
    }

    /// The contents of a record that was dropped as a conflict are known from then on.
    fn learn(&mut self, identity: Vec<u8>, contents: Option<[u8; 8]>) {
        if let Some(entry) = self.entries.get_mut(&identity) {
            entry.learn(contents);
            self.changed.insert(identity);
        }
    }

    /// Decides on a change to a row, or to a table.
    fn apply_change(
        &mut self,
        (identity, version, kind, table): (Vec<u8>, Option<i128>, Change, Option<Vec<u8>>),
        contents: Option<[u8; 8]>,
        record: &Record,
    ) -> Verdict {
        let now = self.now(record);
        let known = self.entries.get_mut(&identity);
        if kind == Change::Tombstone {
            return match known.filter(|entry| entry.owes_tombstone) {
                Some(entry) => {
                    (entry.owes_tombstone, entry.last_seen) = (false, now.max(entry.last_seen));
                    self.changed.insert(identity);
                    Verdict::Forwarded
                }
                None => Verdict::Duplicate("tombstone_not_owed"),
            };
        }
        let truncated = table.and_then(|table| self.entries.get(&table)).and_then(|table| table.version);
        let verdict = match self.entries.get(&identity) {
            _ if truncated.is_some_and(|truncated| version < Some(truncated)) => Verdict::Stale("table_truncated"),
            None => Verdict::Forwarded,
            Some(entry) if kind == Change::Read && !entry.from_read => Verdict::Stale("snapshot_read"),
            Some(entry) if kind != Change::Read && entry.from_read => Verdict::Forwarded,
            Some(entry) => by_version(version, entry.version),
        };
        let is_conflict = self.entries.get(&identity).is_some_and(|entry| entry.conflicts(contents));
        let (verdict, ties) = self.on_tie(verdict, is_conflict);
        let verdict = if verdict == Verdict::Forwarded { self.sent(record) } else { verdict };
        if verdict == Verdict::Forwarded {
            self.truncates += u64::from(kind == Change::Truncate);
            self.remember(identity, (version, None), (kind, contents, ties), record);
        } else if ties && matches!(verdict, Verdict::Duplicate(_)) {
            self.learn(identity, contents);
        }
        verdict
    }

    /// The time at which a record is seen.
    fn now(&self, record: &Record) -> i64 {
        record.timestamp.unwrap_or(-1).max(self.stream_time)
    }

    fn remember(
        &mut self,
        identity: Vec<u8>,
        (version, scope): (Option<i128>, Option<usize>),
        (kind, contents, ties): (Change, Option<[u8; 8]>, bool),
        record: &Record,
    ) {
        let known = self.entries.get(&identity).filter(|_| ties);
        let mut entry = Entry {
            last_seen: self.now(record),
            version,
            scope,
            from_read: kind == Change::Read,
            owes_tombstone: kind == Change::Delete,
            record_key: record.key.clone(),
            contents: known.map(|known| known.contents.clone()).unwrap_or_default(),
        };
        entry.learn(contents);
        self.changed.insert(identity.clone());
        self.entries.insert(identity, entry);
    }

    /// Compares a version with an entry; also returns after which offset its scope came back, if it did.
    fn compare(&self, new: i128, scope: Option<&str>, entry: &Entry) -> (Verdict, Option<i64>) {
        let Some(old) = entry.version else { return (Verdict::Forwarded, None) };
        if let (Some(name), Some(theirs)) = (scope, entry.scope)
            && self.scopes.number(name) != Some(theirs)
        {
            return match self.scopes.relation(name, new, (theirs, old)) {
                Relation::Newer => (Verdict::Forwarded, None),
                Relation::ComesBack(since) => (Verdict::Forwarded, Some(since)),
                Relation::Older => (Verdict::Stale("epoch_older"), None),
            };
        }
        (by_version(Some(new), Some(old)), None)
    }

    /// Decides on a record to be forwarded, which the output may reject for good.
    fn sent(&self, record: &Record) -> Verdict {
        if self.rules.has_sink {
            return if self.is_refused { Verdict::DeadLettered("rejected") } else { Verdict::Forwarded };
        }
        let is_taken =
            self.is_dropped || record.value.as_ref().is_none_or(|value| value.len() <= self.rules.output_bytes_max);
        if is_taken { Verdict::Forwarded } else { Verdict::DeadLettered("unsendable") }
    }

    fn is_disbelieved(&self, timestamp: Option<i64>, (least, most): (i64, i64), was: bool) -> bool {
        let Some(timestamp) = timestamp.filter(|timestamp| *timestamp > self.stream_time) else { return false };
        let limit = future_max_ms(self.retention_ms);
        timestamp > most + limit || (was && timestamp > least + limit)
    }

    /// What a transaction that ends here must have written, apart from tombstones of the sweeper.
    pub fn take_changed(&mut self) -> State {
        let of = |key: Vec<u8>| self.entries.get(&key).map(|entry| (key, entry.bytes()));
        std::mem::take(&mut self.changed).into_iter().filter_map(of).collect()
    }

    /// Removes an identity; `false` if it is not there, or has not expired.
    pub fn sweep(&mut self, key: &[u8]) -> bool {
        let is_expired = self.entries.get(key).is_some_and(|entry| self.is_expired(entry));
        is_expired && self.entries.remove(key).is_some()
    }

    /// The highest number of scopes, and of their segments, including those for a record that the output rejected.
    pub fn scopes_tried(&self) -> (usize, usize) {
        let (scopes, segments) = self.scopes.counts();
        (scopes.max(self.tried.0), segments.max(self.tried.1))
    }

    /// Whether there is an entry, expired or not.
    pub fn knows(&self, key: &[u8]) -> bool {
        self.entries.contains_key(key)
    }

    /// Everything that is remembered.
    pub fn state(&self) -> State {
        self.entries.iter().map(|(key, entry)| (key.clone(), entry.bytes())).collect()
    }

    fn is_expired(&self, entry: &Entry) -> bool {
        let Some(retention) = self.retention_ms else { return false };
        entry.last_seen >= 0 && entry.last_seen + retention < self.stream_time
    }
}

fn by_version(new: Option<i128>, known: Option<i128>) -> Verdict {
    match new.cmp(&known) {
        Ordering::Greater => Verdict::Forwarded,
        Ordering::Equal => Verdict::Duplicate("version_equal"),
        Ordering::Less => Verdict::Stale("version_older"),
    }
}

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Upsert,
    Delete,
    /// A row read for a snapshot.
    Read,
    Truncate,
    /// A null value after a delete.
    Tombstone,
}

/// What was read from a record.
pub struct Read {
    /// The identity's key.
    pub identity: Vec<u8>,
    pub version: Option<i128>,
    /// The scope's name.
    pub scope: Option<String>,
    pub kind: Change,
    /// The key of a row's table.
    pub table: Option<Vec<u8>>,
    /// The digest of its contents, if contents are compared.
    pub contents: Option<[u8; 8]>,
}

/// Reads a record; the error is why it cannot be read.
pub fn read(rules: &Rules, record: &Record) -> Result<Read, &'static str> {
    let key = || record.key.as_deref().and_then(|key| serde_json::from_slice(key).ok()).unwrap_or(Value::Null);
    let Some(value) = record.value.as_deref() else {
        let identity = if rules.has_changes { identity(rules, &key())? } else { return Err("null_value") };
        return Ok(Read { identity, version: None, scope: None, kind: Change::Tombstone, table: None, contents: None });
    };
    let json: Value = serde_json::from_slice(value).map_err(|_| "value_malformed")?;
    let kind = match json.get("op").and_then(Value::as_str).filter(|_| rules.has_changes) {
        Some("d") => Change::Delete,
        Some("r") => Change::Read,
        Some("t") => Change::Truncate,
        _ => Change::Upsert,
    };
    let table = rules.has_changes.then(|| bytes::table_key(&json["table"]));
    let identity = match (kind, &table) {
        (Change::Truncate, Some(table)) => table.clone(),
        _ if rules.has_changes => identity(rules, &key())?,
        _ => identity(rules, &json)?,
    };
    let table = table.filter(|_| kind != Change::Truncate);
    let version = match rules.version.and_then(|field| json.get(field)) {
        None | Some(Value::Null) => None,
        Some(version) => Some(integer(version).ok_or("version_malformed")?),
    };
    let scope = rules.epoch.and_then(|field| json.get(field)).map(Value::to_string);
    let lot = json.get("lot").map(Value::to_string);
    let said = match (kind, &lot) {
        (Change::Delete, _) => Said::Delete,
        (Change::Truncate, _) => Said::Truncate,
        (_, Some(lot)) => Said::Number(lot.as_bytes()),
        (_, None) => Said::Nothing,
    };
    let contents = (!rules.calls).then(|| bytes::digest("[value.lot]", kind == Change::Read, said));
    Ok(Read { identity, version, scope, kind, table, contents })
}

/// The key of an identity, from the JSON that holds it.
fn identity(rules: &Rules, from: &Value) -> Result<Vec<u8>, &'static str> {
    match from.get(rules.identity) {
        None | Some(Value::Null) => Err("identity_missing"),
        Some(Value::Array(_) | Value::Object(_)) => Err("identity_not_scalar"),
        Some(scalar) => Ok(bytes::identity_key(std::slice::from_ref(scalar))),
    }
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Number(number) => number.as_i128(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::InputKind;
    use crate::judge::rules::rules;

    /// The verdicts on these values, in order.
    fn verdicts(kind: InputKind, values: &[Option<&str>]) -> Vec<Verdict> {
        let mut model = Model::new(rules(kind));
        let apply = |(value, offset): (&Option<&str>, i64)| {
            let value = value.map(|value| value.as_bytes().into());
            let record = Record { timestamp: Some(1), value, ..Record::default() };
            model.apply(offset, &record, (0, i64::MAX / 2), false)
        };
        values.iter().zip(0..).map(apply).collect()
    }

    #[test]
    fn unreadable_records_are_set_aside() {
        let of = [
            (None, "null_value"),
            (Some("{"), "value_malformed"),
            (Some(r#"{"version":1}"#), "identity_missing"),
            (Some(r#"{"id":"a","version":"x"}"#), "version_malformed"),
        ];
        for (value, reason) in of {
            assert_eq!(verdicts(InputKind::Versions, &[value]), [Verdict::DeadLettered(reason)]);
        }
        assert_eq!(verdicts(InputKind::Epochs, &[None, None]), [Verdict::Forwarded; 2]);
    }

    #[test]
    fn row_changes_and_truncates_get_their_verdicts() {
        let mut model = Model::new(rules(InputKind::Changes));
        let mut apply = |id: &str, operation: &str, version: i64| {
            let key = (operation != "t").then(|| format!(r#"{{"id":"{id}"}}"#));
            let value = format!(r#"{{"op":"{operation}","table":"orders","version":{version}}}"#);
            let value = (operation != "null").then_some(value);
            let of = |text: String| Bytes::from(text.as_bytes());
            let record = Record { timestamp: Some(1), key: key.map(of), value: value.map(of), ..Record::default() };
            model.apply(0, &record, (0, i64::MAX / 2), false)
        };
        let forwarded = Verdict::Forwarded;
        assert_eq!(
            [apply("a", "r", 5), apply("a", "u", 3), apply("a", "r", 9)],
            [forwarded, forwarded, Verdict::Stale("snapshot_read")]
        );
        assert_eq!([apply("a", "d", 4), apply("a", "null", 0)], [forwarded; 2]);
        assert_eq!(apply("a", "null", 0), Verdict::Duplicate("tombstone_not_owed"));
        assert_eq!([apply("", "t", 7), apply("", "t", 7)], [forwarded, Verdict::Duplicate("version_equal")]);
        assert_eq!([apply("b", "u", 6), apply("b", "u", 7)], [Verdict::Stale("table_truncated"), forwarded]);
        assert_eq!(model.truncates, 1);
    }

    #[test]
    fn records_rejected_by_the_output_are_not_remembered() {
        let text = "x".repeat(crate::input::OUTPUT_BYTES_MAX);
        let of = [
            (InputKind::Versions, r#"{"id":"a","version":1}"#, "version_equal"),
            (InputKind::Messages, r#"{"id":"a"}"#, "seen"),
        ];
        for (kind, small, repeated) in of {
            let large = format!(r#"{},"text":"{text}"}}"#, small.trim_end_matches('}'));
            let (small, large) = (Some(small), Some(&large[..]));
            let set_aside = Verdict::DeadLettered("unsendable");
            let expected = [set_aside, set_aside, Verdict::Forwarded, Verdict::Duplicate(repeated)];
            assert_eq!(verdicts(kind, &[large, large, small, large]), expected);
        }
    }
}
