//! The input's records, the same in each run, and how many of them have to be forwarded.
//!
//! Keys go to partitions by number, so that all records of an identity are in one partition, and the
//! partitions are equally long. What has to be forwarded is found by doing the job in memory while
//! writing, with a set or a map.

use std::collections::HashMap;
use std::fmt;
use std::io::Write as _;

use crate::formats::envelope::Writer;
use crate::random::mix;
use crate::spec::Work;
use crate::uuid::Uuid;

/// Partitions of every input, output and changelog.
pub const PARTITIONS: i32 = 4;
/// How far back a repeated record may be.
const BACK: u64 = 1000;
/// Keys of `Work::Versions`, if there are as many records.
const VERSION_KEYS: u64 = 10_000_000;
/// Rows whose changes are the envelopes.
const ROWS: u64 = 200_000;
/// After this many changes the last ones are delivered again, as by a connector that restarts.
const DELIVERED: u64 = 1000;
const DELIVERED_AGAIN: u64 = 250;
/// An event's size.
const EVENT_BYTES: usize = 160;
/// The template of a change event.
const ENVELOPE: &str = include_str!("../debezium/envelope.json");

/// A record to be written.
#[derive(Default)]
pub struct Generated {
    /// Its partition.
    pub partition: i32,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Whether a contender that decides has to forward it.
    pub fresh: bool,
}

/// Generates the records of one input, in order.
pub struct Generator {
    work: Work,
    next: u64,
    fresh: u64,
    highest: HashMap<u64, u64>,
    recent: Vec<(u64, u64)>,
    random: u64,
    pieces: Vec<&'static str>,
    avro: Option<Writer>,
}

impl Generator {
    /// Starts with the first record.
    pub fn new(work: Work) -> Generator {
        let avro = (work == Work::Avro).then(|| Writer::new().expect("the schemas are schemas"));
        let pieces = ENVELOPE.trim_end().split("48151623,\"customer_id").collect();
        Generator { work, next: 0, fresh: 0, highest: HashMap::new(), recent: Vec::new(), random: 1, pieces, avro }
    }

    /// Puts the next record into `record`.
    pub fn next(&mut self, record: &mut Generated) {
        record.key.clear();
        record.value.clear();
        match self.work {
            Work::Ids => self.id(record, |record, id| event_of(record, id, format_args!("\"{}\"", Uuid(id)))),
            Work::Numbers => self.id(record, event),
            Work::Versions => self.version(record),
            Work::Envelopes => self.envelope(record),
            Work::Large => large(record, self.next),
            Work::Avro => self.envelope(record),
        }
        if let Some(avro) = &self.avro {
            avro.rewrite(&mut record.key, &mut record.value).expect("the template has the schema's fields");
        }
        self.next += 1;
    }

    /// Four records in five are new; the fifth repeats one of the last thousand. Accounts repeat after a
    /// million.
    fn id(&mut self, record: &mut Generated, event: impl Fn(&mut Generated, u64)) {
        record.fresh = self.next % 5 != 4;
        let id = if record.fresh {
            self.fresh += 1;
            self.fresh - 1
        } else {
            self.fresh.saturating_sub(1 + (self.next * 7919) % BACK)
        };
        event(record, id);
    }

    /// Four records in five are a new version of a random account; the fifth repeats one of the last thousand,
    /// which is late if its account has had another since, else a duplicate.
    fn version(&mut self, record: &mut Generated) {
        let (account, version) = if self.next % 5 == 4 {
            let back = self.random() % self.recent.len() as u64;
            self.recent[back as usize]
        } else {
            let account = self.random() % VERSION_KEYS;
            // With gaps, as in a log that is shared with others.
            let newer = (account, self.next * 3 + 1);
            let at = self.fresh % BACK;
            self.fresh += 1;
            if self.recent.len() < BACK as usize {
                self.recent.push(newer)
            } else {
                self.recent[at as usize] = newer
            }
            newer
        };
        record.fresh = self.raise(account, version);
        record.partition = (account % PARTITIONS as u64) as i32;
        let _ = write!(record.key, "{account:08}");
        let _ = write!(
            record.value,
            r#"{{"account":"{account:08}","version":{version},"kind":"balance","amount":{},"note":""#,
            version % 10_000
        );
        fill(&mut record.value);
    }

