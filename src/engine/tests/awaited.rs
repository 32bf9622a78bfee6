//! Goal: a task waits before a record whose schema is not known yet. Earlier records are committed, other tasks
//! continue, no record is judged twice, and the task continues once the schema is known, also after a restart or a
//! rebalance, with every kind of output.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use super::faulty::{Faults, Faulty};
use super::watched::context;
use super::*;
use crate::effect::{ClaimedRow, CommitError, RedoBuilder, Row, RowKey, RowMark, Session, Sink, Step};
use crate::engine::lane::Lane;
use crate::provider::handler::{Function, Record, StepError, Steps};
use crate::record::TopicPartition;
use crate::schemas::written::Language;
use crate::schemas::{Id, LookUp, Schemas, Sources, Written};
use crate::topology;
use crate::yaml::Process;

const INPUT: &str = "orders";
const SCHEMA: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},
    {"name":"version","type":"long"}]}"#;
const BY_VALUE: &str = "identity: value.id\nversion: {of: value.version, as: integer}\npartitioned_by_identity: true\n";
/// Rules that read nothing in a value.
const BY_KEY: &str = "identity: key\n";
const TO_TOPIC: &str = "output: {topic: clean}\n";
const TO_HANDLER: &str = "sink: {handler: {in_flight: 8, on_in_doubt: dead_letter, retry: {first: 10ms, max: 20ms}}}\n";
const TO_SINK: &str = "sink: {postgres: {url: 'postgres://db/shop', table: {name: orders, key: [id]}}}\n";

/// Schemas that are pending until a test makes them known or absent.
#[derive(Debug, Default)]
struct Told(Mutex<BTreeMap<Id, Option<Arc<Written>>>>);

impl Told {
    fn known(&self, number: u32) {
        let written = Arc::new(Written::alone(Language::Avro, SCHEMA));
        self.0.lock().unwrap().insert(Id::Number(number), Some(written));
    }

    fn absent(&self, number: u32) {
        self.0.lock().unwrap().insert(Id::Number(number), None);
    }
}

impl Schemas for Told {
    fn look_up(&self, id: &Id) -> LookUp {
        match self.0.lock().unwrap().get(id) {
            None => LookUp::Pending,
            Some(None) => LookUp::Absent(format!("{id} is not in the registry")),
            Some(Some(written)) => LookUp::Known(Arc::clone(written)),
        }
    }
}

/// A topology whose records are in Avro, and its schemas, of which number 1 is known.
fn avro(site: &Site, destination: &str) -> (Topology, Arc<Told>) {
    avro_with(site, BY_VALUE, destination)
}

/// The same with these rules.
fn avro_with(site: &Site, rules: &str, destination: &str) -> (Topology, Arc<Told>) {
    let file = site.folder.path().join("shop.yaml");
    let text = format!(
        "name: shop\ninput: {{topics: [{INPUT}], value_format: avro}}\n{rules}\
         dead_letter: {{topic: shop-dead}}\n{destination}"
    );
    std::fs::write(&file, text).unwrap();
    let mut topology = topology::load(&file, &Process).map_err(|mistakes| mistakes.render(false)).unwrap().topology;
    let told = Arc::new(Told::default());
    told.known(1);
    topology.schemas = Sources { list: vec![told.clone()], ..Sources::default() };
    (topology, told)
}

/// A record as Confluent's serializers write it: a zero byte, the schema's id, and the two fields in Avro.
fn framed(schema: u32, id: &str, version: u8) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&schema.to_be_bytes());
    bytes.push(2 * id.len() as u8);
    bytes.extend_from_slice(id.as_bytes());
    bytes.push(2 * version);
    bytes
}

/// The identity of a forwarded record, which must have the bytes that were sent.
fn id_of(value: &[u8]) -> String {
    let length = usize::from(value[5] / 2);
    String::from_utf8(value[6..6 + length].to_vec()).unwrap()
}

fn send(site: &Site, partition: i32, records: &[(u32, &str, u8)]) {
    for (schema, id, version) in records {
        let value = framed(*schema, id, *version);
        let message = Message {
            topic: INPUT,
            partition,
            key: Some(id.as_bytes()),
            value: Some(&value),
            headers: Headers::default(),
            timestamp: Some(1_000),
        };
        site.cluster.append(INPUT, partition, &[message]).unwrap();
    }
}

