//! The checker: reads what a job was given and what it left behind in Kafka and on disk, and compares the two, record
//! for record and transaction for transaction, by the model. It shares no code with the operator: see `model` and
//! [`bytes`].
//!
//! It confirms, per partition (the numbers are those of the invariants in docs/guarantees.md):
//!
//! 1. output = model(input below the committed offset): order, key, value, headers and timestamp;
//! 2. the versions of an identity strictly increase in the output, where nothing expires;
//! 3. every input record is exactly one of forwarded, duplicate, stale and dead-lettered, and the dead letters are
//!    exactly those records;
//! 4. a transaction is whole: its changelog records are what its range of the input changes in the model's state, the
//!    last of them is the position record, the ranges follow one another without gap or overlap, and the last range ends
//!    at the committed offset, whose metadata names the same token;
//! 5. each store holds what the changelog says up to the store's position, byte for byte;
//! 6. the changelog, folded, is the model's state;
//! 7. a lane's transactions are in the order in which it made them, and the committed offset names an owner of the
//!    job's, or nobody.

pub mod bytes;
mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::cluster::Stored;
use crate::job::Job;
use bytes::{POSITION_KEY, Position, STORE_META_KEY};
pub use model::{Fate, Model, Rules};

/// A topic's records by partition.
pub type Records = BTreeMap<i32, Vec<Stored>>;

/// The keys and values of a changelog or a store.
type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// The result of a check.
#[derive(Debug, Default)]
pub struct Found {
    /// How many records met each fate.
    pub fates: BTreeMap<Fate, usize>,
    /// The owners that wrote each partition, in order, without repetition.
    pub owners: BTreeMap<i32, Vec<String>>,
    /// How many transactions are in the changelog.
    pub transactions: usize,
    /// How many identities a sweeper removed; for a compacted changelog, how many of those did not come back.
    pub swept: usize,
    /// How many stores were compared.
    pub stores: usize,
    /// How many of them were at the changelog's end.
    pub stores_current: usize,
    /// How many stores were in the middle of a load, and so are not trusted.
    pub stores_unfinished: usize,
}

impl Found {
    pub fn count(&self, fate: Fate) -> usize {
        self.fates.get(&fate).copied().unwrap_or(0)
    }

    pub fn dead_lettered(&self) -> usize {
        self.fates.iter().filter(|(fate, _)| matches!(fate, Fate::DeadLettered(_))).map(|(_, count)| count).sum()
    }

    /// Asserts that the input had records of each kind, so that the run proves something.
    pub fn assert_each_fate(&self) -> &Self {
        for fate in [Fate::Forwarded, Fate::Duplicate, Fate::Stale] {
            assert!(self.count(fate) > 0, "no record was {fate:?}: {self:?}");
        }
        self
    }
}

/// Checks a job at rest: its input drained, its operators stopped or idle. `state_dirs` are the state folders of
/// stopped operators.
///
/// # Panics At the first fault.
pub fn check(job: &Job, state_dirs: &[&Path]) -> Found {
    check_against(job, &job.kafka.read(&job.input), state_dirs)
}

/// The same for a job whose input has lost records: `input` is what it held.
pub fn check_against(job: &Job, input: &Records, state_dirs: &[&Path]) -> Found {
    let output = job.kafka.read(&job.output);
    let changelog = job.kafka.read(&job.changelog());
    let dead_letter = job.dead_letter();
    let letters = match job.kafka.partitions(&dead_letter) {
        Some(_) => job.kafka.read(&dead_letter).into_values().flatten().collect(),
        None => Vec::new(),
    };
    // Where several topics share the dead letters, skip those of the others.
    let is_ours = |letter: &Stored| letter.header("__ratchet.errors.topic").as_deref() == Some(&job.input);
    let letters: Vec<Stored> = letters.into_iter().filter(|letter| !job.reads_a_pattern() || is_ours(letter)).collect();
    let mut letters = Letters::new(job, letters);
    let mut found = Found::default();
    for (&partition, records) in input {
        let committed = job.kafka.committed(&job.group(), &job.input, partition);
        let checked = Partition { job, partition, input: records, changelog: &changelog[&partition] };
        checked.check(committed, &output[&partition], &mut letters, &mut found);
    }
    letters.assert_none_left();
    for dir in state_dirs {
        for store in stores_in(dir) {
            check_store(&store, &changelog, job.compacted, &mut found);
        }
    }
    println!("checked {}: {found:?}", job.name);
    found
}

