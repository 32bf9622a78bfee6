//! A copy of a table under load, whose connector loses its offsets: which rows the next snapshot's reads have to repair, and
//! which changes are in no record.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use serde_json::Value;

use crate::arrivals::Arrivals;
use crate::cluster::{Kafka, Stored};
use crate::connect::Connect;
use crate::database::Database as _;
use crate::history::{History, changes};
use crate::kafka::Broker;
use crate::operator::Operator;
use crate::postgres::Postgres;
use crate::random::Random;
use crate::replica::payload;
use crate::session::Session;
use crate::target::{Database, Server};
use crate::traffic::{ACCOUNTS, SESSIONS, Traffic, opening};
use crate::until::within;

/// How long a connector may take to start and to deliver, on a busy machine.
const DELIVERY: Duration = Duration::from_secs(120);
/// How many rows an incremental snapshot reads at least: those that change in its windows are left out.
const INCREMENTAL_READS: usize = 200;
/// How many changes there are between two faults, at least.
const STRETCH: usize = 150;

const TOPIC: &str = "repair.public.accounts";
const PARTITIONS: i32 = 3;
/// The topic of the table of signals, with which a test asks the connector for an incremental snapshot.
const SIGNALS_TOPIC: &str = "repair.public.signals";
const SETTINGS: [(&str, &str); 4] = [
    ("topic.prefix", "repair"),
    ("table.include.list", "public.accounts,public.signals"),
    ("signal.data.collection", "public.signals"),
    ("incremental.snapshot.chunk.size", "50"),
];

/// Accounts that the traffic leaves alone. While the offsets are lost, the first is changed, the second is closed and
/// opened again, the third is closed, and the fourth gets the number of the fifth.
const CHANGED: i64 = -1;
const OPENED_AGAIN: i64 = -2;
const CLOSED: i64 = -3;
const RENUMBERED: i64 = -4;
const NEW_NUMBER: i64 = -5;
/// Markers have numbers from here on.
const MARKERS: i64 = 1_000_000;

/// The topology, with this word for a snapshot's reads.
fn topology(name: &str, reads: &str) -> String {
    format!(
        "
name: {name}
preset: debezium-postgres@3
input: {{topics: [{TOPIC}]}}
kinds: {{reads: {reads}}}
sink:
  postgres:
    url: ${{env:DATABASE_URL}}
    table: {{name: accounts, key: [id]}}
"
    )
}

/// A source under load with its connector, and two instances of ratchet that keep a copy.
pub struct Repair<'a> {
    source: &'a Postgres,
    kafka: Kafka,
    connect: Connect,
    session: Session,
    server: Server,
    copy: Database,
    instances: Vec<Operator>,
    /// How often one of them was killed.
    kills: usize,
    traffic: Option<Traffic>,
    arrivals: Arrivals,
    markers: i64,
}