/// The identities that were forwarded, in order.
fn forwarded(site: &Site, partition: i32) -> Vec<String> {
    let records = site.cluster.read_all("clean", partition).unwrap_or_default();
    records.into_iter().map(|record| id_of(&record.value.unwrap())).collect()
}

fn committed(site: &Site, partition: i32) -> i64 {
    let found = site.cluster.committed("ratchet.shop", &[TopicPartition::new(INPUT, partition)], WAIT_MAX);
    found.unwrap()[0].as_ref().map_or(0, |committed| committed.offset)
}

/// The reasons in the dead letters.
fn reasons_of_letters(site: &Site) -> Vec<String> {
    let letters = site.cluster.read_all("shop-dead", 0).unwrap().into_iter();
    let reasons = letters.map(|letter| {
        let why = letter.headers.as_headers().last(b"__ratchet.errors.message").and_then(|header| header.value);
        String::from_utf8(why.unwrap().to_vec()).unwrap()
    });
    reasons.collect()
}

/// Waits until the task waits before the record at this offset.
#[track_caller]
fn await_waiting(site: &Site, running: &Running, next: i64) {
    await_condition("the task to wait", || running.metric("ratchet_awaits_schema") == 1.0);
    await_condition("earlier records to be committed", || committed(site, 0) == next);
}

/// Waits until a run has counted this number of records; they are counted after their commit.
#[track_caller]
fn await_count(running: &Running, count: u32) {
    await_condition("all to be counted", || running.metric("ratchet_records_total") >= f64::from(count));
    assert_eq!(running.metric("ratchet_records_total"), f64::from(count), "each is judged once");
}

/// Leaves the run time to do something wrong.
fn moment() {
    std::thread::sleep(Duration::from_millis(300));
}

/// Records of which the third has to wait for its schema, and the identities that are forwarded in the end.
const WITH_A_PENDING_ONE: &[(u32, &str, u8)] =
    &[(1, "a", 1), (1, "b", 1), (2, "c", 1), (1, "a", 1), (2, "c", 1), (1, "b", 2), (2, "d", 1)];
const FORWARDED: [&str; 5] = ["a", "b", "c", "b", "d"];

#[test]
fn record_and_all_later_ones_wait_for_its_schema() {
    let site = Site::new();
    let (topology, told) = avro(&site, TO_TOPIC);
    send(&site, 0, WITH_A_PENDING_ONE);
    let running = site.start(&topology, false);
    await_waiting(&site, &running, 2);
    moment();
    assert_eq!(forwarded(&site, 0), ["a", "b"]);
    await_count(&running, 2);
    assert_eq!(running.failing_checks(), [""; 0], "it has not waited for long");
    told.known(2);
    await_condition("all to be judged", || committed(&site, 0) == 7);
    assert_eq!(forwarded(&site, 0), FORWARDED);
    await_count(&running, 7);
    assert_eq!(running.metric("ratchet_awaits_schema"), 0.0);
    running.end().unwrap();
}

#[test]
fn first_record_of_a_partition_can_wait() {
    let site = Site::new();
    let (topology, told) = avro(&site, TO_TOPIC);
    send(&site, 0, &[(2, "a", 1), (1, "a", 1)]);
    let running = site.start(&topology, false);
    await_waiting(&site, &running, 0);
    told.known(2);
    await_condition("all to be judged", || committed(&site, 0) == 2);
    assert_eq!(forwarded(&site, 0), ["a"]);
    running.end().unwrap();
}

/// A record may wait again and again, for one schema after the other.
#[test]
fn each_schema_is_waited_for_in_turn() {
    let site = Site::new();
    let (topology, told) = avro(&site, TO_TOPIC);
    let ids = ["a", "b", "c", "d", "e"];
    for (number, id) in (2..).zip(ids) {
        send(&site, 0, &[(number, id, 1), (number, id, 1)]);
    }
    let running = site.start(&topology, false);
    for at in 0..ids.len() {
        await_waiting(&site, &running, 2 * at as i64);
        assert_eq!(forwarded(&site, 0), ids[..at]);
        told.known(2 + at as u32);
        await_condition("both to be judged", || committed(&site, 0) == 2 * at as i64 + 2);
    }
    await_count(&running, 10);
    running.end().unwrap();
}

