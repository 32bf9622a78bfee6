//! A job that ends in a database, and its checker: the tables are compared with those of a sequential program over the
//! same input, row for row.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use crate::checker::{Fate, Model};
use crate::cluster::{Kafka, Stored};
use crate::database::{Admin, Database, Server};
use crate::job::Job;

/// The tables: every effect in its order, and the last one of each thing.
pub const TABLES: &str = r#"
create table applied (seq bigserial primary key, part int not null, at bigint not null, id text not null,
    version bigint not null, note text);
create table latest (id text primary key, version bigint not null, times int not null);
alter table applied add constraint no_bad_notes check (note not like '%33');
"#;

/// What the sink carries out for each survivor.
const STATEMENTS: &str = r"
    statements:
      - sql: insert into applied (part, at, id, version, note) values ($1, $2, $3, $4, $5)
        with: [meta.partition, meta.offset, value.id, value.version, value.note]
      - sql: insert into latest values ($1, $2, 1)
          on conflict (id) do update set version = excluded.version, times = latest.times + 1
        with: [value.id, value.version]
";

/// A topology that ends in a database of its own.
pub struct Shop {
    pub job: Job,
    pub database: Database,
}

/// What was found right.
#[derive(Debug, Default)]
pub struct Found {
    /// How many records met each fate.
    pub fates: BTreeMap<Fate, usize>,
}

impl Shop {
    /// On the Kafka and the database server that the tests share.
    pub fn new(theme: &str, partitions: i32) -> Shop {
        Shop::with(theme, partitions, Database::with(TABLES), "")
    }

    /// On a database server of its own, reached by way of this port.
    pub fn on(theme: &str, partitions: i32, server: &Server, port: u16) -> Shop {
        let database = Database::on(server);
        database.run(TABLES);
        let shop = Shop::with(theme, partitions, database, "");
        shop.reach_by(port);
        shop
    }

    /// With further lines of the sink.
    pub fn with(theme: &str, partitions: i32, database: Database, more: &str) -> Shop {
        let mut job = Job::on(Kafka::shared(), theme);
        job.kafka.create(&job.input, partitions, &[]);
        job.rules.unsendable = |record| is_refused(&record.value);
        job.rules.compares = false;
        fs::write(job.path("url"), &database.url).expect("the job's folder is writable");
        let url = job.path("url");
        let sink = format!("sink:\n  postgres:\n    url: ${{file:{}}}{STATEMENTS}{more}", url.display());
        job.topology = vec!["contents: none".to_owned(), sink];
        Shop { job, database }
    }

    /// Has the operators reach the database by way of this port.
    pub fn reach_by(&self, port: u16) {
        let url = &self.database.url;
        let (before, rest) = url.split_once("127.0.0.1:").expect("a local server");
        let (_, after) = rest.split_once('/').expect("a database");
        self.reach(&format!("{before}127.0.0.1:{port}/{after}"));
    }

    /// Has the operators reach the database by way of this url.
    pub fn reach(&self, url: &str) {
        fs::write(self.job.path("url"), url).expect("the job's folder is writable");
    }

    /// Waits until everything is processed, then compares the tables and the dead letters with the sequential program.
    #[track_caller]
    pub fn check(&self, deadline: Duration) -> Found {
        self.job.await_drained(deadline);
        let input = self.job.kafka.read(&self.job.input);
        let dead_letters = self.dead_letters();
        let mut found = Found::default();
        // The server may have been started again.
        let database = Admin::connect(&self.database.url);
        let (mut latest, mut is_expected) = (BTreeMap::new(), BTreeMap::new());
        for (&partition, records) in &input {
            let mut model = Model::new(&self.job.rules);
            let (mut applied, mut letters) = (Vec::new(), Vec::new());
            for record in records {
                let fate = match model.apply(record) {
                    Fate::DeadLettered("unsendable") => Fate::DeadLettered("rejected"),
                    fate => fate,
                };
                *found.fates.entry(fate).or_default() += 1;
                match fate {
                    Fate::Forwarded => {
                        let row = row_of(record);
                        let (_, times) = latest.get(&row.0).cloned().unwrap_or((0, 0));
                        latest.insert(row.0.clone(), (row.1, times + 1));
                        applied.push(format!("{}|{}|{}", record.offset, row.0, row.1));
                    }
                    Fate::DeadLettered(reason) => letters.push(format!("{} {reason}", record.offset)),
                    Fate::Duplicate | Fate::Stale => {}
                }
            }
            let sql = format!("select at, id, version from applied where part = {partition} order by seq");
            assert_eq!(differences(&database.rows(&sql), &applied), Vec::<String>::new(), "partition {partition}");
            is_expected.insert(partition, letters);
        }
        for (partition, letters) in is_expected {
            let mut there = dead_letters.get(&partition).cloned().unwrap_or_default();
            there.sort_unstable();
            let mut letters = letters;
            letters.sort_unstable();
            assert_eq!(differences(&there, &letters), Vec::<String>::new(), "dead letters of partition {partition}");
        }
        let expected: Vec<String> =
            latest.into_iter().map(|(id, (version, times))| format!("{id}|{version}|{times}")).collect();
        let mut there = database.rows("select id, version, times from latest");
        there.sort_unstable();
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(differences(&there, &expected), Vec::<String>::new(), "the last one of each thing");
        found
    }

    /// The dead letters: source offset and reason, by source partition.
    fn dead_letters(&self) -> BTreeMap<i32, Vec<String>> {
        let mut found: BTreeMap<i32, Vec<String>> = BTreeMap::new();
        if self.job.kafka.partitions(&self.job.dead_letter()).is_none() {
            return found;
        }
        for letter in self.job.kafka.read(&self.job.dead_letter()).into_values().flatten() {
            let header = |name: &str| letter.header(&format!("__ratchet.errors.{name}")).expect("each letter has it");
            let partition = header("partition").parse().expect("a number");
            found.entry(partition).or_default().push(format!("{} {}", header("offset"), header("reason")));
        }
        found
    }
}

impl Found {
    pub fn count(&self, fate: Fate) -> usize {
        self.fates.get(&fate).copied().unwrap_or(0)
    }

    /// Fails the test unless every kind of fate was met.
    #[track_caller]
    pub fn assert_each_fate(&self) -> &Self {
        for fate in [Fate::Forwarded, Fate::Duplicate, Fate::Stale, Fate::DeadLettered("rejected")] {
            assert!(self.count(fate) > 0, "no record was {fate:?}: {self:?}");
        }
        self
    }
}

/// Whether the database refuses the record: its note ends with 33.
pub fn is_refused(value: &Option<Vec<u8>>) -> bool {
    let value = value.as_deref().and_then(|value| serde_json::from_slice::<serde_json::Value>(value).ok());
    value.is_some_and(|value| value["note"].as_str().is_some_and(|note| note.ends_with("33")))
}

/// The identity and the version of a survivor.
fn row_of(record: &Stored) -> (String, i64) {
    let value: serde_json::Value =
        serde_json::from_slice(record.value.as_deref().unwrap_or_default()).expect("a survivor is JSON");
    (value["id"].as_str().expect("a text").to_owned(), value["version"].as_i64().expect("a number"))
}

/// The first few lines in which two lists differ.
fn differences(there: &[String], expected: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for at in 0..there.len().max(expected.len()) {
        let (there, expected) = (there.get(at), expected.get(at));
        if there != expected && all.len() < 5 {
            all.push(format!("line {at}: there is {there:?}, expected {expected:?}"));
        }
    }
    all
}
