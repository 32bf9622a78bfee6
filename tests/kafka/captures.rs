//! Goal: `ratchet capture` writes what a topic holds, byte for byte and no more, into a file that `infer`, `replay` and
//! `test` read; and `ratchet replay --into` puts it back.
//!
//! What is captured is read here by rules of the tests' own, and compared with what their own reader sees.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use crate::built;
use crate::cluster::{Fresh, Kafka, Stored};
use crate::job::Job;
use crate::kafka::{self, Port};
use crate::load::{now_ms, thing, things};
use crate::until::DEADLINE;

/// What a command has printed, and how it has ended.
struct Ran {
    status: ExitStatus,
    out: String,
    said: String,
}

/// Without the whitespace and bars that wrap lines for people, even within a name.
fn unwrapped(said: &str) -> String {
    said.chars().filter(|c| !c.is_whitespace() && *c != '│').collect()
}

impl Ran {
    #[track_caller]
    fn ended(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{}: {}", self.status, self.said);
        self
    }

    #[track_caller]
    fn said(self, words: &[&str]) -> Self {
        for word in words {
            assert!(unwrapped(&self.said).contains(&unwrapped(word)), "no {word:?} in {}", self.said);
        }
        self
    }
}

/// The program with these words, split at spaces, in the job's folder.
fn command(job: &Job, words: &str) -> Command {
    let mut command = Command::new(built::ratchet());
    command.current_dir(job.path("")).args(words.split(' '));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RATCHET_")) {
        command.env_remove(name);
    }
    command
}

fn run(job: &Job, words: &str) -> Ran {
    let output = command(job, words).stdin(Stdio::null()).output().expect("the binary is there");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ran { status: output.status, out: text(output.stdout), said: text(output.stderr) }
}

/// Captures a topic with these options, into standard output.
#[track_caller]
fn captured(job: &Job, topic: &str, options: &str) -> Vec<Line> {
    job.write_config("capture", &job.path("state"));
    let ran = run(job, format!("capture {topic} --config capture.config.yaml {options}").trim()).ended(0);
    ran.out.lines().map(line).collect()
}

/// A captured record: its partition, the type of its timestamp, and the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    partition: i64,
    kind: String,
    stored: Stored,
}

/// Reads a line by rules of its own.
fn line(text: &str) -> Line {
    let read: Value = serde_json::from_str(text).expect("a line is JSON");
    assert_eq!(read["capture"], 1, "{text}");
    let bytes = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone().into_bytes()),
        other => Some(BASE64_STANDARD.decode(other["base64"].as_str().expect("base64")).expect("base64")),
    };
    let headers = read["headers"].as_array().expect("a list").chunks(2);
    Line {
        partition: read["partition"].as_i64().expect("a number"),
        kind: read["tstype"].as_str().expect("a text").to_owned(),
        stored: Stored {
            offset: read["offset"].as_i64().expect("a number"),
            timestamp: read["ts"].as_i64(),
            key: bytes(&read["key"]),
            value: bytes(&read["payload"]),
            headers: headers
                .map(|pair| (String::from_utf8(bytes(&pair[0]).unwrap()).expect("a name"), bytes(&pair[1])))
                .collect(),
        },
    }
}

/// By partition, each in its order.
fn sorted(lines: &[Line]) -> BTreeMap<i32, Vec<Stored>> {
    let mut sorted: BTreeMap<i32, Vec<Stored>> = BTreeMap::new();
    for line in lines {
        sorted.entry(line.partition as i32).or_default().push(line.stored.clone());
    }
    sorted
}

fn without_empty(mut read: BTreeMap<i32, Vec<Stored>>) -> BTreeMap<i32, Vec<Stored>> {
    read.retain(|_, records| !records.is_empty());
    read
}

/// Records of all kinds, for partition 0.
fn all_kinds() -> Vec<Fresh> {
    let at = now_ms() - 5_000;
    let bare = || Fresh { timestamp: Some(at), ..Fresh::default() };
    let mut headers =
        thing(0, "headers", 1).at(at + 1).header("trace", b"1").header("trace", b"").header("bin", b"\xff\0");
    headers.headers.push(("none".to_owned(), None));
    vec![
        thing(0, "a", 1).at(at),
        Fresh { value: Some(vec![0, 0, 0, 0, 7, 0xff, 0xfe]), key: Some(vec![0x80]), ..bare() },
        Fresh { value: Some(b"no key".to_vec()), ..bare() },
        Fresh { key: Some(b"tombstone".to_vec()), ..bare() },
        Fresh { key: Some(Vec::new()), value: Some(Vec::new()), ..bare() },
        Fresh { value: Some("\u{0}\u{7f}\"\\\n\r\u{2028}ü🦀".as_bytes().to_vec()), ..bare() },
        headers,
        bare(),
    ]
}