    /// Changes of random rows at rising positions in the log; after each thousand the last 250 are repeated.
    fn envelope(&mut self, record: &mut Generated) {
        let (block, within) = (self.next / (DELIVERED + DELIVERED_AGAIN), self.next % (DELIVERED + DELIVERED_AGAIN));
        let change = if within < DELIVERED { within } else { within - DELIVERED_AGAIN };
        let change = block * DELIVERED + change;
        // Derived from the change's number, so that a change is the same whenever it is delivered.
        let row = mix(change) % ROWS;
        let position = 36_523_873_720 + change * 312;
        record.fresh = self.raise(row, position);
        record.partition = (row % PARTITIONS as u64) as i32;
        let _ = write!(record.key, r#"{{"order_id":{}}}"#, 10_000_000 + row);
        let mut first = true;
        for piece in &self.pieces {
            if !std::mem::take(&mut first) {
                let _ = write!(record.value, "{},\"customer_id", 10_000_000 + row);
            }
            match piece.split_once(r#""sequence":"[\"36523873464\",\"36523873720\"]""#) {
                None => record.value.extend_from_slice(piece.as_bytes()),
                Some((before, after)) => {
                    record.value.extend_from_slice(before.as_bytes());
                    let sequence = format_args!(r#""sequence":"[\"{}\",\"{position}\"]""#, position - 256).to_string();
                    record.value.extend_from_slice(sequence.as_bytes());
                    let (before, after) = after.split_once("36523873720").unwrap_or((after, ""));
                    let _ = write!(record.value, "{before}{position}{after}");
                }
            }
        }
    }

    fn raise(&mut self, key: u64, version: u64) -> bool {
        let highest = self.highest.entry(key).or_insert(0);
        let fresh = version > *highest;
        *highest = version.max(*highest);
        fresh
    }

    fn random(&mut self) -> u64 {
        self.random += 1;
        mix(self.random)
    }
}

/// A short event with this id, to build a large state from.
fn large(record: &mut Generated, id: u64) {
    record.fresh = true;
    record.partition = (id % PARTITIONS as u64) as i32;
    let _ = write!(record.key, "{:08}", id % 1_000_000);
    let _ = write!(record.value, r#"{{"event_id":{id}}}"#);
}

/// An event of 160 bytes, whose id is the number.
pub fn event(record: &mut Generated, id: u64) {
    event_of(record, id, format_args!("{id}"));
}

/// The event of this number, with this as its id.
fn event_of(record: &mut Generated, id: u64, text: fmt::Arguments<'_>) {
    record.partition = (id % PARTITIONS as u64) as i32;
    let account = id % 1_000_000;
    let _ = write!(record.key, "{account:08}");
    let _ = write!(
        record.value,
        r#"{{"event_id":{text},"account":"{account:08}","kind":"charge","amount":{},"note":""#,
        id % 10_000
    );
    fill(&mut record.value);
}

fn fill(value: &mut Vec<u8>) {
    value.resize((EVENT_BYTES - 2).max(value.len()), b'x');
    value.extend_from_slice(b"\"}");
}

/// Events after `known` ids of a large state: every other event has one of those ids, spread over all
/// of them; the rest have new ids from `new` on.
pub fn behind(known: u64, new: u64, number: u64, record: &mut Generated) {
    record.key.clear();
    record.value.clear();
    record.fresh = number.is_multiple_of(2);
    let id = if record.fresh { new + number / 2 } else { mix(new + number) % known };
    event(record, id);
}