impl<'a> Repair<'a> {
    /// Starts all but the connector.
    pub fn start(source: &'a Postgres, broker: &Broker) -> Repair<'a> {
        let kafka = Kafka::at(&broker.bootstrap());
        kafka.create(TOPIC, PARTITIONS, &[]);
        kafka.create(SIGNALS_TOPIC, 1, &[]);
        let mut session = source.session("repair-session");
        session.run(&opening());
        for id in [CHANGED, OPENED_AGAIN, CLOSED, RENUMBERED] {
            session.run(&format!("insert into accounts values ({id}, 'at rest', 100, nextval('revisions'));"));
        }
        let server = Server::start("repair-copy", &[]);
        let copy = database(&server);
        let texts = [topology("accounts-repair", "by_version")];
        let names = ["repair-1", "repair-2"];
        let instances = names.map(|name| Operator::ending_in(&copy.url, name, &texts, kafka.brokers())).into();
        let sessions = (1..=SESSIONS).map(|n| source.session(&format!("repair-session-{n}"))).collect();
        let traffic = Traffic::start(sessions, &mut Random::seeded("repair"));
        Repair {
            connect: Connect::new(source, kafka.brokers(), &SETTINGS),
            session,
            server,
            copy,
            instances,
            kills: 0,
            traffic: Some(traffic),
            arrivals: Arrivals::of(&kafka, TOPIC, "id"),
            markers: MARKERS,
            source,
            kafka,
        }
    }

    /// The story.
    pub fn run(mut self) {
        self.announce("a first snapshot under load");
        self.connect.start();
        self.await_reads();
        // A read loses to a streamed change, and only to that.
        self.session.run("update accounts set balance = 99, revision = nextval('revisions') where id < 1;");
        self.kill_an_instance();
        self.await_changes();
        self.announce("an incremental snapshot under load");
        self.take_an_incremental_snapshot();

        self.announce("the connector is stopped once, so that it has offsets, and then killed");
        self.connect.stop();
        self.connect.start();
        self.await_changes();
        self.connect.kill();
        self.kill_an_instance();
        self.connect.start();
        self.await_changes();
        self.kill_an_instance();

        self.announce("it is killed again");
        self.await_delivered();
        self.connect.kill();
        self.connect.start();
        self.await_changes();
        self.kill_an_instance();

        self.announce("it is killed a third time, and its offsets are lost");
        let delivered = self.await_delivered();
        self.connect.kill();
        self.connect.lose_offsets();
        self.change_unseen();
        self.connect.start();
        self.kill_an_instance();
        self.await_reads();
        let snapshot = self.transaction("xmax");
        self.kill_an_instance();
        self.await_changes();

        let traffic = self.traffic.take().expect("it was started");
        println!("{}", traffic.stop());
        self.await_delivered();
        self.await_drained("accounts-repair");
        self.check(delivered..snapshot);
        self.check_incremental_reads();
        self.check_that_reads_repair();
    }

    fn announce(&self, what: &str) {
        println!("{}: {what}", self.source.name());
    }

    /// Kills one of the instances in turn and starts it again, every third time without its state.
    fn kill_an_instance(&mut self) {
        let instance = &mut self.instances[self.kills % 2];
        self.kills += 1;
        if self.kills.is_multiple_of(3) {
            instance.kill_and_wipe()
        } else {
            instance.kill()
        }
        instance.restart();
    }

    /// What is done while nothing is delivered, and what the traffic does meanwhile.
    fn change_unseen(&mut self) {
        for sql in [
            format!("update accounts set balance = 7, revision = nextval('revisions') where id = {CHANGED};"),
            format!("delete from accounts where id = {OPENED_AGAIN};"),
            format!("insert into accounts values ({OPENED_AGAIN}, 'again', 8, nextval('revisions'));"),
            format!("delete from accounts where id = {CLOSED};"),
            format!("update accounts set id = {NEW_NUMBER}, revision = nextval('revisions') where id = {RENUMBERED};"),
        ] {
            self.session.run(&sql);
        }
        let mut revision = || number(&self.session.run("select last_value from revisions;")[0]);
        let before = revision();
        within(DELIVERY, "changes that nobody sees", || (revision() >= before + STRETCH as i64).then_some(()));
    }

    /// Waits until the topic is as it should be.
    fn await_arrivals(&mut self, what: &str, is_there: impl Fn(&Arrivals) -> bool) {
        within(DELIVERY, what, || {
            self.connect.assert_running();
            self.arrivals.look();
            is_there(&self.arrivals).then_some(())
        });
    }

    fn await_reads(&mut self) {
        self.arrivals.look();
        let reads = self.arrivals.reads;
        self.await_arrivals("a snapshot's reads", |arrivals| arrivals.reads > reads);
    }

    /// Has the connector read all rows beside the stream. Those that change meanwhile are left out.
    fn take_an_incremental_snapshot(&mut self) {
        self.arrivals.look();
        let reads = self.arrivals.reads;
        self.session.run(
            "insert into signals values ('all', 'execute-snapshot', \
             '{\"data-collections\": [\"public.accounts\"], \"type\": \"incremental\"}');",
        );
        self.await_arrivals("most rows as reads", |arrivals| arrivals.reads >= reads + INCREMENTAL_READS);
    }

    fn await_changes(&mut self) {
        let (count, reads) = (self.arrivals.count, self.arrivals.reads);
        let changes = count - reads + STRETCH;
        self.await_arrivals("changes", |arrivals| arrivals.count - arrivals.reads >= changes);
    }

    /// Waits until everything committed is in the topic, and returns a number: all transactions below it are.
    fn await_delivered(&mut self) -> i64 {
        self.markers += 1;
        let id = self.markers;
        let least_open = self.transaction("xmin");
        self.session.run(&format!("insert into accounts values ({id}, 'marker', 0, nextval('revisions'));"));
        self.await_arrivals("a marker", |arrivals| arrivals.ids.contains(&id));
        least_open
    }

    /// A number above every transaction that has ended (`xmax`), or below which no transaction is open (`xmin`).
    fn transaction(&mut self, which: &str) -> i64 {
        number(&self.session.run(&format!("select txid_snapshot_{which}(txid_current_snapshot());"))[0])
    }

    /// Waits until a topology has committed the end of every input partition.
    fn await_drained(&mut self, topology: &str) {
        let group = self.kafka.group(&format!("ratchet.{topology}"));
        for partition in 0..PARTITIONS {
            let end = self.kafka.bounds(TOPIC, partition).end;
            within(DELIVERY, &format!("{TOPIC}:{partition} to be drained to {end}"), || {
                self.instances.iter_mut().for_each(Operator::assert_running);
                (end == 0 || group.committed(TOPIC, partition).is_some_and(|(offset, _)| offset >= end)).then_some(())
            });
        }
    }

    /// Checks that every row of the source is in the copy as it is there, and that each row which is only in the copy was
    /// deleted, or got another number, while the offsets were lost: in one of these transactions.
    fn check(&mut self, unseen: Range<i64>) {
        assert_eq!(self.kills, 6, "of the instances");
        let raw = self.kafka.read(TOPIC);
        let history = History::of(&raw, self.source);
        println!("{} changes were delivered again", history.redelivered);
        assert!(history.redelivered > 0, "nothing was delivered twice");
        // Reads of the incremental one have no position of their own.
        let whole = history.snapshots.iter().filter(|position| **position != [0]).count();
        assert_eq!((whole, history.snapshots.len()), (2, 3), "snapshots");
        let lost = self.lost(&raw);
        let (source, copy) = (self.source_rows(), rows(self.copy.rows(ROWS)));
        let (differing, only_there) = compare(&source, &copy);
        println!(
            "{} rows in the source, {} in the copy, {} deletes in no record",
            source.len(),
            copy.len(),
            lost.len()
        );
        assert_eq!(differing, [""; 0], "the copy is not the source's");
        for id in &only_there {
            let (transaction, how) =
                lost.get(id).unwrap_or_else(|| panic!("row {id} is in the copy, its delete in the topic"));
            println!("{}: row {id} is only in the copy: it was {how} while the offsets were lost", self.source.name());
            assert!(unseen.contains(transaction), "row {id} was {how} in {transaction}, at another time");
        }
        for id in [CLOSED, RENUMBERED] {
            assert!(only_there.contains(&id), "row {id} is gone, although no record says so");
        }
        let letters = "accounts-repair.dead_letter";
        let rejected = self.kafka.partitions(letters).map(|_| self.kafka.read(letters));
        assert!(rejected.is_none_or(|records| records.values().all(Vec::is_empty)), "records were set aside");
    }

    /// Checks what `source.sequence` says of an incremental snapshot's read: it is above every change of the row that came
    /// before it, and below every change that came for the first time after it.
    fn check_incremental_reads(&self) {
        let raw = self.kafka.read(TOPIC);
        let mut rows: HashMap<Vec<u8>, Row> = HashMap::new();
        let (mut reads, mut between) = (0, 0);
        for (key, change) in changes(&raw) {
            let row = rows.entry(key.expect("a change of a row has a key")).or_default();
            let place = place(&change["source"]);
            match (change["op"] == "r", change["source"]["snapshot"] == "incremental") {
                (true, true) => {
                    assert!(row.changed < Some(place), "a read at {place:?} after {:?}: {change}", row.changed);
                    row.read = Some(place);
                    reads += 1;
                }
                (true, false) => {}
                (false, _) => {
                    // A repeated change is at or below the newest place that was seen.
                    if row.changed < Some(place) {
                        assert!(
                            row.read < Some(place),
                            "a change at {place:?} after a read at {:?}: {change}",
                            row.read
                        );
                        between += usize::from(row.read.is_some());
                        row.changed = Some(place);
                    }
                }
            }
        }
        println!("{reads} incremental reads, {between} changes after one of their row");
        assert!(reads >= INCREMENTAL_READS && between > 0);
    }

    /// The numbers whose last removal is in no record, each with its transaction and whether it was deleted or renumbered.
    fn lost(&mut self, raw: &BTreeMap<i32, Vec<Stored>>) -> BTreeMap<i64, (i64, String)> {
        let deletes = changes(raw).filter(|(_, change)| change["op"] == "d");
        let seen: HashSet<(Option<i64>, Option<i64>)> = deletes
            .map(|(key, change)| {
                let id = key.as_deref().and_then(|key| payload(key)["id"].as_i64());
                (id, change["source"]["txId"].as_i64())
            })
            .collect();
        let gone = self.session.run("select id, transaction, how from gone order by nth;");
        let mut lost = BTreeMap::new();
        for line in gone {
            let [id, transaction, how] = line.split('|').collect::<Vec<_>>()[..] else {
                panic!("three columns: {line}")
            };
            let (id, transaction) = (number(id), number(transaction));
            if seen.contains(&(Some(id), Some(transaction))) {
                lost.remove(&id);
            } else {
                lost.insert(id, (transaction, how.to_owned()));
            }
        }
        lost
    }

    fn source_rows(&mut self) -> BTreeMap<i64, String> {
        rows(self.session.run(ROWS))
    }

    /// Checks that the same records make another table if the reads of a second snapshot lose to what was streamed.
    fn check_that_reads_repair(&mut self) {
        self.announce("the same topology, in which reads lose");
        let copy = database(&self.server);
        let texts = [topology("accounts-lose", "lose")];
        let loser = Operator::ending_in(&copy.url, "repair-lose", &texts, self.kafka.brokers());
        self.instances = vec![loser];
        self.await_drained("accounts-lose");
        let (differing, _) = compare(&self.source_rows(), &rows(copy.rows(ROWS)));
        println!(
            "{} rows are older than the source's, or missing, the first: {:?}",
            differing.len(),
            differing.first()
        );
        for id in [CHANGED, OPENED_AGAIN] {
            assert!(differing.iter().any(|row| row.starts_with(&format!("{id}: "))), "row {id} is right after all");
        }
    }
}

/// The last places in the stream that were seen of a row.
#[derive(Default)]
struct Row {
    /// Of a change.
    changed: Option<[u64; 2]>,
    /// Of an incremental snapshot's read.
    read: Option<[u64; 2]>,
}

/// A record's place in the stream: the last commit before it, or its own position where that is greater, then its own. A
/// read of an incremental snapshot has no position of its own.
fn place(source: &Value) -> [u64; 2] {
    let sequence: [Option<String>; 2] =
        source["sequence"].as_str().and_then(|text| serde_json::from_str(text).ok()).expect("an array as text");
    let commit = sequence[0].as_deref().map_or(0, |commit| number(commit) as u64);
    let own = source["lsn"].as_u64().unwrap_or_default();
    [commit.max(own), own]
}

/// Each row as its number and its contents.
const ROWS: &str = "select id, owner, balance, revision from accounts order by id;";

fn number(text: &str) -> i64 {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

fn rows(lines: Vec<String>) -> BTreeMap<i64, String> {
    let row = |line: String| {
        let (id, rest) = line.split_once('|').unwrap_or_else(|| panic!("columns: {line}"));
        (number(id), rest.to_owned())
    };
    lines.into_iter().map(row).collect()
}

/// The source's rows that the copy lacks or has with other values, and the numbers of the rows that only the copy has.
fn compare(source: &BTreeMap<i64, String>, copy: &BTreeMap<i64, String>) -> (Vec<String>, Vec<i64>) {
    let differing = source.iter().filter(|(id, row)| copy.get(id) != Some(row));
    let differing = differing.map(|(id, row)| format!("{id}: {row} became {:?}", copy.get(id))).collect();
    (differing, copy.keys().filter(|id| !source.contains_key(id)).copied().collect())
}

/// A database with the empty table.
fn database(server: &Server) -> Database {
    let database = Database::on(server);
    database.run(ACCOUNTS);
    database
}
