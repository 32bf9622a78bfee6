//! Goal: bad input and a bad environment each get a clear error, and harm nothing else.

use std::fs;
use std::time::Duration;

use crate::checker::{Fate, check};
use crate::cluster::{Fresh, Kafka, Stored};
use crate::hostile::{broken_records, noise, raw};
use crate::job::Job;
use crate::kafka::{Port, shared_broker};
use crate::load::{now_ms, thing, things};
use crate::operator::{Operator, Options};
use crate::until::{DEADLINE, within};

/// Exit code for wrong input of the user's; below it, for a run that failed.
const USER_ERROR: i32 = 2;
const FAILED: i32 = 1;

/// The largest value that the output topic of these tests takes.
const OUTPUT_BYTES_MAX: usize = 4000;

fn too_large(record: &Stored) -> bool {
    record.value.as_ref().is_some_and(|value| value.len() > OUTPUT_BYTES_MAX)
}

/// Older than the output takes.
fn too_old(record: &Stored) -> bool {
    record.timestamp.is_some_and(|timestamp| timestamp < now_ms() - 3_600_000)
}

#[test]
fn broken_records_are_dead_lettered_and_others_continue() {
    let job = Job::on(Kafka::shared(), "broken");
    // Kafka itself rejects timestamps more than an hour ahead, unless configured otherwise.
    job.kafka.create(&job.input, 2, &[("message.timestamp.after.max.ms", "9223372036854775807")]);
    job.kafka.create(&job.output, 2, &[]);
    let mut operator = Operator::start(&job, "a");
    for (nth, broken) in broken_records().into_iter().enumerate() {
        job.send([
            thing(0, "good", 2 * nth as i64),
            broken,
            thing(0, "good", 2 * nth as i64),
            thing(1, "other", nth as i64),
        ]);
    }
    let without_key = Fresh { key: None, ..thing(0, "without-key", 1) };
    let huge_version = raw("{\"id\":\"huge\",\"version\":9223372036854775808}");
    let huger_version = raw("{\"id\":\"huge\",\"version\":\"9223372036854775809\"}");
    let no_version = raw("{\"id\":\"good\"}");
    job.send([without_key.clone(), without_key, huger_version, huge_version, no_version.clone(), no_version]);
    job.await_drained(DEADLINE);
    let (livez, _) = operator.get("/livez");
    assert_eq!(livez, 200);
    let letters = broken_records().len();
    let counted = operator.metric("ratchet_dead_letters_total", &[]) as usize;
    operator.stop();
    let found = check(&job, &[operator.state_dir()]);
    assert_eq!(counted, letters);
    // The good ones of both partitions, the one without key, the larger version, and the two without a version.
    assert_eq!(found.count(Fate::Forwarded), 2 * letters + 4, "{found:?}");
    assert_eq!(found.dead_lettered(), letters, "{found:?}");
    assert_eq!((found.count(Fate::Stale), found.count(Fate::Duplicate)), (1, letters + 1), "{found:?}");
}

#[test]
fn records_set_aside_are_logged_with_count_and_reason() {
    const RECORDS: usize = 500;
    let job = Job::new("silent", 1);
    // As a schema registry's serializers write them.
    let framed = |id: usize| Fresh { value: Some(format!("\0\0\0\0\x07{id}").into_bytes()), ..thing(0, "framed", 1) };
    job.send([thing(0, "good", 1)].into_iter().chain((1..RECORDS).map(framed)).chain([raw("{\"version\":1}")]));
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    // While it runs: at the end would be too late.
    operator.await_line(&["set aside"], DEADLINE);
    operator.stop();
    let lines: Vec<_> =
        operator.log().into_iter().filter(|line| line["message"].to_string().contains("set aside")).collect();
    // One at once, and one on leaving, for the rest of the minute.
    assert!((1..=2).contains(&lines.len()), "{lines:#?}");
    let sum = |field: &str| lines.iter().filter_map(|line| line[field].as_u64()).sum::<u64>() as usize;
    assert_eq!((sum("records"), sum("framed")), (RECORDS, RECORDS - 1), "{lines:#?}");
    let first = lines[0].to_string();
    let topics = [format!("{}:0:1", job.input), job.dead_letter()];
    for word in
        ["value_malformed", "cannot be read as JSON", "schema registry", "value_format: avro", &topics[0], &topics[1]]
    {
        assert!(first.contains(word), "no {word:?} in {first}");
    }
    assert!(lines.iter().any(|line| line["reasons"].to_string().contains("identity_missing 1")), "{lines:#?}");
}