#[test]
fn schema_that_does_not_exist_is_named_by_the_dead_letter() {
    let site = Site::new();
    let (topology, told) = avro(&site, TO_TOPIC);
    send(&site, 0, WITH_A_PENDING_ONE);
    let running = site.start(&topology, false);
    await_waiting(&site, &running, 2);
    told.absent(2);
    await_condition("all to be judged", || committed(&site, 0) == 7);
    running.end().unwrap();
    assert_eq!(forwarded(&site, 0), ["a", "b", "b"]);
    let reasons = reasons_of_letters(&site);
    assert_eq!(reasons.len(), 3);
    assert!(reasons.iter().all(|why| why.contains("schema 2 is not in the registry")), "{reasons:?}");
}

#[test]
fn tasks_of_the_same_lane_continue_meanwhile() {
    let site = Site::new();
    let (topology, told) = avro(&site, TO_TOPIC);
    for topic in [INPUT, "clean"] {
        site.create(topic, 4, &[]);
    }
    send(&site, 0, WITH_A_PENDING_ONE);
    let running = site.start(&topology, false);
    await_waiting(&site, &running, 2);
    for version in 1..20 {
        for partition in 1..4 {
            send(&site, partition, &[(1, "x", version), (1, "x", version)]);
        }
    }
    for partition in 1..4 {
        await_condition("the others to continue", || committed(&site, partition) == 38);
        assert_eq!(forwarded(&site, partition).len(), 19);
    }
    assert_eq!(forwarded(&site, 0), ["a", "b"]);
    told.known(2);
    await_condition("all to be judged", || committed(&site, 0) == 7);
    assert_eq!(forwarded(&site, 0), FORWARDED);
    running.end().unwrap();
}

#[test]
fn run_until_drained_waits_for_schemas() {
    let site = Site::new();
    let (topology, told) = avro(&site, TO_TOPIC);
    send(&site, 0, WITH_A_PENDING_ONE);
    let running = site.start(&topology, true);
    await_waiting(&site, &running, 2);
    moment();
    assert!(!running.thread.is_finished());
    told.known(2);
    running.thread.join().unwrap().unwrap();
    assert_eq!(forwarded(&site, 0), FORWARDED);
}

#[test]
fn restart_continues_to_wait() {
    let site = Site::new();
    let (topology, told) = avro(&site, TO_TOPIC);
    send(&site, 0, WITH_A_PENDING_ONE);
    for _ in 0..3 {
        let running = site.start(&topology, false);
        await_waiting(&site, &running, 2);
        running.end().unwrap();
    }
    told.known(2);
    site.drain(&topology).unwrap();
    assert_eq!(forwarded(&site, 0), FORWARDED);
}

/// The group expels the member that waits, as after a silence, and it joins again.
#[test]
fn rebalance_continues_to_wait() {
    for destination in [TO_TOPIC, TO_HANDLER] {
        let site = Site::new();
        let (topology, told) = avro(&site, destination);
        send(&site, 0, WITH_A_PENDING_ONE);
        let done = Done::default();
        let running = site.start_with(&topology, done.handlers(), false);
        for _ in 0..3 {
            await_waiting(&site, &running, 2);
            assert_eq!(site.cluster.expel_members("ratchet.shop").unwrap(), 2, "one of each lane");
            moment();
        }
        await_waiting(&site, &running, 2);
        told.known(2);
        await_condition("all to be judged", || committed(&site, 0) == 7);
        match destination {
            TO_TOPIC => assert_eq!(forwarded(&site, 0), FORWARDED),
            _ => assert_eq!(done.sorted(), [0, 1, 2, 5, 6]),
        }
        assert_eq!(running.metric("ratchet_awaits_schema"), 0.0);
        running.end().unwrap();
    }
}

/// An output that fails makes a task work alone, in transactions of its own.
#[test]
fn isolated_task_waits_too() {
    let site = Site::new();
    let (topology, told) = avro(&site, TO_TOPIC);
    site.create(INPUT, 1, &[]);
    site.create("clean", 1, &[]);
    send(&site, 0, WITH_A_PENDING_ONE);
    let faults = Arc::new(Faults { output: Some("clean"), is_down: true.into(), ..Faults::default() });
    let faulty = Faulty { inner: site.cluster.clone(), faults: Arc::clone(&faults) };
    let (stop, health, metrics) = (Arc::new(AtomicBool::new(false)), Health::new(), Metrics::new());
    let options = Options {
        config: site.config(),
        topologies: vec![topology],
        handlers: Handlers::default(),
        until_drained: false,
        stop: stop.clone(),
        metrics: metrics.clone(),
        health: health.clone(),
    };
    let thread = std::thread::spawn(move || run_on(&faulty, options));
    let running = Running { stop, health, metrics, thread };
    await_condition("attempts in isolation", || {
        faults.attempts.lock().unwrap().get(&0).is_some_and(|times| *times > 3)
    });
    faults.is_down.store(false, Ordering::SeqCst);
    await_waiting(&site, &running, 2);
    told.known(2);
    await_condition("all to be judged", || committed(&site, 0) == 7);
    assert_eq!(forwarded(&site, 0), FORWARDED);
    running.end().unwrap();
}

