//! Tables that are kept in another database: what happens to them, and what must be true at its end.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::arrivals::Arrivals;
use crate::bank::{Bank, COPIED, Copied, GUARD, TABLES};
use crate::cluster::Kafka;
use crate::connect::Connect;
use crate::database::Database as _;
use crate::history::{History, changes};
use crate::kafka::Broker;
use crate::operator::{Operator, shipped};
use crate::postgres::Postgres;
use crate::random::Random;
use crate::session::Session;
use crate::target::{Admin, Database, Server};
use crate::until::within;

/// How many transactions there are in a stretch of work.
const STRETCH: u64 = 60;
/// How long a connector may take to start and to deliver a stretch of work, on a busy machine.
const DELIVERY: Duration = Duration::from_secs(120);

/// Where the tables are and where their topics.
const PLACES: [(&str, &str); 2] = [("topic.prefix", "bank"), ("table.include.list", "public.accounts,public.postings")];
/// What the page says is to be set in the connector.
const SETTINGS: [(&str, &str); 4] = [
    ("decimal.handling.mode", "string"),
    ("time.precision.mode", "isostring"),
    ("interval.handling.mode", "string"),
    ("skipped.operations", "none"),
];
/// The page.
const PAGE: &str = include_str!("../../docs/sinks/postgres.md");

/// The topology of the other table; that of accounts is shipped.
const POSTINGS: &str = "
name: postings-table
preset: debezium-postgres@2
input: {topics: [bank.public.postings]}
sink:
  postgres:
    url: ${env:DATABASE_URL}
    table: {name: postings, key: [account, line], decimals: text}
";
/// In both topologies' texts: makes another one of it, in which each record is new.
const UNORDERED: (&str, &str) = ("-table\n", "-unordered\nidentity: [meta.partition, meta.offset]\n");

/// What comes in place of a large value that was not changed, in its several forms.
const UNCHANGED: [(&str, &str); 4] = [
    ("contract", "\"__debezium_unavailable_value\""),
    ("scan", "\"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==\""),
    ("history", "\"__debezium_unavailable_value\""),
    ("pages", "[\"__debezium_unavailable_value\"]"),
];

/// A source with its connector, and ratchet, which keeps a copy of its tables in another server.
pub struct Copying<'a> {
    source: &'a Postgres,
    brokers: String,
    kafka: Kafka,
    connect: Connect,
    session: Session,
    /// For transactions that overlap with another.
    other: Session,
    /// For what happens while one of those waits for the other.
    third: Session,
    server: Server,
    copy: Database,
    operator: Operator,
    bank: Bank,
    /// One for each table.
    arrivals: Vec<Arrivals>,
}