/// A job whose output rejects some records for good.
fn refusing(theme: &str, setting: (&str, &str), unsendable: fn(&Stored) -> bool) -> Job {
    let mut job = Job::on(Kafka::shared(), theme);
    job.rules.unsendable = unsendable;
    job.kafka.create(&job.input, 2, &[]);
    job.kafka.create(&job.output, 2, &[setting]);
    job
}

/// Sends rejected records among others, and checks that only they are dead-lettered, and are not remembered.
fn refused_records_alone_are_dead_lettered(job: &Job, refused: impl Fn(usize) -> Fresh) {
    let mut operator = Operator::start(job, "a");
    for nth in 0..5 {
        job.send(things(0, nth * 20..nth * 20 + 20, 1).chain([refused(nth)]).chain(things(
            1,
            nth * 20..nth * 20 + 20,
            1,
        )));
    }
    job.await_drained(DEADLINE);
    // Not remembered: a record with the same identity and version that the output takes is new.
    job.send((0..5).map(|nth| thing(0, &format!("refused-{nth}"), 1)));
    job.await_drained(DEADLINE);
    operator.assert_running();
    operator.stop();
    let found = check(job, &[operator.state_dir()]);
    assert_eq!(found.count(Fate::DeadLettered("unsendable")), 5, "{found:?}");
    assert_eq!(found.count(Fate::Forwarded), 205, "{found:?}");
}

#[test]
fn record_too_large_for_the_output_is_dead_lettered_alone() {
    let job = refusing("too-large", ("max.message.bytes", "6000"), too_large);
    refused_records_alone_are_dead_lettered(&job, |nth| {
        raw(format!("{{\"id\":\"refused-{nth}\",\"version\":1,\"noise\":\"{}\"}}", noise(8000)))
    });
}

#[test]
fn record_as_large_as_kafkas_default_allows_is_forwarded() {
    let job = Job::new("large", 1);
    let mut operator = Operator::start(&job, "a");
    // Above librdkafka's own default of 1,000,000 bytes, below the brokers'.
    let large = raw(format!("{{\"id\":\"large\",\"version\":1,\"noise\":\"{}\"}}", "x".repeat(1_030_000)));
    job.send(things(0, 0..5, 1).chain([large]).chain(things(0, 5..10, 1)));
    job.await_drained(DEADLINE);
    operator.stop();
    let found = check(&job, &[operator.state_dir()]);
    assert_eq!(found.count(Fate::Forwarded), 11, "{found:?}");
}

#[test]
fn timestamp_rejected_by_the_output_is_dead_lettered_alone() {
    let job = refusing("too-old", ("message.timestamp.before.max.ms", "7200000"), too_old);
    refused_records_alone_are_dead_lettered(&job, |nth| {
        thing(0, &format!("refused-{nth}"), 1).at(now_ms() - 86_400_000)
    });
}

#[test]
fn on_invalid_fail_stops_only_that_task_and_names_the_record() {
    let mut job = Job::new("on-fail", 2);
    job.topology.push("on_invalid: fail".to_owned());
    let mut operator = Operator::start(&job, "a");
    job.send(things(0, 0..10, 1).chain([raw("broken")]).chain(things(0, 10..20, 1)));
    operator.await_error(&[&format!("{}:0", job.input), "10"]);
    job.send(things(1, 0..10, 1));
    within(DEADLINE, "the other partition to continue", || (job.committed()[1] == 10).then_some(()));
    assert_eq!(job.committed()[0], 10, "all before the broken record is committed, and nothing after it");
    operator.assert_running();
    job.kafka.await_settled(&job.output);
    assert_eq!(job.output().len(), 20);
    operator.terminate();
    let status = operator.await_exit(DEADLINE);
    assert_eq!(status.code(), Some(USER_ERROR), "a restart would stop at the record again; {}", operator.tail());
}