#[test]
fn every_record_is_captured_as_it_is_and_nothing_of_an_aborted_transaction() {
    let job = Job::on(Kafka::shared(), "capture-all");
    job.kafka.create(&job.input, 4, &[]);
    job.send(all_kinds());
    let committed = job.kafka.transaction(&format!("{}-committed", job.name), DEADLINE);
    committed.send(&job.input, things(1, 0..3, 1));
    committed.commit();
    // Partition 1 ends with what was aborted and its marker, partition 3 has nothing else, and 2 has nothing at all.
    let aborted = job.kafka.transaction(&format!("{}-aborted", job.name), DEADLINE);
    aborted.send(&job.input, things(1, 3..5, 1).chain(things(3, 0..2, 1)));
    aborted.abort();
    job.kafka.await_settled(&job.input);
    let lines = captured(&job, &job.input, "");
    assert!(lines.iter().all(|line| line.kind == "create"), "{lines:?}");
    assert_eq!(sorted(&lines), without_empty(job.kafka.read(&job.input)));
    assert_eq!(lines.len(), all_kinds().len() + 3);
    let uncommitted = captured(&job, &job.input, "--uncommitted");
    assert_eq!(uncommitted.len(), lines.len() + 4);
    assert!(lines.iter().all(|line| uncommitted.contains(line)));
}

#[test]
fn places_partitions_limits_and_keys_choose_the_records() {
    let job = Job::on(Kafka::shared(), "capture-some");
    job.kafka.create(&job.input, 2, &[]);
    let (start, apart) = (now_ms() - 4 * 3_600_000, 600_000);
    // Ten minutes apart, in turn in either partition: 10 each.
    let nth = |nth: i64| {
        let key = if nth == 7 { vec![0xff, 0] } else { format!("k{}", nth % 3).into_bytes() };
        let record = thing((nth % 2) as i32, &format!("id-{nth}"), 1).at(start + nth * apart);
        Fresh { key: Some(key), ..record }
    };
    job.send((0..20).map(nth));
    let chosen = |options: &str| {
        let mut ids: Vec<i64> = captured(&job, &job.input, options)
            .iter()
            .map(|line| {
                let value: Value = serde_json::from_slice(line.stored.value.as_ref().unwrap()).unwrap();
                value["id"].as_str().unwrap().strip_prefix("id-").unwrap().parse().unwrap()
            })
            .collect();
        ids.sort_unstable();
        ids
    };
    let all: Vec<i64> = (0..20).collect();
    let those = |wanted: &dyn Fn(i64) -> bool| all.iter().copied().filter(|n| wanted(*n)).collect::<Vec<_>>();
    assert_eq!(chosen("--from earliest --to latest"), all);
    assert_eq!(chosen("--from latest"), Vec::<i64>::new());
    assert_eq!(chosen("--from 3"), those(&|n| n >= 6));
    assert_eq!(chosen("--to 3"), those(&|n| n < 6));
    assert_eq!(chosen("--from 99"), Vec::<i64>::new());
    assert_eq!(chosen("--from -2 --partition 1"), [17, 19]);
    assert_eq!(chosen("--partition 0 --partition 0"), those(&|n| n % 2 == 0));
    let time = |n: i64| jiff::Timestamp::from_millisecond(start + n * apart).unwrap().to_string();
    assert_eq!(chosen(&format!("--from {} --to {}", time(5), time(9))), [5, 6, 7, 8]);
    assert_eq!(chosen(&format!("--from {}", time(30))), Vec::<i64>::new());
    assert_eq!(chosen(&format!("--to {}", time(30))), all);
    // The first is from four hours ago, and some seconds.
    assert_eq!(chosen("--from=-3h5m"), those(&|n| n >= 6));
    assert_eq!(chosen("--limit 7").len(), 7);
    assert_eq!(chosen("--key k1"), those(&|n| n % 3 == 1 && n != 7));
    assert_eq!(chosen("--key k1 --limit 2").len(), 2);
    assert_eq!(chosen("--key-base64 /wA="), [7]);
    assert_eq!(chosen("--key k"), Vec::<i64>::new());
}

