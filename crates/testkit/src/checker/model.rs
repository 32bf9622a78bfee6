//! What ratchet promises, as a sequential program over one partition's records: JSON trees, a map, one record after the
//! other. It knows the rules, and nothing of how the operator keeps them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::bytes;
use crate::cluster::Stored;

/// The default maximum for an identity: 64 KiB. The tests keep well away from the exact limit.
const IDENTITY_BYTES_MAX: usize = 65_536;

/// The maximum for a record: 16 MiB. The tests keep well away from this limit, too.
const RECORD_BYTES_MAX: usize = 16 << 20;

/// The rules of a topology, as far as the tests use them: identity and version are fields of the value.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The fields that make up the identity.
    pub identity: Vec<&'static str>,
    /// The field that holds the version.
    pub version: Option<&'static str>,
    /// How long an identity is remembered; `None` is for ever.
    pub retention_ms: Option<i64>,
    /// Which records the output rejects for good.
    pub unsendable: fn(&Stored) -> bool,
    /// Whether contents, the whole value, are compared. A record with a known identity and version but other contents is
    /// dropped, and its contents are known from then on.
    pub compares: bool,
}

/// How many contents an entry knows.
const CONTENTS_MAX: usize = 8;

impl Rules {
    pub fn versioned() -> Rules {
        Rules {
            identity: vec!["id"],
            version: Some("version"),
            retention_ms: None,
            unsendable: |_| false,
            compares: true,
        }
    }
}

/// What happens to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    Forwarded,
    Duplicate,
    Stale,
    DeadLettered(&'static str),
}

/// What is remembered of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    last_seen: i64,
    version: Option<i128>,
    record_key: Option<Vec<u8>>,
    contents: Vec<[u8; 8]>,
}

impl Entry {
    fn bytes(&self) -> Vec<u8> {
        let version = self.version.map(bytes::version);
        let entry = bytes::Remembered {
            record_key: self.record_key.as_deref(),
            last_seen: self.last_seen,
            version: version.as_deref(),
            contents: &self.contents,
            ..bytes::Remembered::default()
        };
        entry.encode()
    }
}