impl<'a> Copying<'a> {
    /// Creates topics and target, and starts ratchet.
    pub fn start(source: &'a Postgres, broker: &Broker) -> Copying<'a> {
        for (name, value) in SETTINGS {
            assert!(PAGE.contains(&format!("`{name}={value}`")), "the page does not name {name}={value}");
        }
        let kafka = Kafka::at(&broker.bootstrap());
        for table in &COPIED {
            kafka.create(&topic(table), table.partitions, &[]);
        }
        let name = copy_of(source);
        let server = Server::start(&name, &[]);
        let copy = database(&server);
        let operator = Operator::ending_in(&copy.url, &name, &topologies(source), kafka.brokers());
        let session = |name: &str| source.session(&format!("{}-{name}session", source.name()));
        Copying {
            brokers: kafka.brokers().to_owned(),
            connect: Connect::new(source, kafka.brokers(), &[&PLACES[..], &SETTINGS].concat()),
            session: session(""),
            other: session("other-"),
            third: session("third-"),
            bank: Bank::new(Random::seeded(source.name())),
            arrivals: COPIED.iter().map(|table| Arrivals::of(&kafka, &topic(table), table.id)).collect(),
            source,
            kafka,
            server,
            copy,
            operator,
        }
    }

    /// The story.
    pub fn run(mut self) {
        self.work();
        self.announce("a first snapshot, then changes");
        self.connect.start();
        self.await_reads();
        self.work();
        self.check();

        self.announce(
            "the connector is killed before it flushes its offsets, ratchet and its state go while it delivers",
        );
        self.connect.stop();
        self.connect.start();
        self.work();
        self.await_delivered();
        self.connect.kill();
        self.work();
        let before = self.arrivals[0].count;
        self.connect.start();
        self.await_arrivals("the first changes to be delivered", |arrivals| arrivals.count > before);
        self.operator.kill_and_wipe();
        self.work();
        self.operator.restart();
        self.check();

        self.announce("its offsets are lost: a second snapshot, and meanwhile the copy's server is killed");
        self.connect.stop();
        self.connect.lose_offsets();
        self.connect.start();
        self.await_reads();
        self.server.kill_and_restart();
        self.work();
        self.check();

        self.announce("its offsets are lost, and it resumes without a snapshot; then the topics are read again");
        self.resume_without_snapshot();
        self.check();
        self.operator.stop();
        self.reset_groups();
        self.operator.restart();
        self.work();
        self.check();
        self.check_history();
        self.check_order();
        self.change_a_key_alone();
        self.operator.stop();
    }

    fn announce(&self, what: &str) {
        println!("{}: {what}", self.source.name());
    }

    /// A stretch of work, with overlapping transactions.
    fn work(&mut self) {
        for transaction in self.bank.transactions(STRETCH) {
            self.session.run(&transaction);
        }
        let (_, pair) = self.bank.straddling();
        self.session.run(&pair.begin);
        self.other.run(&pair.other);
        self.session.run(&pair.commit);
        let handover = self.bank.handover();
        handover.run([&mut self.session, &mut self.other, &mut self.third], self.source.waiting_query());
    }

    /// The connector's first transaction comes again, without the commit before it.
    fn resume_without_snapshot(&mut self) {
        let (id, astride) = self.bank.straddling();
        self.session.run(&astride.begin);
        self.other.run(&astride.other);
        self.session.run(&astride.commit);
        self.await_marker(id);
        self.connect.stop();
        self.connect.lose_offsets();
        self.connect.set("snapshot.mode", Some("no_data"));
        self.connect.start();
        self.work();
    }

    fn reset_groups(&self) {
        for table in &COPIED {
            let group = self.kafka.group(&group(table, "table"));
            (0..table.partitions).for_each(|partition| group.set(&topic(table), partition, 0, ""));
        }
    }

    /// Waits until the first table's topic is as it should be.
    fn await_arrivals(&mut self, what: &str, is_there: impl Fn(&Arrivals) -> bool) {
        let arrivals = &mut self.arrivals[0];
        within(DELIVERY, what, || {
            self.connect.assert_running();
            arrivals.look();
            is_there(arrivals).then_some(())
        });
    }

    /// Waits for reads of a snapshot that has just begun.
    fn await_reads(&mut self) {
        let reads = self.arrivals[0].reads;
        self.await_arrivals("a snapshot's reads", |arrivals| arrivals.reads > reads);
    }

    /// Waits until everything committed is in the topics.
    fn await_delivered(&mut self) {
        let (id, sql) = self.bank.marker();
        self.session.run(&format!("begin; {sql} commit;"));
        self.await_marker(id);
    }

    fn await_marker(&mut self, id: i64) {
        for (table, arrivals) in COPIED.iter().zip(&mut self.arrivals) {
            within(DELIVERY, &format!("marker {id} in the topic of {}", table.name), || {
                self.connect.assert_running();
                arrivals.look();
                arrivals.ids.contains(&id).then_some(())
            });
        }
    }

    /// Checks, once everything has come through, that the copy's tables are the source's, row for row and column for
    /// column, and that no row in them ever went back.
    fn check(&mut self) {
        self.await_delivered();
        self.await_drained("table");
        let copy = Admin::connect(&self.copy.url);
        for table in &COPIED {
            let (source, there) = (self.session.run(&columns_query(table)), copy.rows(&columns_query(table)));
            let rows = copy.rows(&format!("select count(*) from {}", table.name));
            println!("{}: {} of {} rows, {} values", self.source.name(), table.name, rows[0], there.len());
            assert_eq!(differences(&source, &there), [""; 0], "the copy of {} is not the source's", table.name);
        }
        assert_eq!(copy.rows("select * from fallen"), [""; 0], "rows went back or came back");
        assert_eq!(self.dead_letters(), [""; 0], "records were set aside");
    }

    /// Waits until topologies of this kind have committed the end of every input partition.
    fn await_drained(&mut self, kind: &str) {
        for table in &COPIED {
            let (topic, group) = (topic(table), self.kafka.group(&group(table, kind)));
            for partition in 0..table.partitions {
                let end = self.kafka.bounds(&topic, partition).end;
                within(DELIVERY, &format!("{topic}:{partition} to be drained to {end}"), || {
                    self.operator.assert_running();
                    let committed = group.committed(&topic, partition);
                    (end == 0 || committed.is_some_and(|(offset, _)| offset >= end)).then_some(())
                });
            }
        }
    }

    /// The reasons why records were set aside.
    fn dead_letters(&self) -> Vec<String> {
        let letters = COPIED.iter().map(|table| format!("{}-table.dead_letter", table.name));
        let letters = letters.filter(|topic| self.kafka.partitions(topic).is_some());
        let records = letters.flat_map(|topic| self.kafka.read(&topic).into_values().flatten());
        records.map(|letter| format!("{:?}", letter.headers.iter().map(header).collect::<Vec<_>>())).collect()
    }

    /// Checks that the faults to survive have happened.
    fn check_history(&self) {
        for table in &COPIED {
            let raw = self.kafka.read(&topic(table));
            let History { snapshots, redelivered, truncates, .. } = History::of(&raw, self.source);
            let records: usize = raw.values().map(Vec::len).sum();
            println!(
                "{}: {records} records, {redelivered} delivered again, {} truncates, {} of them delivered again",
                table.name, truncates.0, truncates.1
            );
            assert!(redelivered > 0, "{}: nothing was delivered twice", table.name);
            assert_eq!(snapshots.len(), 2, "{}: not two snapshots", table.name);
            if table.name == "postings" {
                assert!(truncates.1 > 0, "no truncate was delivered twice");
            } else {
                for (column, placeholder) in UNCHANGED {
                    let placeholder: Value = serde_json::from_str(placeholder).expect("it is JSON");
                    let is_left_out = |change: &Value| change["after"][column] == placeholder;
                    let left_out = changes(&raw).filter(|(_, change)| is_left_out(change)).count();
                    assert!(left_out > 0, "no change has left out {column}");
                }
            }
        }
    }

    /// Checks that rows do go back, and reappear, in copies that take every record for new.
    fn check_order(&mut self) {
        self.announce("the same topologies, in which each record is new");
        let copy = database(&self.server);
        let texts = topologies(self.source).map(|text| {
            let (known, unordered) = UNORDERED;
            assert!(text.contains(known), "no name to change in {text}");
            text.replacen(known, unordered, 1)
        });
        let ordered = std::mem::replace(
            &mut self.operator,
            Operator::ending_in(&copy.url, &format!("{}-unordered", copy_of(self.source)), &texts, &self.brokers),
        );
        self.await_drained("unordered");
        std::mem::replace(&mut self.operator, ordered).stop();
        let fallen = copy.rows("select what, from_revision, to_revision from fallen");
        println!("without the order, rows went back {} times, at first {:?}", fallen.len(), fallen.first());
        for table in &COPIED {
            assert!(fallen.iter().any(|row| row.starts_with(table.name)), "no row of {} went back", table.name);
        }
    }

    /// Where the log does not have the old row, a new primary key alone leaves the large values out, and no record has
    /// them: that change is set aside with the reason, and the row comes with the next one that has them.
    fn change_a_key_alone(&mut self) {
        self.announce("a key is changed, and the row's large values do not come with it");
        let (new, [insert, renumber, whole]) = self.bank.renumber_alone();
        self.session.run(&insert);
        self.session.run(&renumber);
        self.await_delivered();
        self.await_drained("table");
        let letters = self.dead_letters();
        assert!(
            matches!(&letters[..], [one] if one.contains("REPLICA IDENTITY FULL sends it): contract, scan, history, pages")),
            "{letters:?}"
        );
        assert_eq!(self.copy_rows(new), "0");
        self.session.run(&whole);
        self.await_delivered();
        self.await_drained("table");
        assert_eq!(self.copy_rows(new), "1");
        let table = &COPIED[0];
        let there = Admin::connect(&self.copy.url).rows(&columns_query(table));
        assert_eq!(differences(&self.session.run(&columns_query(table)), &there), [""; 0]);
    }

    fn copy_rows(&self, id: i64) -> String {
        Admin::connect(&self.copy.url).rows(&format!("select count(*) from accounts where id = {id}")).remove(0)
    }
}

fn topic(table: &Copied) -> String {
    format!("bank.public.{}", table.name)
}

fn group(table: &Copied, kind: &str) -> String {
    format!("ratchet.{}-{kind}", table.name)
}

/// A database with the empty tables, which notes whenever a row goes back.
fn database(server: &Server) -> Database {
    let database = Database::on(server);
    database.run(TABLES);
    database.run(GUARD);
    database
}

/// The name of the copy's files.
fn copy_of(source: &Postgres) -> String {
    format!("copy-of-{}", source.name())
}

/// One for each table.
fn topologies(source: &Postgres) -> [String; 2] {
    let accounts = std::fs::read_to_string(shipped("accounts-table")).expect("it is shipped");
    [accounts, POSTINGS.to_owned()].map(|text| source.converter().topology(&text))
}

/// A query for each value of each row, a line each.
fn columns_query(table: &Copied) -> String {
    let Copied { name, key, .. } = table;
    format!(
        "set timezone = 'UTC'; select concat_ws(' ', '{name}', {key}, e.key, e.value) \
         from {name} t, json_each(row_to_json(t)) e order by {key}, e.key;"
    )
}

fn header((name, value): &(String, Option<Vec<u8>>)) -> String {
    format!("{name}: {}", String::from_utf8_lossy(value.as_deref().unwrap_or_default()))
}

/// The first few lines in which a copy differs from its source, cut off.
fn differences(source: &[String], copy: &[String]) -> Vec<String> {
    let (expected, there): (BTreeSet<_>, BTreeSet<_>) = (source.iter().collect(), copy.iter().collect());
    let short = |line: &&String| line.chars().take(160).collect::<String>();
    let missing = expected.difference(&there).map(|line| format!("missing: {}", short(line)));
    let further = there.difference(&expected).map(|line| format!("too much: {}", short(line)));
    missing.take(10).chain(further.take(10)).collect()
}