/// Checks the output alone, for a job whose changelog is no longer complete: it has to be what the model makes of
/// `input`, which holds exactly what was read. Ignores dead letters.
pub fn check_output(job: &Job, input: &Records) -> Found {
    let (output, mut found) = (job.kafka.read(&job.output), Found::default());
    for (&partition, records) in input {
        let checked = Partition { job, partition, input: records, changelog: &[] };
        let mut model = Model::new(&job.rules);
        let records: Vec<&Stored> = records.iter().collect();
        let fates: Vec<Fate> = records.iter().map(|record| model.apply(record)).collect();
        checked.check_output(&records, &fates, &output[&partition]);
        fates.iter().for_each(|fate| *found.fates.entry(*fate).or_default() += 1);
    }
    println!("checked the output of {}: {found:?}", job.name);
    found
}

/// One partition's records and changelog.
struct Partition<'a> {
    job: &'a Job,
    partition: i32,
    input: &'a [Stored],
    changelog: &'a [Stored],
}

impl Partition<'_> {
    fn check(&self, committed: Option<(i64, String)>, output: &[Stored], letters: &mut Letters, found: &mut Found) {
        let name = format!("{}:{}", self.job.input, self.partition);
        let runs = transactions(self.changelog, &name);
        let Some((_, last)) = runs.last() else {
            assert!(
                committed.is_none_or(|(offset, _)| self.input.iter().all(|r| r.offset >= offset)),
                "{name}: offsets were committed without a position record"
            );
            assert!(output.is_empty(), "{name}: there is output without a position record");
            return;
        };
        let (committed, metadata) =
            committed.unwrap_or_else(|| panic!("{name}: transactions, but no committed offset"));
        assert_eq!(last.processed.len(), 1, "{name}: the processed ranges {:?} leave a gap", last.processed);
        let (from, end) = last.processed[0];
        assert!(end <= committed, "{name}: processed up to {end}, but committed {committed}");
        let between = self.input.iter().filter(|r| (end..committed).contains(&r.offset)).count();
        assert_eq!(
            between, 0,
            "{name}: {between} records from {end} to the committed {committed} were never processed"
        );
        let token = metadata.split(' ').nth(1);
        assert_eq!(
            token,
            Some(last.token.text().as_str()),
            "{name}: the committed offset's token is not the last transaction's"
        );
        check_order(&runs, &name);
        // The last owner that could have written: the last writer, one that claimed and wrote nothing, or nobody.
        let owner = metadata.split(' ').nth(3).unwrap_or_default();
        assert!(
            owner == "released" || owner.starts_with(&format!("{}.", self.job.group())),
            "{name}: the committed offset names {owner:?}"
        );
        let first = self.input.first().map_or(from, |r| r.offset);
        assert!(from <= first || self.job.starts_late, "{name}: records from {first} to {from} were skipped");

        let records: Vec<&Stored> = self.input.iter().filter(|r| (from..end).contains(&r.offset)).collect();
        let mut model = Model::new(&self.job.rules);
        let mut fates = Vec::with_capacity(records.len());
        let mut rest = records.iter().peekable();
        for (written, position) in &runs {
            // The range is empty if a start at the end was committed before the first record.
            let upto = position.processed.first().map_or(from, |range| range.1);
            while let Some(record) = rest.next_if(|r| r.offset < upto) {
                fates.push(model.apply(record));
            }
            if !self.job.compacted {
                found.swept += check_transaction(&name, &mut model, written, position);
            }
        }
        if self.job.compacted {
            let mut folded = fold(self.changelog);
            folded.remove(POSITION_KEY);
            // What the model still holds was swept, and its tombstone is compacted away or folded in.
            for key in model.state().keys().filter(|key| !folded.contains_key(*key)) {
                model.sweep(key);
                found.swept += 1;
            }
            assert_same(&format!("{name}: the folded changelog and the model's state"), &folded, &model.state());
        }
        self.check_output(&records, &fates, output);
        for (record, fate) in records.iter().zip(&fates) {
            *found.fates.entry(*fate).or_default() += 1;
            if let Fate::DeadLettered(reason) = fate {
                letters.take(self.partition, record, reason);
            }
        }
        found.transactions += runs.len();
        let owners = found.owners.entry(self.partition).or_default();
        owners.extend(runs.iter().map(|(_, position)| position.owner.clone()));
        owners.dedup();
    }

    fn check_output(&self, records: &[&Stored], fates: &[Fate], output: &[Stored]) {
        let name = format!("{}:{}", self.job.output, self.partition);
        let forwarded =
            records.iter().zip(fates).filter(|(_, fate)| **fate == Fate::Forwarded).map(|(record, _)| record);
        let mut written = output.iter();
        for (nth, expected) in forwarded.enumerate() {
            let got =
                written.next().unwrap_or_else(|| panic!("{name}: the {nth}th survivor is missing: {}", show(expected)));
            let same = (&got.key, &got.value, &got.headers, got.timestamp)
                == (&expected.key, &expected.value, &expected.headers, expected.timestamp);
            assert!(same, "{name}: the {nth}th survivor should be\n  {}\nbut is\n  {}", show(expected), show(got));
        }
        let surplus: Vec<String> = written.map(show).collect();
        assert!(
            surplus.is_empty(),
            "{name}: {} records too many: {:?}",
            surplus.len(),
            &surplus[..surplus.len().min(3)]
        );
        if self.job.rules.retention_ms.is_none() {
            check_versions_increase(&name, &self.job.rules, output);
        }
    }
}