/// The offsets of the records that a handler has processed, each of which it has read as JSON.
#[derive(Clone, Default)]
struct Done(Arc<Mutex<Vec<i64>>>);

/// A record's value.
#[derive(serde::Deserialize)]
struct Order {
    id: String,
    version: i64,
}

impl Done {
    fn handlers(&self) -> Handlers {
        let done = self.clone();
        let function = Function::new(async move |record: &Record, _: &mut Steps| {
            let Order { id, version } = record.json()?;
            assert!(!id.is_empty() && version > 0, "{id} {version}");
            done.0.lock().unwrap().push(record.offset());
            Ok::<(), StepError>(())
        });
        Handlers { functions: [("shop".to_owned(), function)].into(), database: None }
    }

    fn sorted(&self) -> Vec<i64> {
        let mut offsets = self.0.lock().unwrap().clone();
        offsets.sort_unstable();
        offsets
    }
}

#[test]
fn calls_of_earlier_records_are_made_and_those_of_later_ones_wait() {
    let site = Site::new();
    let (topology, told) = avro(&site, TO_HANDLER);
    send(&site, 0, WITH_A_PENDING_ONE);
    let done = Done::default();
    let running = site.start_with(&topology, done.handlers(), false);
    await_waiting(&site, &running, 2);
    send(&site, 0, &[(1, "e", 1)]);
    moment();
    assert_eq!(done.sorted(), [0, 1]);
    await_count(&running, 2);
    running.end().unwrap();
    // The next run waits at the same record.
    let running = site.start_with(&topology, done.handlers(), false);
    await_waiting(&site, &running, 2);
    told.known(2);
    await_condition("all to be judged", || committed(&site, 0) == 8);
    assert_eq!(done.sorted(), [0, 1, 2, 5, 6, 7], "one call for each record");
    await_count(&running, 6);
    assert_eq!(running.metric("ratchet_awaits_schema"), 0.0);
    running.end().unwrap();
}

/// The machine's clock, put forward by a number of seconds.
struct Ahead(SystemClock, AtomicU64);

impl Clock for Ahead {
    fn monotonic(&self) -> Duration {
        self.0.monotonic() + Duration::from_secs(self.1.load(Ordering::SeqCst))
    }

    fn wall_ms(&self) -> i64 {
        self.0.wall_ms()
    }

    fn wait(&self, length: Duration, stop: &AtomicBool) {
        self.0.wait(length, stop);
    }
}

/// A database of rows, and of the offsets whose effects it has.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<Contents>>);

/// The rows, and the offsets.
type Contents = (BTreeMap<RowKey, Row>, Vec<i64>);

impl Table {
    fn offsets(&self) -> Vec<i64> {
        self.0.lock().unwrap().1.clone()
    }
}

impl Sink for Table {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn answers(&self) -> bool {
        false
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(self.clone())
    }
}

impl Session for Table {
    fn claim(&mut self, key: &RowKey, may_insert: bool) -> Result<Option<ClaimedRow>, effect::Error> {
        let rows = &mut self.0.lock().unwrap().0;
        if !may_insert && !rows.contains_key(key) {
            return Ok(None);
        }
        let new = Row { mark: RowMark { epoch: 0, token: None }, former: None, redo: None, next: 0 };
        let row = rows.entry(key.clone()).or_insert(new);
        row.mark.epoch += 1;
        Ok(Some(ClaimedRow { former_epoch: row.mark.epoch - 1, row: row.clone() }))
    }

    fn look(&mut self, keys: &[RowKey]) -> Result<Vec<Option<RowMark>>, effect::Error> {
        let rows = &self.0.lock().unwrap().0;
        Ok(keys.iter().map(|key| rows.get(key).map(|row| row.mark.clone())).collect())
    }

