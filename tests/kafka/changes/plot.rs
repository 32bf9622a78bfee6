//! What happens to a table on one partition, and the fate of each record under ratchet's rules, written out by hand.
//!
//! One step stands for the same record of many rows.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::checker::bytes::{Remembered, Said, Scope, digest, identity_key, version};
use crate::cluster::Fresh;

/// Whether it is forwarded, the operation (`x` for a tombstone), the row, the server (0 in a snapshot), the position.
pub type Step = (bool, char, i64, u8, i128);

/// The preset's rule for contents.
const CONTENTS: &str = "[{first_of: [{flattened: value}, value.after, value]}]";

const IN: bool = true;
const OUT: bool = false;
/// The servers.
const A: u8 = 1;
const B: u8 = 2;

const SNAPSHOT: &[Step] = &[
    (IN, 'r', 1, 0, 100),
    (IN, 'r', 2, 0, 100),
    (IN, 'r', 6, 0, 100),
    // It was in flight when the snapshot was taken.
    (IN, 'c', 1, A, 90),
    (OUT, 'c', 1, A, 90),
    (OUT, 'r', 1, 0, 100),
    (IN, 'u', 2, A, 120),
    (OUT, 'u', 2, A, 110),
];

const DELETES: &[Step] = &[
    (IN, 'd', 2, A, 130),
    (IN, 'x', 2, 0, 0),
    (OUT, 'x', 2, 0, 0),
    (IN, 'd', 1, A, 140),
    (IN, 'c', 3, A, 141),
    (IN, 'd', 5, A, 142),
];

/// A repeated delete owes nothing.
const TOMBSTONES: &[Step] =
    &[(OUT, 'd', 1, A, 140), (IN, 'x', 1, 0, 0), (OUT, 'x', 1, 0, 0), (OUT, 'x', 2, 0, 0), (OUT, 'd', 2, A, 130)];

/// Server B takes over, with lower positions.
const FAILOVER: &[Step] = &[
    (IN, 'u', 3, A, 150),
    (IN, 'u', 3, B, 10),
    (OUT, 'u', 3, A, 145),
    (IN, 'd', 3, B, 20),
    (OUT, 'c', 3, A, 141),
    (OUT, 'u', 3, B, 10),
];

/// Server A is back.
const FAILBACK: &[Step] = &[
    (IN, 'x', 3, 0, 0),
    (IN, 'u', 3, A, 200),
    (OUT, 'd', 3, B, 20),
    (OUT, 'u', 3, A, 150),
    (IN, 'u', 3, A, 210),
    (IN, 't', 0, A, 220),
];

/// Anything below the truncate is stale, whichever server wrote it; then life goes on.
const END: &[Step] = &[
    (OUT, 'u', 3, A, 215),
    (OUT, 'c', 4, B, 15),
    (OUT, 'c', 4, A, 149),
    (OUT, 'r', 4, 0, 219),
    (IN, 'c', 3, A, 230),
    (IN, 'd', 3, A, 240),
    (OUT, 'c', 3, A, 230),
    (IN, 'x', 3, 0, 0),
    (OUT, 'x', 3, 0, 0),
];

pub const CHAPTERS: [&[Step]; 6] = [SNAPSHOT, DELETES, TOMBSTONES, FAILOVER, FAILBACK, END];

/// One partition's records.
pub struct Plot {
    partition: i32,
    rows: i64,
    start: i64,
    pub records: Vec<Fresh>,
    /// One for each record.
    steps: Vec<Step>,
    /// The steps played, with their times.
    played: Vec<(Step, i64)>,
}

impl Plot {
    /// Each step is played for this many rows.
    pub fn new(partition: i32, rows: i64, start: i64) -> Plot {
        let (records, steps, played) = Default::default();
        Plot { partition, rows, start, records, steps, played }
    }

    /// The records of these steps, to be written next.
    pub fn play(&mut self, steps: &[Step]) -> Vec<Fresh> {
        let from = self.records.len();
        for &step in steps {
            let time = self.start + self.played.len() as i64;
            self.played.push((step, time));
            let rows = if step.1 == 't' { 1 } else { self.rows };
            for nth in 0..rows {
                self.records.push(self.record(step, step.2 * 1000 + nth).at(time));
                self.steps.push(step);
            }
        }
        self.records[from..].to_vec()
    }

