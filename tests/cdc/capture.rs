//! Captures each kind of record that the connectors write, for tests without a connector.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{Kafka, Stored};
use crate::connect::Connect;
use crate::database::{Database, SIGNALS, TABLES};
use crate::kafka::Broker;
use crate::replica::payload;
use crate::session::Session;
use crate::until::within;

const DELIVERY: Duration = Duration::from_secs(120);

/// Read by the first snapshot.
const ROWS: &str = "
insert into orders values (1, 'new', 100, null, 1), (2, 'new', 200, 'a note', 2), (3, 'new', 300, null, 3);
insert into order_lines values (1, 1, 'a', 1, 4), (1, 2, 'b', 2, 5);";

/// Streamed changes of every kind.
const CHANGES: &str = "
insert into orders values (4, 'new', 400, null, 6);
update orders set status = 'paid', revision = 7 where id = 1;
update orders set cents = cents + 1, revision = 8 where id in (1, 2, 3);
begin; update orders set status = 'packed', revision = 9 where id = 1;
update order_lines set qty = 5, revision = 10 where order_id = 1;
update orders set status = 'sent', revision = 11 where id = 1; commit;
delete from orders where id = 2;
update orders set id = 30, revision = 12 where id = 3;";

const MORE_CHANGES: &str = "
delete from order_lines where order_id = 1 and line = 2;
truncate table order_lines;
insert into order_lines values (4, 1, 'c', 3, 15);";

/// Delivered twice, because the connector is killed after them.
const REDELIVERED: &str = "
update orders set status = 'back', revision = 16 where id = 1;
delete from orders where id = 4;
insert into orders values (4, 'again', 444, null, 17);";

/// Captures a database's records into `tests/data/cdc-real/NAME.jsonl`, in the form of `kcat -J`.
pub fn capture(database: &dyn Database) {
    let broker = Broker::start();
    let kafka = Kafka::at(&broker.bootstrap());
    let mut topics: Vec<String> = TABLES.iter().map(|table| database.topic(table)).collect();
    let signals = topics[0].replace("orders", "signals");
    let inner = |topic: &str| topic.split_once('.').expect("a prefix, a schema, a table").1.to_owned();
    let tables = [inner(&topics[0]), inner(&topics[1]), inner(&signals)];
    let included = tables.join(",");
    topics.extend(database.further_topics().iter().map(|&topic| topic.to_owned()));
    for topic in topics.iter().chain([&signals]) {
        kafka.create(topic, 1, &[]);
    }
    let further =
        [("skipped.operations", "none"), ("table.include.list", &included), ("signal.data.collection", &tables[2])];
    let mut connect = Connect::new(database, kafka.brokers(), &further);
    let mut session = database.session(&format!("{}-capture", database.name()));
    let mut marks = Marks { topic: topics[0].clone(), last: 900 };

    session.run(SIGNALS);
    session.run(ROWS);
    connect.start();
    await_reads(&kafka, &topics[1], 2);
    session.run(CHANGES);
    let rows = ["7,'loaded',700,'a',13".to_owned(), "8,'loaded',800,'b',14".to_owned()];
    session.run(&database.bulk_load("orders", &rows));
    session.run(database.own_statements());
    session.run(MORE_CHANGES);
    marks.pass(&kafka, &mut session);

    connect.stop();
    connect.start();
    session.run(REDELIVERED);
    marks.pass(&kafka, &mut session);
    connect.kill();
    connect.start();
    marks.pass(&kafka, &mut session);

    let signal = |id: &str, kind: &str, table: &str| {
        format!(
            "insert into signals values ('{id}', 'execute-snapshot', \
             '{{\"data-collections\": [\"{table}\"], \"type\": \"{kind}\"}}');"
        )
    };
    let reads = count_reads(&kafka, &topics[0]);
    session.run(&signal("by-and-by", "incremental", &tables[0]));
    await_reads(&kafka, &topics[0], reads + 1);
    session.run("update orders set status = 'after incremental', revision = 18 where id = 1;");
    marks.pass(&kafka, &mut session);

    connect.stop();
    session.run("update orders set status = 'while down', revision = 19 where id = 7;");
    connect.lose_offsets();
    let reads = count_reads(&kafka, &topics[1]);
    connect.start();
    await_reads(&kafka, &topics[1], reads + 1);
    session.run("update orders set status = 'after second', revision = 20 where id = 1;");
    marks.pass(&kafka, &mut session);

    let reads = count_reads(&kafka, &topics[1]);
    session.run(&signal("at-once", "blocking", &tables[1]));
    await_reads(&kafka, &topics[1], reads + 1);
    session.run("update order_lines set qty = 9, revision = 21 where order_id = 4;");
    marks.pass(&kafka, &mut session);
    connect.stop();

    let captured = topics.iter().enumerate().flat_map(|(n, topic)| {
        let records = &kafka.read(topic)[&0];
        // Schema changes are long, and say nothing about rows.
        lines(topic, &records[..if n < TABLES.len() { records.len() } else { records.len().min(2) }])
    });
    let lines: Vec<String> = captured.collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/cdc-real/{}.jsonl", database.name()));
    fs::write(&path, lines.join("\n") + "\n").unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
    println!("{}: {} records", path.display(), lines.len());
}

/// Orders to wait for: once one arrives, everything committed before it has been delivered, too.
struct Marks {
    topic: String,
    last: i64,
}

impl Marks {
    fn pass(&mut self, kafka: &Kafka, session: &mut Session) {
        self.last += 1;
        let id = self.last;
        session.run(&format!("insert into orders values ({id}, 'mark', 0, null, {id});"));
        within(DELIVERY, &format!("order {id} in {}", self.topic), || {
            let mut keys = records(kafka, &self.topic).into_iter().filter_map(|record| record.key);
            keys.any(|key| payload(&key)["id"] == id).then_some(())
        });
    }
}

fn records(kafka: &Kafka, topic: &str) -> Vec<Stored> {
    kafka.read_visible(topic).remove(&0).unwrap_or_default()
}

fn count_reads(kafka: &Kafka, topic: &str) -> usize {
    let records = records(kafka, topic);
    let values = records.iter().filter_map(|record| record.value.as_deref());
    values.filter(|value| payload(value)["op"] == "r").count()
}

fn await_reads(kafka: &Kafka, topic: &str, count: usize) {
    within(DELIVERY, &format!("{count} reads in {topic}"), || (count_reads(kafka, topic) >= count).then_some(()));
}

fn lines(topic: &str, records: &[Stored]) -> Vec<String> {
    let text = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let line = |record: &Stored| {
        let headers: Vec<Value> =
            record.headers.iter().flat_map(|(name, value)| [json!(name), json!(text(value))]).collect();
        let mut line = json!({
            "topic": topic, "partition": 0, "offset": record.offset, "tstype": "create", "ts": record.timestamp,
            "key": text(&record.key), "payload": text(&record.value),
        });
        if !headers.is_empty() {
            line["headers"] = Value::Array(headers);
        }
        line.to_string()
    };
    records.iter().map(line).collect()
}