/// Splits the changelog into each transaction's records and its position record.
fn transactions<'a>(changelog: &'a [Stored], name: &str) -> Vec<(&'a [Stored], Position)> {
    let key =
        |record: &'a Stored| record.key.as_deref().unwrap_or_else(|| panic!("{name}: a changelog record without key"));
    let mut runs: Vec<(&[Stored], Position)> = Vec::new();
    let mut from = 0;
    for (at, record) in changelog.iter().enumerate() {
        if key(record) == POSITION_KEY {
            let value = record.value.as_deref().unwrap_or_else(|| panic!("{name}: the position record was deleted"));
            runs.push((&changelog[from..at], bytes::position(value)));
            from = at + 1;
        }
    }
    assert_eq!(from, changelog.len(), "{name}: the changelog does not end in a position record");
    runs
}

/// Checks that the position records are in an order that one owner at a time can have written.
fn check_order(runs: &[(&[Stored], Position)], name: &str) {
    let mut tokens = BTreeSet::new();
    let mut latest: BTreeMap<u64, u64> = BTreeMap::new();
    for pair in runs.windows(2) {
        let [(_, before), (_, after)] = pair else { unreachable!("windows of two") };
        // The last range may be empty: where the input is read again, after a reset.
        let highest = |position: &Position| position.processed.iter().map(|r| r.1).max();
        let (before, after) = (highest(before), highest(after));
        assert!(before <= after, "{name}: an owner went back from {before:?} to {after:?}: two of them wrote at once");
    }
    for (_, Position { token, owner, .. }) in runs {
        assert!(tokens.insert(*token), "{name}: token {token:?} was used twice");
        let before = latest.insert(token.lane, token.transaction);
        assert!(before < Some(token.transaction), "{name}: transaction {token:?} of {owner} came after {before:?}");
    }
}

/// Checks that a transaction wrote what its range of the input changes. Returns how many identities it swept.
fn check_transaction(name: &str, model: &mut Model<'_>, written: &[Stored], position: &Position) -> usize {
    let at = format!("{name}, transaction {:?} up to {:?}", position.token, position.processed);
    let expected = model.take_changed();
    let (mut put, mut swept) = (State::new(), 0);
    for record in written {
        let key = record.key.clone().unwrap_or_default();
        match &record.value {
            Some(value) => {
                assert!(put.insert(key, value.clone()).is_none(), "{at}: {:02x?} was written twice", record.key);
            }
            None => {
                model.sweep(&key);
                swept += 1;
            }
        }
    }
    assert_same(&format!("{at}: the changelog's records and what changed"), &put, &expected);
    assert_eq!(position.stream_time, model.stream_time, "{at}: the stream time");
    assert_eq!(position.horizon, model.horizon, "{at}: the horizon");
    assert_eq!(position.generation, 1, "{at}: the generation");
    swept
}

fn check_versions_increase(name: &str, rules: &Rules, output: &[Stored]) {
    let Some(field) = rules.version else { return };
    let mut latest: BTreeMap<String, i128> = BTreeMap::new();
    for record in output {
        let json: serde_json::Value =
            serde_json::from_slice(record.value.as_deref().unwrap_or_default()).unwrap_or_default();
        let Some(version) = json[field].as_i64().map(i128::from) else { continue };
        let identity = format!("{:?}", rules.identity.iter().map(|field| &json[field]).collect::<Vec<_>>());
        let before = latest.insert(identity, version);
        assert!(before < Some(version), "{name}: version {before:?} came before {}", show(record));
    }
}

/// The dead letters that are not yet accounted for.
struct Letters {
    topic: String,
    by_place: BTreeMap<(i32, i64), Stored>,
}