    fn record(&self, (_, op, _, server, at): Step, id: i64) -> Fresh {
        let key = (op != 't').then(|| row_key(id).into_bytes());
        let row = row(id, at);
        let value = (op != 'x').then(|| {
            let source = json!({"name": "shop", "server_id": server, "db": "shop", "table": "orders",
                "file": "mysql-bin.000003", "pos": at as i64, "row": 0});
            let (before, after) = if op == 'd' { (Some(&row), None) } else { (None, Some(&row).filter(|_| op != 't')) };
            json!({"op": op.to_string(), "before": before, "after": after, "source": source}).to_string().into_bytes()
        });
        Fresh { partition: self.partition, key, value, ..Fresh::default() }
    }

    /// The records expected in the output, in order.
    pub fn survivors(&self) -> impl Iterator<Item = &Fresh> {
        self.records.iter().zip(&self.steps).filter(|(_, step)| step.0 == IN).map(|(record, _)| record)
    }

    fn offset(&self, wanted: impl Fn(&Step) -> bool) -> i64 {
        self.steps.iter().position(wanted).expect("it was played") as i64
    }

    /// The scopes and their segments; A's second starts at the position A had reached when B began.
    pub fn scopes(&self) -> Vec<Scope> {
        let first = |server| self.offset(|step| step.3 == server);
        let back = self.offset(|step| step.4 == 200);
        let with = |server, segments| Scope { bytes: scope(server), segments, reached: Vec::new() };
        vec![with(A, vec![(None, first(A)), (Some(position(150)), back)]), with(B, vec![(None, first(B))])]
    }

    fn time(&self, op: char, row: i64, at: i128) -> i64 {
        let played = self.played.iter().rfind(|((fate, o, r, _, a), _)| *fate == IN && (*o, *r, *a) == (op, row, at));
        played.expect("it was played").1
    }

    /// The entries at the end, by their keys in the store.
    pub fn entries(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut entries = BTreeMap::new();
        for nth in 0..self.rows {
            let mut put = |row: i64, at: i128, last_seen, with: Remembered<'_>| {
                let key = row_key(row * 1000 + nth);
                let version = position(at);
                let entry = Remembered { record_key: Some(key.as_bytes()), version: Some(&version), last_seen, ..with };
                entries.insert(identity(row * 1000 + nth), entry.encode());
            };
            let deleted = [digest(CONTENTS, false, Said::Delete)];
            let of_a = Remembered { scope: Some(0), contents: &deleted, ..Remembered::default() };
            let row = row(6000 + nth, 100).to_string();
            let read = [digest(CONTENTS, true, Said::Json(row.as_bytes()))];
            put(1, 140, self.time('x', 1, 0), of_a);
            put(2, 130, self.time('x', 2, 0), of_a);
            put(3, 240, self.time('x', 3, 0), of_a);
            put(5, 142, self.time('d', 5, 142), Remembered { owes_tombstone: true, ..of_a });
            put(
                6,
                100,
                self.time('r', 6, 100),
                Remembered { from_read: true, contents: &read, ..Remembered::default() },
            );
        }
        let version = position(220);
        let last_seen = self.time('t', 0, 220);
        let contents = [digest(CONTENTS, false, Said::Truncate)];
        let entry = Remembered {
            version: Some(&version),
            scope: Some(0),
            last_seen,
            contents: &contents,
            ..Remembered::default()
        };
        entries.insert(b"\x10\x20\x04\x04shop\x04\x06orders".to_vec(), entry.encode());
        entries
    }
}

fn row(id: i64, at: i128) -> Value {
    json!({"id": id, "at": at as i64})
}

fn row_key(id: i64) -> String {
    format!(r#"{{"id":{id}}}"#)
}

/// A row's key in the store: an object of one field.
fn identity(id: i64) -> Vec<u8> {
    [b"\x10\x08\x01\x04\x02id", &identity_key(&[Value::from(id)])[1..]].concat()
}

/// A position in the third log file: file, position, row.
fn position(at: i128) -> Vec<u8> {
    [&[2, 2][..], &version(3), &[0, 2], &version(at), &[2], &version(0)].concat()
}

/// The connector's name, the server, the topology's constant, and the log's base name.
fn scope(server: u8) -> Vec<u8> {
    let parts = [Value::from("shop"), Value::from(server), Value::from(1), Value::from("mysql-bin")];
    identity_key(&parts)[1..].to_vec()
}