/// An operator that cannot work ends, with these words in its log.
#[track_caller]
fn ends_with(job: &Job, words: &[&str], code: i32) {
    let mut operator = Operator::start(job, "a");
    let status = operator.await_exit(DEADLINE);
    assert_eq!(status.code(), Some(code), "{}", operator.tail());
    let said = operator.printed();
    for word in words {
        assert!(said.contains(word), "{word:?} is missing, {}", operator.tail());
    }
}

#[test]
fn missing_input_topic_is_refused() {
    let job = Job::on(Kafka::shared(), "no-input");
    job.kafka.create(&job.output, 1, &[]);
    ends_with(&job, &[&job.input, "does not exist", "create it"], FAILED);
}

#[test]
fn output_with_fewer_partitions_is_refused() {
    let job = Job::on(Kafka::shared(), "narrow");
    job.kafka.create(&job.input, 3, &[]);
    job.kafka.create(&job.output, 2, &[]);
    ends_with(&job, &[&job.output, "2 partitions", "3"], USER_ERROR);
}

#[test]
fn changelog_with_delete_policy_is_refused() {
    let job = Job::new("forgetful", 1);
    job.kafka.create(&job.changelog(), 1, &[("cleanup.policy", "compact,delete")]);
    ends_with(&job, &[&job.changelog(), "cleanup.policy", "compact"], USER_ERROR);
}

#[test]
fn changed_rules_under_the_same_name_are_refused() {
    let mut job = Job::new("other-rules", 1);
    job.send(things(0, 0..10, 1));
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    operator.stop();
    job.rules.version = None;
    ends_with(&job, &["rules", "new name"], USER_ERROR);
}

#[test]
fn misspelt_topology_is_refused_with_its_place() {
    let mut job = Job::new("misspelt", 1);
    job.topology.push("retenton: 3d".to_owned());
    ends_with(&job, &["topology.yaml", "retenton", "retention"], USER_ERROR);
}

#[test]
fn unreachable_broker_is_logged_and_waited_for() {
    let mut job = Job::new("unreachable", 1);
    let port = Port::free();
    job.properties.insert("bootstrap.servers".to_owned(), format!("127.0.0.1:{port}"));
    let mut operator = Operator::start(&job, "a");
    operator.await_line(&["WARN", &port.to_string()], DEADLINE);
    operator.assert_running();
    operator.terminate();
    operator.await_exit(Duration::from_secs(25));
}

#[test]
fn unwritable_state_folder_is_refused() {
    let job = Job::new("no-state", 1);
    let file = job.path("a-file");
    fs::write(&file, "").expect("the job's folder is writable");
    // Nothing can be created below a file, not even by root.
    let mut operator = Operator::start_in(&job, "a", &file.join("state"), &Options::default());
    let status = operator.await_exit(DEADLINE);
    assert!([Some(FAILED), Some(USER_ERROR)].contains(&status.code()), "{status}, {}", operator.tail());
    assert!(operator.printed().contains("a-file"), "{}", operator.tail());
}

#[test]
fn foreign_folder_is_not_taken_for_state() {
    let job = Job::new("foreign-state", 1);
    let folder = job.path("precious");
    fs::create_dir_all(&folder).expect("the job's folder is writable");
    fs::write(folder.join("thesis.txt"), "five years of work").expect("the job's folder is writable");
    let mut operator = Operator::start_in(&job, "a", &folder, &Options::default());
    let status = operator.await_exit(DEADLINE);
    assert!([Some(FAILED), Some(USER_ERROR)].contains(&status.code()), "{status}, {}", operator.tail());
    assert!(operator.printed().contains("precious"), "{}", operator.tail());
    let kept: Vec<_> = fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(kept, ["thesis.txt"]);
}