impl Letters {
    fn new(job: &Job, letters: Vec<Stored>) -> Letters {
        let topic = job.dead_letter();
        let mut by_place = BTreeMap::new();
        for letter in letters {
            let header = |name: &str| {
                let name = format!("__ratchet.errors.{name}");
                letter.header(&name).unwrap_or_else(|| panic!("{topic}: no header {name} in {}", show(&letter)))
            };
            assert_eq!(header("topology"), job.name);
            assert_eq!(header("topic"), job.input);
            assert!(!header("message").is_empty(), "{topic}: an empty message");
            let place =
                (header("partition").parse().expect("a partition"), header("offset").parse().expect("an offset"));
            let twice = by_place.insert(place, letter);
            assert!(twice.is_none(), "{topic}: {place:?} is there twice");
        }
        Letters { topic, by_place }
    }

    fn take(&mut self, partition: i32, record: &Stored, reason: &str) {
        let place = (partition, record.offset);
        let letter =
            self.by_place.remove(&place).unwrap_or_else(|| panic!("{}: {place:?} is missing ({reason})", self.topic));
        assert_eq!(
            (&letter.key, &letter.value),
            (&record.key, &record.value),
            "{}: the bytes of {place:?}",
            self.topic
        );
        assert_eq!(letter.header("__ratchet.errors.reason").as_deref(), Some(reason), "{}: {place:?}", self.topic);
        assert!(letter.headers.starts_with(&record.headers), "{}: the headers of {place:?}", self.topic);
    }

    fn assert_none_left(&self) {
        assert!(self.by_place.is_empty(), "{}: letters of valid records: {:?}", self.topic, self.by_place.keys());
    }
}

/// The state that a changelog's records result in.
pub fn fold<'a>(changelog: impl IntoIterator<Item = &'a Stored>) -> State {
    let mut state = State::new();
    for record in changelog {
        let key = record.key.clone().expect("a changelog record has a key");
        match &record.value {
            Some(value) => drop(state.insert(key, value.clone())),
            None => drop(state.remove(&key)),
        }
    }
    state
}

/// The folders of the stores below a state folder.
fn stores_in(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut unseen = vec![dir.to_owned()];
    while let Some(folder) = unseen.pop() {
        if folder.join("CURRENT").exists() {
            found.push(folder);
            continue;
        }
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        unseen.extend(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    found
}

fn check_store(path: &Path, changelog: &BTreeMap<i32, Vec<Stored>>, compacted: bool, found: &mut Found) {
    let mut held = read_store(path);
    let Some(meta) = held.remove(STORE_META_KEY) else {
        // Created, and killed before anything was flushed.
        assert!(held.is_empty(), "{}: entries without a position", path.display());
        found.stores_unfinished += 1;
        return;
    };
    let meta = bytes::store_meta(&meta);
    let Some(token) = meta.token else {
        found.stores_unfinished += 1;
        return;
    };
    assert_eq!(token.partition, meta.partition, "{}: the token is another partition's", path.display());
    let changelog = &changelog[&meta.partition];
    let current = changelog.last().is_none_or(|last| last.offset < meta.changelog_offset);
    if compacted && !current {
        return;
    }
    let expected = fold(changelog.iter().filter(|record| record.offset < meta.changelog_offset));
    assert_same(
        &format!("the store {} at {} and the changelog", path.display(), meta.changelog_offset),
        &held,
        &expected,
    );
    let position = bytes::position(&expected[POSITION_KEY]);
    assert_eq!(meta.token, Some(position.token), "{}: the token is not its position record's", path.display());
    found.stores += 1;
    found.stores_current += usize::from(current);
}

/// The contents of a store, which must not be open anywhere.
pub fn read_store(path: &Path) -> State {
    let store = rocksdb::DB::open_for_read_only(&rocksdb::Options::default(), path, false)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    store
        .iterator(rocksdb::IteratorMode::Start)
        .map(|pair| pair.unwrap_or_else(|e| panic!("{}: {e}", path.display())))
        .map(|(key, value)| (key.into_vec(), value.into_vec()))
        .collect()
}

fn assert_same(what: &str, left: &State, right: &State) {
    if left == right {
        return;
    }
    let differing: Vec<String> = left
        .keys()
        .chain(right.keys().filter(|key| !left.contains_key(*key)))
        .filter(|key| left.get(*key) != right.get(*key))
        .map(|key| format!("  {}: {:02x?} and {:02x?}", String::from_utf8_lossy(key), left.get(key), right.get(key)))
        .collect();
    panic!(
        "{what} differ in {} of {} keys:\n{}",
        differing.len(),
        right.len(),
        differing[..differing.len().min(8)].join("\n")
    );
}

fn show(record: &Stored) -> String {
    let text =
        |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or("null".into(), |b| String::from_utf8_lossy(b).into_owned());
    let mut value = text(&record.value);
    value.truncate(value.char_indices().nth(200).map_or(value.len(), |(at, _)| at));
    format!("{} at {:?}: {} -> {value} {:?}", record.offset, record.timestamp, text(&record.key), record.headers)
}
