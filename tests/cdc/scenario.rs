//! The story that both databases go through, and what must be true at its end.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::arrivals::Arrivals;
use crate::cluster::{Kafka, Stored};
use crate::connect::Connect;
use crate::database::{Database, TABLES, Table};
use crate::history::History;
use crate::kafka::Broker;
use crate::operator::Operator;
use crate::random::Random;
use crate::replica::Replica;
use crate::session::Session;
use crate::until::within;
use crate::workload::{Kinds, Workload};

mod upgrade;

/// Of every table's topic and of its output.
const PARTITIONS: i32 = 3;
/// How many transactions there are in a stretch of work.
const STRETCH: u64 = 80;
/// How many orders are handed over from one transaction to another in a stretch.
const HANDOVERS: u64 = 6;
/// How long a connector may take to start and to deliver a stretch of work, on a busy machine.
const DELIVERY: Duration = Duration::from_secs(120);

/// Everything but the operator, up and running.
pub struct Scenario<'a> {
    database: &'a dyn Database,
    /// The suffix of the outputs' names, after the tables' topics.
    output: &'static str,
    kafka: Kafka,
    connect: Connect,
    session: Session,
    /// For transactions that overlap with another.
    other: Session,
    /// For what happens while one of those waits for the other.
    third: Session,
    workload: Workload,
    /// One for each table.
    arrivals: Vec<Arrivals>,
}