#[test]
fn full_disk_loses_nothing() {
    let job = Job::new("full", 1);
    let (full, records) = (job.path("full"), 60_000);
    fs::create_dir_all(&full).expect("the job's folder is writable");
    // Identities that do not compress.
    let mut random = crate::load::Random::seeded("full disk");
    let ids: Vec<String> = (0..records).map(|_| (0..6).map(|_| format!("{:016x}", random.next())).collect()).collect();
    job.send(ids.iter().map(|id| thing(0, id, 1)));
    let mut first = Operator::start(&job, "first");
    job.await_drained(DEADLINE);
    first.stop();
    // The store to rebuild is larger than this disk.
    let mount = format!("mount -t tmpfs -o size=3m none '{}'", full.display());
    let options = Options { mount: Some(mount), ..Options::default() };
    let mut cramped = Operator::start_in(&job, "cramped", &full.join("state"), &options);
    cramped.await_line(&["no space left"], DEADLINE);
    job.send(ids[..1000].iter().map(|id| thing(0, id, 1)));
    cramped.assert_running();
    cramped.kill();
    let mut roomy = Operator::start(&job, "roomy");
    job.await_drained(DEADLINE);
    roomy.stop();
    let found = check(&job, &[first.state_dir(), roomy.state_dir()]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (records, 1000), "{found:?}");
}

/// A varint as in Kafka's records.
fn varint(number: i64) -> Vec<u8> {
    let mut rest = (number << 1 ^ number >> 63) as u64;
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

/// Headers as in Kafka's records, without their count.
fn encoded(headers: &[(String, Option<Vec<u8>>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in headers {
        bytes.extend(varint(name.len() as i64));
        bytes.extend(name.as_bytes());
        bytes.extend(varint(value.as_ref().map_or(-1, |value| value.len() as i64)));
        bytes.extend(value.iter().flatten());
    }
    bytes
}

/// A partition's log on the broker's disk.
fn log_of(topic: &str) -> Vec<u8> {
    let folder = shared_broker().data().join(format!("{topic}-0"));
    fs::read(folder.join("00000000000000000000.log")).expect("the partition's first segment")
}

fn holds(log: &[u8], bytes: &[u8]) -> bool {
    log.windows(bytes.len()).any(|window| window == bytes)
}

/// librdkafka reads at most 100,000 headers of a record, and reports one with more as if it were broken.
#[test]
fn more_headers_than_librdkafka_reads_are_forwarded_unchanged() {
    let many = |count: usize| -> Vec<(String, Option<Vec<u8>>)> {
        let value = |nth| if nth % 1_000 == 0 { Some(format!("{nth}").into_bytes()) } else { None };
        (0..count).map(|nth| ("h".to_owned(), value(nth))).collect()
    };
    // The second has more than `limits.header_bytes` allows.
    let (fine, too_many) = (many(100_001), many(130_000));
    let job = Job::on(Kafka::at(&shared_broker().bootstrap()), "headers");
    job.kafka.create(&job.input, 1, &[]);
    job.kafka.create(&job.output, 1, &[]);
    let with = |id: &str, headers: &[(String, Option<Vec<u8>>)]| Fresh {
        headers: headers.to_vec(),
        ..Fresh::new(0, "k", format!("{{\"id\":\"{id}\",\"version\":1}}")).at(now_ms())
    };
    job.send([thing(0, "before", 1), with("fine", &fine), with("too-many", &too_many), thing(0, "behind", 1)]);
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    operator.stop();

    let values: Vec<String> =
        job.output().into_iter().map(|record| String::from_utf8(record.value.unwrap()).unwrap()).collect();
    assert_eq!(values.len(), 3, "{values:?}");
    assert!(values[1].contains("fine"), "{values:?}");
    let block: Vec<u8> = varint(fine.len() as i64).into_iter().chain(encoded(&fine)).collect();
    assert!(holds(&log_of(&job.input), &block), "this is not how a record holds them");
    assert!(holds(&log_of(&job.output), &block), "the headers were changed");
    assert_eq!(job.kafka.bounds(&job.dead_letter(), 0).end, 2, "the letter, and its transaction's marker");
    assert!(holds(&log_of(&job.dead_letter()), &encoded(&too_many)), "the dead letter's headers were changed");
}