#[test]
fn timestamps_of_brokers_are_told_apart() {
    let job = Job::on(Kafka::shared(), "capture-stamps");
    job.kafka.create(&job.input, 1, &[("message.timestamp.type", "LogAppendTime")]);
    job.send([thing(0, "a", 1).at(1_000)]);
    let [line] = &captured(&job, &job.input, "")[..] else { panic!("one record") };
    assert_eq!((line.kind.as_str(), line.stored.timestamp), ("logappend", job.kafka.read(&job.input)[&0][0].timestamp));
}

#[test]
fn open_transaction_is_not_waited_for() {
    let job = Job::on(Kafka::shared(), "capture-open");
    job.kafka.create(&job.input, 1, &[]);
    job.send(things(0, 0..5, 1));
    let open = job.kafka.transaction(&format!("{}-open", job.name), DEADLINE);
    open.send(&job.input, things(0, 5..8, 1));
    job.send(things(0, 8..10, 1));
    let ran = captured_to(&job, "").ended(0).said(&["5 records", "transactions were open", ":0 from 5 to 10"]);
    assert_eq!(ran.out, "");
    assert_eq!(captured(&job, &job.input, "--uncommitted").len(), 10);
    open.abort();
}

/// Captures the input into `captured.jsonl`.
fn captured_to(job: &Job, options: &str) -> Ran {
    job.write_config("capture", &job.path("state"));
    let _ = fs::remove_file(job.path("captured.jsonl"));
    let words = format!("capture {} --config capture.config.yaml --out captured.jsonl {options}", job.input);
    run(job, words.trim())
}

