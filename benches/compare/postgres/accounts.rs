//! The table, the records that bring its rows, and what it has to hold in the end.
//!
//! A record is the whole row of an account, by rising versions: half of them insert one, the others update one. None is
//! repeated, so that everybody has the same upserts to do. Each hundredth part of a partition ends with a **mark**, a
//! row whose id is negative and which nothing else writes: how many of them are visible says how far a contender is.

use std::io::Write as _;

use crate::generate::{Generated, PARTITIONS};
use crate::random::mix;

/// The table's name.
pub const TABLE: &str = "accounts";
/// Its columns, the key first.
pub const COLUMNS: [&str; 7] = ["id", "owner", "status", "balance", "version", "due_us", "note"];
/// Its DDL.
pub const CREATE: &str = "create table accounts (id bigint primary key, owner text not null, status text not null, \
                          balance bigint not null, version bigint not null, due_us bigint not null, note text not null)";
/// How many marks a partition has.
pub const MARKS: u64 = 100;
/// How many records there are for each account.
const RECORDS_OF_ACCOUNT: u64 = 2;
/// A plain record's size.
pub const VALUE_BYTES: usize = 250;
/// What a record with a schema has before its row, as Kafka Connect's converter wants it.
const SCHEMA: &str = concat!(
    r#"{"schema":{"type":"struct","optional":false,"name":"accounts","fields":["#,
    r#"{"field":"id","type":"int64","optional":false},{"field":"owner","type":"string","optional":false},"#,
    r#"{"field":"status","type":"string","optional":false},{"field":"balance","type":"int64","optional":false},"#,
    r#"{"field":"version","type":"int64","optional":false},{"field":"due_us","type":"int64","optional":false},"#,
    r#"{"field":"note","type":"string","optional":false}]},"payload":"#
);

/// How a row is written into a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As a JSON object.
    Plain,
    /// The same, with the schema before it in every record.
    WithSchema,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    pub id: i64,
    pub version: u64,
    /// When the record was due at the input, on the harness's clock.
    pub due_us: u64,
}

impl Account {
    fn balance(&self) -> u64 {
        mix(self.version) % 1_000_000
    }

    /// Appends the record's value.
    pub fn write(&self, form: Form, out: &mut Vec<u8>) {
        if form == Form::WithSchema {
            out.extend_from_slice(SCHEMA.as_bytes());
        }
        let from = out.len();
        let Account { id, version, due_us } = self;
        let status = ["open", "blocked", "closed"][(version % 3) as usize];
        let balance = self.balance();
        // Writing to a vector never fails.
        let _ = write!(
            out,
            r#"{{"id":{id},"owner":"owner of account {id:09}","status":"{status}","balance":{balance},"version":{version},"due_us":{due_us},"note":""#
        );
        out.resize(out.len().max(from + VALUE_BYTES - 2), b'x');
        out.extend_from_slice(b"\"}");
        if form == Form::WithSchema {
            out.push(b'}');
        }
    }
}

/// The statement that everybody carries out who writes it himself.
pub fn upsert() -> String {
    let numbers: Vec<String> = (1..=COLUMNS.len()).map(|number| format!("${number}")).collect();
    let set: Vec<String> = COLUMNS[1..].iter().map(|column| format!("{column} = excluded.{column}")).collect();
    format!(
        "insert into {TABLE} ({}) values ({}) on conflict (id) do update set {}",
        COLUMNS.join(", "),
        numbers.join(", "),
        set.join(", ")
    )
}

/// What a table holds, in short: rows, the sum of versions, the sum of balances.
pub type Totals = [i64; 3];

/// The records of a round, in order.
pub struct Accounts {
    form: Form,
    records: u64,
    next: u64,
    /// By account: its highest version, 0 before the first.
    versions: Vec<u64>,
    marks: Totals,
}

/// So many records that all partitions are equally long, and all their hundredth parts.
pub fn rounded(records: u64) -> u64 {
    let step = PARTITIONS as u64 * MARKS;
    (records / step).max(1) * step
}

impl Accounts {
    /// `records` of them, a number that was [`rounded`].
    pub fn new(records: u64, form: Form) -> Accounts {
        let accounts = (records / RECORDS_OF_ACCOUNT) as usize;
        Accounts { form, records, next: 0, versions: vec![0; accounts], marks: [0; 3] }
    }

    /// Puts the next record into `record`.
    pub fn next(&mut self, record: &mut Generated) {
        let (partitions, number) = (PARTITIONS as u64, self.next);
        self.next += 1;
        let (partition, index) = (number % partitions, number / partitions);
        let each = self.records / partitions / MARKS;
        let version = number + 1;
        let id = if (index + 1).is_multiple_of(each) {
            -((partition * MARKS + (index + 1) / each) as i64)
        } else {
            let of_partition = self.versions.len() as u64 / partitions;
            (mix(number) % of_partition * partitions + partition) as i64
        };
        let account = Account { id, version, due_us: 0 };
        match usize::try_from(id) {
            Ok(id) => self.versions[id] = version,
            Err(_) => add(&mut self.marks, &account),
        }
        record.partition = partition as i32;
        record.fresh = true;
        record.key.clear();
        record.value.clear();
        let _ = write!(record.key, "{id}");
        account.write(self.form, &mut record.value);
    }

    /// What the table holds after all of them.
    pub fn totals(&self) -> Totals {
        let mut totals = self.marks;
        for (id, &version) in self.versions.iter().enumerate().filter(|(_, version)| **version > 0) {
            add(&mut totals, &Account { id: id as i64, version, due_us: 0 });
        }
        totals
    }
}

fn add(totals: &mut Totals, account: &Account) {
    totals[0] += 1;
    totals[1] += account.version as i64;
    totals[2] += account.balance() as i64;
}

/// The same of a table.
pub const TOTALS: &str =
    "select count(*), coalesce(sum(version), 0)::bigint, coalesce(sum(balance), 0)::bigint from accounts";
/// How many marks are visible.
pub const MARKS_SEEN: &str = "select count(*) from accounts where id < 0";
