//! A topology as a user writes it, and its tasks, one for each partition, judging records in memory.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ratchet::dedup::{Action, Decision, Model, Reason, Rules, Verdict};
use ratchet::record::{HeaderBuf, Record};
use ratchet::topology::{self, Diagnostics, Environment, Loaded};
use serde_json::Value;

/// Beyond every timestamp of these tests, so that none of them is in the future.
const WALL_MS: i64 = 7_000_000_000_000;

/// One file and nothing else.
struct Text<'a>(&'a str);

impl Environment for Text<'_> {
    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn variables(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn read_file(&self, _: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.as_bytes().to_vec())
    }

    fn cores(&self) -> usize {
        1
    }
}

/// The topology in `text`. Name, input and output are filled in where it has none, an output only where it has no sink.
pub fn load(text: &str) -> Result<Loaded, Diagnostics> {
    let mut whole = String::new();
    for (key, line) in [("name:", "name: t"), ("input:", "input: {topics: [in]}"), ("output:", "output: {topic: out}")]
    {
        let has_sink = key == "output:" && text.lines().any(|line| line.starts_with("sink:"));
        if !has_sink && !text.lines().any(|line| line.starts_with(key)) {
            whole.push_str(line);
            whole.push('\n');
        }
    }
    whole.push_str(text);
    topology::load(Path::new("topology.yaml"), &Text(&whole))
}

/// The rules in `text`; mistakes in it fail the test.
#[track_caller]
pub fn rules(text: &str) -> Arc<Rules> {
    match load(text) {
        Ok(loaded) => loaded.topology.rules,
        Err(diagnostics) => panic!("{}", diagnostics.render(false)),
    }
}

/// A record to be given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    /// The key's bytes.
    pub key: Option<Vec<u8>>,
    /// The value's bytes.
    pub value: Option<Vec<u8>>,
    pub headers: HeaderBuf,
    pub timestamp: Option<i64>,
    pub partition: i32,
    /// The next one, if `None`.
    pub offset: Option<i64>,
}

/// A record with this value.
pub fn value(value: Value) -> Given {
    Given { value: Some(value.to_string().into_bytes()), ..Given::default() }
}

/// A record with this key and this value.
pub fn keyed(key: Value, value: Value) -> Given {
    self::value(value).key(key)
}

/// A null value with this key.
pub fn tombstone(key: Value) -> Given {
    Given::default().key(key)
}

impl Given {
    pub fn key(self, key: Value) -> Self {
        Self { key: Some(key.to_string().into_bytes()), ..self }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push(name.as_bytes(), Some(value.as_bytes()));
        self
    }

    /// With this timestamp, in milliseconds.
    pub fn at(self, ms: i64) -> Self {
        Self { timestamp: Some(ms), ..self }
    }

    pub fn partition(self, partition: i32) -> Self {
        Self { partition, ..self }
    }

    pub fn offset(self, offset: i64) -> Self {
        Self { offset: Some(offset), ..self }
    }
}

/// A topology at work: one model for each partition, as the engine has one task for each.
pub struct Task {
    rules: Arc<Rules>,
    partitions: BTreeMap<i32, (Model, i64)>,
    /// What was forwarded, of all partitions, in the order given.
    pub output: Vec<Given>,
}

impl Task {
    #[track_caller]
    pub fn of(text: &str) -> Self {
        Self::by(rules(text))
    }

    pub fn by(rules: Arc<Rules>) -> Self {
        Self { rules, partitions: BTreeMap::new(), output: Vec::new() }
    }

    /// Judges one record, and adds it to the output if it is forwarded.
    pub fn give(&mut self, given: Given) -> Decision {
        let (model, next) = self.partition(given.partition);
        let offset = given.offset.unwrap_or(*next);
        *next = offset + 1;
        let decision = model.judge(
            &Record {
                topic: "in",
                partition: given.partition,
                offset,
                timestamp: given.timestamp,
                key: given.key.as_deref(),
                value: given.value.as_deref(),
                headers: given.headers.as_headers(),
            },
            WALL_MS,
        );
        if decision.action == Action::Forward {
            self.output.push(given);
        }
        decision
    }

    /// Judges records, one after the other.
    pub fn verdicts(&mut self, given: impl IntoIterator<Item = Given>) -> Vec<Verdict> {
        given.into_iter().map(|given| self.give(given).verdict).collect()
    }

    /// Judges records, one after the other.
    pub fn reasons(&mut self, given: impl IntoIterator<Item = Given>) -> Vec<Reason> {
        given.into_iter().map(|given| self.give(given).reason).collect()
    }

    /// The model of a partition, and its next offset.
    pub fn partition(&mut self, partition: i32) -> &mut (Model, i64) {
        let rules = &self.rules;
        self.partitions.entry(partition).or_insert_with(|| (Model::new(Arc::clone(rules)), 0))
    }

    /// Everything that is remembered, by partition and store key.
    pub fn entries(&self) -> BTreeMap<(i32, Vec<u8>), Vec<u8>> {
        let all = self.partitions.iter().flat_map(|(partition, (model, _))| {
            model.entries().map(|(key, entry)| ((*partition, key.to_vec()), entry.to_vec()))
        });
        all.collect()
    }

    /// The output's values, as JSON; a null value is null.
    pub fn values(&self) -> Vec<Value> {
        self.output.iter().map(|given| json(given.value.as_deref())).collect()
    }

    /// The table that results from upserting the output: the last value of each key. A null value, or one for which
    /// `is_delete` holds, removes the row.
    pub fn table(&self, is_delete: impl Fn(&Value) -> bool) -> BTreeMap<String, Value> {
        let mut table = BTreeMap::new();
        for given in &self.output {
            let key = json(given.key.as_deref()).to_string();
            match json(given.value.as_deref()) {
                Value::Null => table.remove(&key),
                value if is_delete(&value) => table.remove(&key),
                value => table.insert(key, value),
            };
        }
        table
    }
}

fn json(bytes: Option<&[u8]>) -> Value {
    bytes.map_or(Value::Null, |bytes| serde_json::from_slice(bytes).expect("these tests give JSON"))
}