/// One partition's state.
pub struct Model<'a> {
    rules: &'a Rules,
    entries: BTreeMap<Vec<u8>, Entry>,
    /// The highest timestamp seen.
    pub stream_time: i64,
    /// The highest `stream time - retention`.
    pub horizon: i64,
    /// The keys that changed since the last [`Model::take_changed`], with their current values.
    changed: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl<'a> Model<'a> {
    pub fn new(rules: &'a Rules) -> Self {
        Self { rules, entries: BTreeMap::new(), stream_time: -1, horizon: i64::MIN, changed: BTreeMap::new() }
    }

    /// Decides on the next record.
    pub fn apply(&mut self, record: &Stored) -> Fate {
        let timestamp = record.timestamp;
        if timestamp.is_some_and(|t| t > now_ms() + self.future_max_ms()) {
            return Fate::DeadLettered("timestamp_in_future");
        }
        if let Some(t) = timestamp {
            self.stream_time = self.stream_time.max(t);
            if let Some(retention) = self.rules.retention_ms {
                self.horizon = self.horizon.max(self.stream_time - retention);
            }
        }
        let (identity, version) = match read(self.rules, record) {
            Ok(read) => read,
            Err(reason) => return Fate::DeadLettered(reason),
        };
        if timestamp.is_some_and(|t| t < self.horizon) {
            return Fate::DeadLettered("late");
        }
        let known = self.entries.get(&identity).filter(|entry| !self.is_expired(entry));
        let fate = match (self.rules.version, version, known) {
            (None, _, None) => Fate::Forwarded,
            (None, _, Some(_)) => Fate::Duplicate,
            // Without a version nothing can be decided, and nothing is remembered.
            (Some(_), None, _) => {
                return if (self.rules.unsendable)(record) {
                    Fate::DeadLettered("unsendable")
                } else {
                    Fate::Forwarded
                };
            }
            (Some(_), Some(_), None) => Fate::Forwarded,
            (Some(_), Some(new), Some(entry)) => match entry.version.map(|old| new.cmp(&old)) {
                None | Some(std::cmp::Ordering::Greater) => Fate::Forwarded,
                Some(std::cmp::Ordering::Equal) => Fate::Duplicate,
                Some(std::cmp::Ordering::Less) => Fate::Stale,
            },
        };
        let contents = self.rules.compares.then(|| {
            let value = record.value.as_deref().expect("it was read");
            bytes::digest("[value]", false, bytes::Said::Bytes(value))
        });
        if fate == Fate::Duplicate
            && let Some(contents) = contents
            && let Some(entry) = self.entries.get_mut(&identity)
            && !entry.contents.contains(&contents)
        {
            entry.contents.push(contents);
            let over = entry.contents.len().saturating_sub(CONTENTS_MAX);
            entry.contents.drain(..over);
            self.changed.insert(identity, entry.bytes());
            return fate;
        }
        if fate != Fate::Forwarded {
            return fate;
        }
        if (self.rules.unsendable)(record) {
            return Fate::DeadLettered("unsendable");
        }
        let last_seen = timestamp.unwrap_or(-1).max(self.stream_time);
        let record_key = record.key.as_deref().map(<[u8]>::to_vec);
        let entry = Entry { last_seen, version, record_key, contents: contents.into_iter().collect() };
        self.changed.insert(identity.clone(), entry.bytes());
        self.entries.insert(identity, entry);
        fate
    }

    /// What a transaction that ends here must have written.
    pub fn take_changed(&mut self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        std::mem::take(&mut self.changed)
    }

    /// A sweeper has removed an identity, which must have expired.
    pub fn sweep(&mut self, key: &[u8]) {
        let entry =
            self.entries.remove(key).unwrap_or_else(|| panic!("a tombstone for {key:02x?}, which is not in the state"));
        assert!(self.is_expired(&entry), "a tombstone for {key:02x?}, which has not expired: {entry:?}");
    }

    /// The state, as a changelog or a store has to hold it.
    pub fn state(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.entries.iter().map(|(key, entry)| (key.clone(), entry.bytes())).collect()
    }

    fn is_expired(&self, entry: &Entry) -> bool {
        let Some(retention) = self.rules.retention_ms else { return false };
        entry.last_seen >= 0 && entry.last_seen + retention < self.stream_time
    }

    fn future_max_ms(&self) -> i64 {
        const HOUR_MS: i64 = 3_600_000;
        self.rules.retention_ms.map_or(HOUR_MS, |retention| HOUR_MS.min(retention / 10))
    }
}

/// The identity's key and the version, or the reason for a dead letter.
fn read(rules: &Rules, record: &Stored) -> Result<(Vec<u8>, Option<i128>), &'static str> {
    if record.value.as_ref().is_some_and(|value| value.len() > RECORD_BYTES_MAX) {
        return Err("record_too_large");
    }
    let value = record.value.as_deref().ok_or("null_value")?;
    let json: Value = serde_json::from_slice(value).map_err(|_| "value_malformed")?;
    let mut parts = Vec::new();
    for field in &rules.identity {
        match json.get(field) {
            None | Some(Value::Null) => return Err("identity_missing"),
            Some(Value::Array(_) | Value::Object(_)) => return Err("identity_not_scalar"),
            Some(scalar) => parts.push(scalar.clone()),
        }
    }
    if parts.iter().any(|part| part.as_str().is_some_and(|text| text.len() > IDENTITY_BYTES_MAX)) {
        return Err("identity_too_long");
    }
    let version = match rules.version.map(|field| json.get(field)) {
        None | Some(None | Some(Value::Null)) => None,
        Some(Some(version)) => Some(integer(version).ok_or("version_malformed")?),
    };
    Ok((bytes::identity_key(&parts), version))
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Number(number) => number.as_i128(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock after 1970");
    since.as_millis() as i64
}