impl<'a> Scenario<'a> {
    /// Creates the topics, including the outputs `{topic}.clean`. `further` are settings of the connector.
    pub fn start(database: &'a dyn Database, broker: &Broker, further: &[(&str, &str)]) -> Scenario<'a> {
        let kafka = Kafka::at(&broker.bootstrap());
        for table in &TABLES {
            kafka.create(&database.topic(table), PARTITIONS, &[]);
            kafka.create(&format!("{}.clean", database.topic(table)), PARTITIONS, &[]);
        }
        for topic in database.further_topics() {
            kafka.create(topic, 1, &[]);
        }
        let name = database.name();
        Scenario {
            connect: Connect::new(database, kafka.brokers(), further),
            session: database.session(&format!("{name}-session")),
            other: database.session(&format!("{name}-other-session")),
            third: database.session(&format!("{name}-third-session")),
            workload: Workload::new(Random::seeded(name)),
            arrivals: TABLES
                .iter()
                .map(|table| Arrivals::of(&kafka, &database.topic(table), table.columns[0]))
                .collect(),
            database,
            output: "clean",
            kafka,
        }
    }

    /// The story, with a shipped topology.
    pub fn run(mut self, topology: &str) {
        self.work(Kinds::All);
        let mut operator = Operator::start(topology, self.database.converter(), self.kafka.brokers());

        self.announce("a first snapshot, then changes");
        self.connect.start();
        self.work(Kinds::All);
        self.await_delivered();

        self.announce("the connector is stopped cleanly, and killed before it flushes its offsets again");
        self.connect.stop();
        self.connect.start();
        self.work(Kinds::All);
        self.await_delivered();
        self.connect.kill();
        self.work(Kinds::All);
        self.connect.start();
        self.work(Kinds::All);
        self.await_delivered();

        self.announce("its offsets are lost: a second snapshot, mid-stream");
        self.connect.stop();
        self.take_another_snapshot();
        self.work(Kinds::All);
        self.await_delivered();

        if let Some(setting) = self.database.without_snapshot() {
            self.announce(
                "its offsets are lost, and it resumes without a snapshot: its first transaction is delivered again",
            );
            self.resume_without_offsets(setting);
        }

        self.announce("the topic is read again from the start by a reset group");
        self.await_drained(topology, &mut operator);
        operator.stop();
        self.reset_group(topology, &mut operator);
        self.work(Kinds::All);
        self.await_delivered();
        self.await_drained(topology, &mut operator);
        for table in &TABLES {
            self.check(table);
        }
        self.repair(topology, &mut operator);
    }

    /// Changes made while the connector has no offsets are only in the next snapshot's reads, which repair the copy.
    fn repair(&mut self, topology: &str, operator: &mut Operator) {
        self.announce("its offsets are lost while rows change: their last state is only in a snapshot's reads");
        self.connect.stop();
        // What is deleted now is in no record at all.
        self.work(Kinds::Keeping);
        self.take_another_snapshot();
        self.await_delivered();
        self.await_drained(topology, operator);
        for table in &TABLES {
            let (source, replica) = (self.source(table), Replica::of(&self.read_output(table)));
            let differences = differences(&source, &replica.rows);
            assert!(differences.is_empty(), "{} rows of {} miss a change", differences.len(), table.name);
        }

        self.announce("one more snapshot, mid-stream");
        self.connect.stop();
        self.take_another_snapshot();
        self.work(Kinds::All);
        self.end_right(topology, operator);
    }

    /// Lets everything come through, and stops all but the database: the output's tables must be right.
    fn end_right(&mut self, topology: &str, operator: &mut Operator) {
        self.await_delivered();
        self.connect.stop();
        self.await_drained(topology, operator);
        operator.stop();
        for table in &TABLES {
            self.check_output(table);
        }
    }

    /// The database knows up to which commit everything was delivered. What is redelivered from there starts with a
    /// transaction for which the connector does not know the previous commit.
    fn resume_without_offsets(&mut self, (setting, without): (&'static str, &str)) {
        let (id, astride) = self.workload.straddling();
        self.session.run(&astride.begin);
        self.other.run(&astride.other);
        self.session.run(&astride.commit);
        self.await_marker(id);
        self.connect.stop();
        self.connect.lose_offsets();
        let before = self.connect.set(setting, Some(without));
        self.connect.start();
        self.work(Kinds::All);
        self.await_delivered();
        self.connect.stop();
        self.connect.set(setting, before.as_deref());
        self.connect.start();
        self.work(Kinds::All);
        self.await_delivered();
    }

    /// Starts the connector without its offsets and waits for the first reads.
    fn take_another_snapshot(&mut self) {
        self.connect.lose_offsets();
        let arrivals = &mut self.arrivals[0];
        arrivals.look();
        let reads = arrivals.reads;
        self.connect.start();
        within(DELIVERY, "another snapshot's reads", || {
            self.connect.assert_running();
            arrivals.look();
            (arrivals.reads > reads).then_some(())
        });
    }

    fn announce(&self, what: &str) {
        println!("{}: {what}", self.database.name());
    }

    /// A stretch of work, with some overlapping transactions.
    fn work(&mut self, kinds: Kinds) {
        for transaction in self.workload.transactions(self.database, STRETCH, kinds) {
            self.session.run(&transaction);
        }
        for _ in 0..5 {
            let pair = self.workload.interleaved();
            self.session.run(&pair.begin);
            self.other.run(&pair.other);
            self.session.run(&pair.commit);
        }
        if kinds == Kinds::All {
            (0..HANDOVERS).for_each(|nth| self.hand_over(nth));
        }
    }

    /// One transaction waits for another's key. PostgreSQL logs the waiting row before the delete, and its commit after
    /// it.
    fn hand_over(&mut self, nth: u64) {
        let handover = self.workload.handover(nth);
        handover.run([&mut self.session, &mut self.other, &mut self.third], self.database.waiting_query());
    }

    /// Waits until everything committed is in the topics.
    fn await_delivered(&mut self) {
        let (id, sql) = self.workload.marker();
        self.session.run(&format!("begin; {sql} commit;"));
        self.await_marker(id);
    }

    fn await_marker(&mut self, id: i64) {
        for (table, arrivals) in TABLES.iter().zip(&mut self.arrivals) {
            within(DELIVERY, &format!("the change of order {id} in the topic of {}", table.name), || {
                self.connect.assert_running();
                arrivals.look();
                arrivals.ids.contains(&id).then_some(())
            });
        }
    }

    /// Waits until the operator has committed the end of every input partition.
    fn await_drained(&self, topology: &str, operator: &mut Operator) {
        let group = self.kafka.group(&group(topology));
        for (topic, partition) in self.partitions() {
            let end = self.kafka.bounds(&topic, partition).end;
            within(DELIVERY, &format!("{topic}:{partition} to be drained to {end}"), || {
                operator.assert_running();
                (end == 0 || group.committed(&topic, partition).is_some_and(|(offset, _)| offset >= end)).then_some(())
            });
        }
    }

    fn partitions(&self) -> Vec<(String, i32)> {
        TABLES.iter().flat_map(|table| (0..PARTITIONS).map(|p| (self.database.topic(table), p))).collect()
    }

    /// Lets the stopped operator read everything again: nothing of that may be forwarded.
    fn reset_group(&self, topology: &str, operator: &mut Operator) {
        let outputs = || TABLES.iter().map(|table| self.read_output(table)).collect::<Vec<_>>();
        let before = outputs();
        let group = self.kafka.group(&group(topology));
        for (topic, partition) in self.partitions() {
            group.set(&topic, partition, 0, "");
        }
        operator.restart();
        self.await_drained(topology, operator);
        assert!(
            operator.printed().contains("the group was reset"),
            "the reset was not noticed: {}",
            operator.printed()
        );
        assert!(outputs() == before, "reading the input again forwarded something");
    }

    /// Checks that the faults to survive have happened, that they do harm without ratchet, and none with it.
    fn check(&mut self, table: &Table) {
        let name = format!("{} {}", self.database.name(), table.name);
        let raw = self.kafka.read(&self.database.topic(table));
        let clean = self.check_output(table);
        let count = |topic: &BTreeMap<i32, Vec<Stored>>| topic.values().map(Vec::len).sum::<usize>();
        let History { snapshots, redelivered, otherwise, falls, .. } = History::of(&raw, self.database);
        println!("{name}: positions fell {falls} times; {otherwise} changes had another sequence when redelivered");
        assert!(redelivered > 0, "{name}: nothing was delivered twice");
        assert_eq!(snapshots.len(), 2, "{name}: not two snapshots");
        if self.database.logs_commits_in_order() {
            assert_eq!(falls, 0, "{name}: the log is not in commit order");
        } else if table.name == TABLES[0].name {
            assert!(falls > 0, "{name}: no row that waited for its key is below the delete before it");
        }
        let has_other_sequences = self.database.without_snapshot().is_some();
        assert_eq!(otherwise > 0, has_other_sequences, "{name}: changes with another sequence: {otherwise}");
        assert!(count(&clean) + redelivered <= count(&raw), "{name}: something redelivered came out");

        let without = Replica::of(&raw);
        println!(
            "{name}: {} records in, {redelivered} of them delivered again, {} out; without ratchet {} rows went \
             back, {} came back after their delete, {} vanished; the first that went back: {}",
            count(&raw),
            count(&clean),
            without.went_back.len(),
            without.came_back.len(),
            without.vanished.len(),
            without.went_back.first().map_or("none", String::as_str),
        );
        assert!(!without.went_back.is_empty(), "{name}: no row went back in the raw topic");
        assert!(!without.came_back.is_empty(), "{name}: no deleted row came back in the raw topic");
    }

    /// Checks that the output's table is the source's, row for row, and that no row in it ever went back.
    fn check_output(&mut self, table: &Table) -> BTreeMap<i32, Vec<Stored>> {
        let name = format!("{} {}", self.database.name(), table.name);
        let source = self.source(table);
        let clean = self.read_output(table);
        let with = Replica::of(&clean);
        println!("{name}: {} rows in the source and in the output's table", source.len());
        assert_eq!(with.went_back, [""; 0], "{name}: rows went back");
        assert_eq!(with.came_back, [""; 0], "{name}: deleted rows came back");
        assert_eq!(with.vanished, [""; 0], "{name}: rows were deleted by old deletes");
        assert_eq!(with.stray_tombstones, [""; 0], "{name}: null values without their deletes");
        assert_eq!(differences(&source, &with.rows), [""; 0], "{name}: the output's table is not the source's");
        clean
    }

    fn read_output(&self, table: &Table) -> BTreeMap<i32, Vec<Stored>> {
        self.kafka.read(&format!("{}.{}", self.database.topic(table), self.output))
    }

    /// The source's rows, by key.
    fn source(&mut self, table: &Table) -> BTreeMap<String, Value> {
        let rows = self.session.run(&self.database.rows_query(table));
        let rows = rows.iter().map(|row| serde_json::from_str::<Value>(row).expect("a row is a JSON object"));
        rows.map(|row| {
            let key = table.columns[..table.key].iter().map(|&column| (column.to_owned(), row[column].clone()));
            (Value::Object(key.collect::<Map<_, _>>()).to_string(), row)
        })
        .collect()
    }
}

fn group(topology: &str) -> String {
    format!("ratchet.{topology}")
}

/// The differences between the source's rows and a replica's, one line a row.
fn differences(source: &BTreeMap<String, Value>, replica: &BTreeMap<String, Value>) -> Vec<String> {
    let keys: std::collections::BTreeSet<&String> = source.keys().chain(replica.keys()).collect();
    let differing = keys.into_iter().filter(|key| source.get(*key) != replica.get(*key));
    differing.map(|key| format!("{key}: {:?} became {:?}", source.get(key), replica.get(key))).collect()
}