#[test]
fn capture_is_read_by_infer_replay_and_test() {
    let job = Job::on(Kafka::shared(), "capture-read");
    job.kafka.create(&job.input, 2, &[]);
    job.send((0..40).flat_map(|n| [thing(n % 2, &format!("id-{}", n % 10), i64::from(n)), thing(n % 2, "twice", 1)]));
    job.send([Fresh { value: Some(vec![0xff]), ..thing(0, "x", 1) }]);
    captured_to(&job, "").ended(0).said(&["captured.jsonl: 81 records of", &job.input]);
    let packed = run(&job, &format!("capture {} --config capture.config.yaml --out packed.zst", job.input)).ended(0);
    packed.said(&["81 records"]);
    let topology = job.write_topology();
    let topology = topology.file_name().unwrap().to_str().unwrap();
    for file in ["captured.jsonl", "packed.zst"] {
        let proposed = run(&job, &format!("infer {file}")).ended(0);
        for words in ["value.id", "value.version", job.input.as_str(), "CAPTURE --summary"] {
            assert!(proposed.out.contains(words), "{words}: {}", proposed.out);
        }
        let replayed = run(&job, &format!("replay {topology} {file} --summary")).ended(0);
        // Each id comes with versions that rise, in one partition; and "twice" once in either.
        let replayed = replayed.said(&["records 81", "forwarded 42", "duplicate 38", "invalid 1"]);
        assert_eq!(replayed.out.lines().count(), 42);
        let explained = run(&job, &format!("replay {topology} {file} --explain")).ended(0);
        assert!(
            explained.out.contains(&format!(r#""topic":"{}","partition":1,"offset":39"#, job.input)),
            "{}",
            explained.out
        );
    }
    let of_one = format!("capture {} --config capture.config.yaml --out one.jsonl --key id-3", job.input);
    run(&job, &of_one).ended(0).said(&["one.jsonl: 4 records"]);
    let case = "tests:\n  - name: a capture\n    given: {file: one.jsonl}\n    \
                expect: [forwarded, forwarded, forwarded, forwarded]\n    \
                entries: [{identity: [id-3], version: 33}]\n";
    fs::write(job.path("tested.yaml"), fs::read_to_string(job.path(topology)).unwrap() + case).unwrap();
    let tested = run(&job, "test tested.yaml").ended(0);
    assert!(tested.out.contains("a capture"), "{}", tested.out);
}

/// The records of a topic without their offsets, which differ where there are markers between them.
fn contents(kafka: &Kafka, topic: &str) -> BTreeMap<i32, Vec<Stored>> {
    let mut read = kafka.read(topic);
    read.values_mut().flatten().for_each(|stored| stored.offset = 0);
    read
}

#[test]
fn capture_is_put_back_as_it_was() {
    let job = Job::on(Kafka::shared(), "capture-back");
    job.kafka.create(&job.input, 3, &[]);
    job.kafka.create(&job.output, 3, &[]);
    job.send(all_kinds().into_iter().chain(things(2, 0..500, 1)));
    captured_to(&job, "").ended(0);
    let put = format!("replay --into {} captured.jsonl --config capture.config.yaml", job.output);
    let ran = run(&job, &put).ended(0).said(&[&format!("{}: 508 records were written", job.output)]);
    assert_eq!(ran.out, "");
    assert_eq!(contents(&job.kafka, &job.output), contents(&job.kafka, &job.input));
    // Packed, and from standard input.
    let piped = job.path("again.jsonl");
    fs::copy(job.path("captured.jsonl"), &piped).unwrap();
    let words = format!("replay --into {} --config capture.config.yaml", job.output);
    let status = command(&job, &words).stdin(File::open(piped).unwrap()).status().unwrap();
    assert_eq!(status.code(), Some(0));
    let twice: usize = job.kafka.read(&job.output).values().map(Vec::len).sum();
    assert_eq!(twice, 2 * 508);
}

#[test]
fn survivors_alone_are_put_into_a_topic_by_a_topology() {
    let job = Job::new("capture-survivors", 2);
    job.send((0..10).flat_map(|n| [thing(n % 2, "a", i64::from(n)), thing(n % 2, "a", i64::from(n))]));
    captured_to(&job, "").ended(0);
    let topology = job.write_topology();
    let topology = topology.file_name().unwrap().to_str().unwrap();
    let words =
        format!("replay {topology} captured.jsonl --into {} --config capture.config.yaml --summary", job.output);
    run(&job, &words).ended(0).said(&["10 records were written", "forwarded 10", "duplicate 10"]);
    assert_eq!(job.output().len(), 10);
}

#[test]
fn nothing_is_put_where_it_does_not_belong() {
    let job = Job::on(Kafka::shared(), "capture-refused");
    job.kafka.create(&job.input, 3, &[]);
    job.kafka.create(&job.output, 2, &[]);
    job.send(things(0, 0..5, 1).chain(things(2, 0..5, 1)));
    captured_to(&job, "").ended(0);
    let into = |topic: &str, more: &str| {
        run(&job, format!("replay --into {topic} captured.jsonl --config capture.config.yaml {more}").trim())
    };
    into(&job.input, "").ended(2).said(&["comes from", "itself", "--force"]);
    into(&job.output, "").ended(2).said(&["is of partition 2", "has 2 partitions", "--repartition"]);
    into(&format!("{}.nowhere", job.output), "").ended(2).said(&["does not exist", "create it first"]);
    assert_eq!((count(&job, &job.input), count(&job, &job.output)), (10, 0), "nothing was written");
    into(&job.output, "--repartition").ended(0).said(&["10 records were written"]);
    into(&job.input, "--force").ended(0).said(&["10 records were written"]);
    assert_eq!((count(&job, &job.input), count(&job, &job.output)), (20, 10));
    // Equal keys went to one partition.
    let by_key: Vec<_> = job.kafka.read(&job.output).into_values().collect();
    assert!(by_key[0].iter().all(|one| by_key[1].iter().all(|other| one.key != other.key)), "{by_key:?}");
    fs::write(job.path("values.jsonl"), "{\"id\":1}\n").unwrap();
    let words = format!("replay --into {} values.jsonl --config capture.config.yaml", job.output);
    run(&job, &words).ended(2).said(&["values.jsonl:1", "the line is a value", "whole records"]);
    let topology = job.write_topology();
    let topology = topology.file_name().unwrap().to_str().unwrap();
    let words = format!("replay {topology} --into {} --config capture.config.yaml", job.output);
    let values = File::open(job.path("values.jsonl")).unwrap();
    assert_eq!(command(&job, &words).stdin(values).status().unwrap().code(), Some(2));
    assert_eq!(count(&job, &job.output), 10);
}

fn count(job: &Job, topic: &str) -> usize {
    job.kafka.read(topic).values().map(Vec::len).sum()
}

#[test]
fn record_that_the_topic_refuses_ends_the_replay_with_its_number() {
    let job = Job::on(Kafka::shared(), "capture-too-large");
    job.kafka.create(&job.input, 1, &[]);
    job.kafka.create(&job.output, 1, &[("max.message.bytes", "2000")]);
    let noise = Fresh { value: Some(crate::hostile::noise(10_000).into()), ..thing(0, "large", 1) };
    job.send([thing(0, "a", 1), noise]);
    captured_to(&job, "").ended(0);
    let words = format!("replay --into {} captured.jsonl --config capture.config.yaml", job.output);
    run(&job, &words).ended(2).said(&["writing to", "record 2", "at least 1 record was written"]);
}

#[test]
fn what_is_missing_is_named() {
    let mut job = Job::on(Kafka::shared(), "capture-missing");
    captured_to(&job, "").ended(2).said(&["does not exist", &job.input]);
    job.kafka.create(&job.input, 2, &[]);
    captured_to(&job, "--partition 2").ended(2).said(&["has 2 partitions", "no partition 2", "0 to 1"]);
    captured_to(&job, "--from soon").ended(2).said(&["2026-11-30T08:00:00Z", "`earliest`"]);
    assert!(!job.path("captured.jsonl").exists() && !job.path("captured.jsonl.partial").exists());
    fs::write(job.path("there.jsonl"), "precious").unwrap();
    let words = format!("capture {} --config capture.config.yaml --out there.jsonl", job.input);
    run(&job, &words).ended(2).said(&["there.jsonl exists"]);
    assert_eq!(fs::read_to_string(job.path("there.jsonl")).unwrap(), "precious");
    run(&job, &format!("capture {} --config capture.config.yaml --out no/where.jsonl", job.input))
        .ended(2)
        .said(&["cannot write no/where.jsonl.partial"]);
    run(&job, &format!("capture {}", job.input)).ended(2).said(&["kafka.bootstrap.servers"]);
    job.properties.insert("bootstrap.servers".to_owned(), format!("127.0.0.1:{}", Port::free()));
    captured_to(&job, "").ended(1).said(&["does not answer", "bootstrap.servers"]);
}

#[test]
fn full_disk_leaves_a_file_that_says_it_is_not_complete() {
    let job = Job::on(Kafka::shared(), "capture-full");
    job.kafka.create(&job.input, 1, &[]);
    job.send(things(0, 0..5, 1));
    job.write_config("capture", &job.path("state"));
    let words = format!("capture {} --config capture.config.yaml --out /dev/full", job.input);
    run(&job, &words).ended(1).said(&["cannot write /dev/full", "not complete"]);
}

/// A pipe with a name, which the capture has to wait for.
fn pipe(job: &Job) -> PathBuf {
    let path = job.path("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lines_of(pipe: &Path, mut signal: impl FnMut()) -> usize {
    let mut reader = BufReader::new(File::open(pipe).unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    line(first.trim_end());
    signal();
    // It has the time to notice; until it is read from, it cannot go on.
    std::thread::sleep(Duration::from_millis(300));
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with('\n'), "the last line is whole");
    rest.lines().map(line).count() + 1
}

#[test]
fn interrupted_capture_ends_well_with_whole_lines() {
    const RECORDS: usize = 40_000;
    for (number, signal) in [libc::SIGINT, libc::SIGTERM].into_iter().enumerate() {
        let job = Job::on(Kafka::shared(), &format!("capture-signal-{number}"));
        job.kafka.create(&job.input, 1, &[]);
        job.send(things(0, 0..RECORDS, 1));
        job.write_config("capture", &job.path("state"));
        let pipe = pipe(&job);
        let words = format!("capture {} --config capture.config.yaml --out pipe", job.input);
        let child = command(&job, &words).stderr(Stdio::piped()).spawn().expect("the binary is there");
        let mut capture = Started(child);
        let read = lines_of(&pipe, || kafka::signal(&capture.0, signal));
        let status = capture.0.wait().unwrap();
        let mut said = String::new();
        capture.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(read < RECORDS, "the signal came too late");
        let words = [format!("pipe: {read} records of"), format!("not read are {}:0 from {read} on", job.input)];
        words.iter().for_each(|word| assert!(said.contains(word), "{word}: {said}"));
    }
}

#[test]
fn reader_that_goes_away_ends_the_capture_quietly() {
    let job = Job::on(Kafka::shared(), "capture-head");
    job.kafka.create(&job.input, 1, &[]);
    job.send(things(0, 0..40_000, 1));
    job.write_config("capture", &job.path("state"));
    let mut capture = command(&job, &format!("capture {} --config capture.config.yaml", job.input));
    let child = capture.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary is there");
    let mut capture = Started(child);
    let mut reader = BufReader::new(capture.0.stdout.take().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    drop(reader);
    let status = capture.0.wait().unwrap();
    let mut said = String::new();
    capture.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
}