    fn commit(&mut self, steps: &[Step<'_>], redos: &mut dyn RedoBuilder) -> Result<(), CommitError> {
        let (rows, offsets) = &mut *self.0.lock().unwrap();
        let is_fenced = |step: &Step<'_>| rows.get(step.key).is_none_or(|row| row.mark != *step.mark);
        let fenced: Vec<usize> = (0..steps.len()).filter(|&number| is_fenced(&steps[number])).collect();
        if !fenced.is_empty() {
            return Err(CommitError::Fenced(fenced));
        }
        for (number, step) in steps.iter().enumerate() {
            let row = rows.get_mut(step.key).unwrap();
            row.former = row.mark.token.replace(step.token);
            (row.redo, row.next) = (Some(redos.redo(number, &[])), step.next);
            offsets.extend(step.effects.iter().map(|effect| effect.offset()));
        }
        Ok(())
    }

    fn tidy(&mut self) -> Result<bool, effect::Error> {
        Ok(false)
    }
}

/// Steps until a condition is met.
#[track_caller]
fn step_until(lane: &mut Lane<Embedded>, what: &str, mut is_met: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_met() {
        assert!(Instant::now() < deadline, "stepped for {what}");
        lane.step().unwrap();
    }
}

/// A task that waits for more than ten seconds makes its instance unready, with every kind of output, also if that alone
/// reads the value. A waiting task is not looked up in the search for transactions that hold up an input.
#[test]
fn long_wait_makes_the_instance_unready() {
    let all = [0, 1, 2, 5, 6];
    for (rules, destination, expected) in [
        (BY_VALUE, TO_TOPIC, &all[..]),
        (BY_VALUE, TO_HANDLER, &all),
        (BY_VALUE, TO_SINK, &all),
        (BY_KEY, TO_HANDLER, &[0, 1, 2, 6]),
        (BY_KEY, TO_SINK, &[0, 1, 2, 6]),
    ] {
        let site = Site::new();
        let (topology, told) = avro_with(&site, rules, destination);
        for topic in [INPUT, "clean", "shop-dead"] {
            site.create(topic, 1, &[]);
        }
        site.create(&topology.changelog(INPUT), 1, &[]);
        if destination == TO_HANDLER {
            site.create(&topology.control(), 1, &[]);
        }
        send(&site, 0, WITH_A_PENDING_ONE);
        let (done, table) = (Done::default(), Table::default());
        let clock = Arc::new(Ahead(SystemClock::default(), AtomicU64::new(0)));
        let provider = done.handlers().provider(&topology).unwrap();
        let sink: Option<Arc<dyn Sink>> = (destination == TO_SINK).then(|| Arc::new(table.clone()) as _);
        let context = Arc::new(Context { provider, sink, ..context(&site, &topology, clock.clone()) });
        let health = context.health.clone();
        let mut lane = Lane::join(Arc::clone(&context), site.cluster.clone(), 0, 7, Arc::default()).unwrap();
        let unready = || health.ready().into_iter().find(|check| check.name.starts_with("task") && !check.ok);
        let is_waiting = |line: &str| line.starts_with("ratchet_awaits_schema{") && line.ends_with(" 1");
        let waits = || context.metrics.render().lines().any(is_waiting);
        step_until(&mut lane, "the task to wait", || waits() && committed(&site, 0) == 2);
        assert_eq!(unready(), None, "{destination}");
        clock.1.store(11, Ordering::SeqCst);
        step_until(&mut lane, "the instance to be unready", || unready().is_some());
        let check = unready().unwrap();
        assert!(check.detail.contains("schema"), "{check:?}");
        clock.1.store(200, Ordering::SeqCst);
        for _ in 0..50 {
            lane.step().unwrap();
        }
        assert!(!context.held_up.is_recorded(&TopicPartition::new(INPUT, 0)), "{destination}");
        told.known(2);
        step_until(&mut lane, "all to be judged", || committed(&site, 0) == 7);
        step_until(&mut lane, "the instance to be ready", || unready().is_none());
        assert!(!waits(), "{destination}");
        lane.leave().unwrap();
        match destination {
            TO_TOPIC => assert_eq!(forwarded(&site, 0), FORWARDED),
            TO_HANDLER => assert_eq!(done.sorted(), expected),
            _ => assert_eq!(table.offsets(), expected),
        }
        // With the same key, other contents are other work.
        let letters = reasons_of_letters(&site);
        assert!(letters.iter().all(|why| !why.contains("schema")), "{rules}{destination}: {letters:?}");
    }
}
