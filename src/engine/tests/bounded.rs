//! Goal: the contents of records, and topics that are created and deleted, create no lasting series of metrics; a
//! record at a limit is accepted, a record beyond it is not.

use std::collections::BTreeSet;

use super::faulty::{Faults, Faulty};
use super::*;
use crate::cluster::embedded::StoredRecord;
use crate::dedup::{Limits, Reason, Verdict};
use crate::record::HeaderBuf;

/// All label values other than names of topologies, topics or partitions.
fn known_label_values() -> BTreeSet<&'static str> {
    let label_values = ["settling", "restoring", "running", "isolated", "failed", "committed", "aborted", "unknown"];
    let kinds = ["current", "restored", env!("CARGO_PKG_VERSION")];
    let verdicts = Verdict::ALL.iter().map(|verdict| verdict.as_str());
    verdicts.chain(Reason::ALL.iter().map(|reason| reason.as_str())).chain(label_values).chain(kinds).collect()
}

/// The labels of all series, `name="value"`, except histogram bounds.
fn labels(running: &Running) -> BTreeSet<String> {
    let text = running.metrics.render();
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let labels = series.filter_map(|line| line.split_once('{')?.1.rsplit_once('}')).map(|(labels, _)| labels);
    labels
        .flat_map(|labels| labels.split(',').map(str::to_owned).collect::<Vec<_>>())
        .filter(|label| !label.starts_with("le="))
        .collect()
}

#[test]
fn contents_of_records_never_become_labels() {
    let site = Site::new();
    let count = 3_000;
    for number in 0..count {
        let mut headers = HeaderBuf::default();
        headers.push(format!("header-{number}").as_bytes(), Some(b"x"));
        let value = match number % 5 {
            0 => format!(r#"{{"id":"id-{number}","version":1,"table":"table-{number}","op":"op-{number}"}}"#),
            1 => format!(r#"{{"id":"id-{number}","version":"none-{number}"}}"#),
            2 => format!(r#"{{"no-{number}":1}}"#),
            3 => format!("broken-{number}"),
            _ => format!(r#"{{"id":"id-{}","version":1}}"#, number - number % 5),
        };
        let message = Message {
            topic: "orders",
            partition: 0,
            key: Some(value.as_bytes()),
            value: Some(value.as_bytes()),
            headers: headers.as_headers(),
            timestamp: Some(1_000 + number),
        };
        site.cluster.append("orders", 0, &[message]).unwrap();
    }
    let mut topology = topology(Input::Topics(vec!["orders".to_owned()]), "clean");
    topology.audit = Some("why".to_owned());
    let running = site.start(&topology, false);
    await_condition("all to be decided", || running.metric("ratchet_records_total") >= count as f64);
    let label_values = known_label_values();
    for label in labels(&running) {
        let (name, value) = label.split_once('=').unwrap();
        let value = value.trim_matches('"');
        let is_known = match name {
            "topology" => value == "shop",
            "topic" => value == "orders",
            "partition" => value == "0",
            "verdict" | "reason" | "state" | "result" | "kind" | "version" => label_values.contains(value),
            _ => false,
        };
        assert!(is_known, "a series is labelled {label}");
    }
    running.end().unwrap();
}

#[test]
fn deleted_topics_leave_no_series() {
    let site = Site::new();
    site.send("shop.stays", "x", &[1]);
    let running = site.start(&topology(pattern(r"^shop\.", &[]), "clean.{topic}"), false);
    site.await_values("clean.shop.stays", 1);
    let topics: Vec<String> = (0..8).map(|number| format!("shop.{number}")).collect();
    for topic in &topics {
        site.send(topic, "x", &[1, 1, 2]);
    }
    for topic in &topics {
        site.await_values(&format!("clean.{topic}"), 2);
    }
    let shown =
        || topics.iter().filter(|topic| running.metrics.render().contains(&format!("topic=\"{topic}\""))).count();
    await_condition("all to be counted", || shown() == topics.len());
    for topic in &topics {
        site.cluster.delete_topic(topic).unwrap();
    }
    await_condition("their series to be gone", || shown() == 0);
    assert!(running.metrics.render().contains("topic=\"shop.stays\""));
    running.end().unwrap();
}

/// For each limit, its name and a record that exceeds it by `over` (or, if negative, remains below it).
fn around_limits(limits: &Limits, over: isize) -> Vec<(&'static str, StoredRecord)> {
    let size = |limit: usize| limit.saturating_add_signed(over);
    let json = |id: &str, filler: usize| {
        let empty = format!(r#"{{"id":"{id}","version":1,"x":""}}"#).len();
        format!(r#"{{"id":"{id}","version":1,"x":"{}"}}"#, "x".repeat(filler.saturating_sub(empty))).into_bytes()
    };
    let record = |key: Option<Vec<u8>>, value: Vec<u8>, header: Option<usize>| {
        let mut headers = HeaderBuf::default();
        // A header consists of its name, its value and four bytes for the length of each.
        header.into_iter().for_each(|bytes| headers.push(b"h", Some(&vec![b'h'; bytes - 9])));
        StoredRecord { offset: 0, timestamp: Some(1_000), key, value: Some(value), headers }
    };
    let deep = size(limits.json_depth_max) - 1;
    let nested = format!(r#"{{"id":"depth","version":1,"x":{}{}}}"#, "[".repeat(deep), "]".repeat(deep));
    // A text is preceded by a byte for its kind and one for its length, or three from 16 KiB on.
    let before_text = if limits.identity_bytes_max > 16 << 10 { 4 } else { 2 };
    let id = "i".repeat(size(limits.identity_bytes_max) - before_text);
    vec![
        ("record", record(None, json("record", size(limits.record_bytes_max)), None)),
        ("key", record(Some(vec![b'k'; size(limits.key_bytes_max)]), json("key", 0), None)),
        ("headers", record(None, json("headers", 0), Some(size(limits.header_bytes_max)))),
        ("depth", record(None, nested.into_bytes(), None)),
        ("identity", record(None, json(&id, 0), None)),
        (
            "digits",
            record(
                None,
                format!(r#"{{"id":"digits","version":{}}}"#, "9".repeat(size(limits.version_digits_max))).into_bytes(),
                None,
            ),
        ),
    ]
}

fn send_all(site: &Site, records: &[(&str, StoredRecord)]) {
    for (_, record) in records {
        let message = Message {
            topic: "orders",
            partition: 0,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: record.headers.as_headers(),
            timestamp: record.timestamp,
        };
        site.cluster.append("orders", 0, &[message]).unwrap();
    }
}

/// Sends records at these limits and just beyond. Returns how many were forwarded, and the dead letters of the others.
fn forwarded_and_refused(limits: Limits) -> (usize, Vec<String>) {
    let site = Site::new();
    let roomy = [("max.message.bytes", (32 << 20).to_string())];
    for topic in ["orders", "clean", "shop-dead"] {
        site.create(topic, 1, &roomy);
    }
    let mut topology = topology(Input::Topics(vec!["orders".to_owned()]), "clean");
    let mut rules = (*topology.rules).clone();
    rules.limits = limits;
    topology.rules = Arc::new(rules);
    send_all(&site, &around_limits(&limits, 0));
    site.drain(&topology).unwrap();
    let forwarded = site.cluster.read_all("clean", 0).unwrap().len();
    send_all(&site, &around_limits(&limits, 1));
    site.drain(&topology).unwrap();
    assert_eq!(site.cluster.read_all("clean", 0).unwrap().len(), forwarded, "no record beyond a limit is forwarded");
    (forwarded, letters(&site))
}

/// The reasons and messages of the dead letters.
fn letters(site: &Site) -> Vec<String> {
    let reason_and_message = |record: StoredRecord| {
        let header = |name: &[u8]| {
            let header = record.headers.as_headers().last(name).and_then(|header| header.value).unwrap();
            String::from_utf8_lossy(header).into_owned()
        };
        format!("{}: {}", header(b"__ratchet.errors.reason"), header(b"__ratchet.errors.message"))
    };
    site.cluster.read_all("shop-dead", 0).unwrap().into_iter().map(reason_and_message).collect()
}

#[test]
fn dead_letter_includes_the_presets_advice_on_its_version() {
    let site = Site::new();
    for topic in ["orders", "clean", "shop-dead"] {
        site.create(topic, 1, &[]);
    }
    let mut topology = topology(Input::Topics(vec!["orders".to_owned()]), "clean");
    topology.preset = Some("debezium-mariadb@2".to_owned());
    let mut rules = (*topology.rules).clone();
    rules.version.as_mut().unwrap().parts[0].min = Some(4);
    topology.rules = Arc::new(rules);
    site.send("orders", "a", &[5, 3, 4]);
    site.drain(&topology).unwrap();
    assert_eq!(site.cluster.read_all("clean", 0).unwrap().len(), 1);
    let letters = letters(&site);
    let [letter] = letters.as_slice() else { panic!("{letters:?}") };
    assert!(
        letter.starts_with("version_malformed: `value.version`, the version, is less than the minimum of 4"),
        "{letter}"
    );
    assert!(letter.contains("set `binlog_legacy_event_pos=ON`"), "{letter}");
}

#[test]
fn records_beyond_a_limit_become_dead_letters() {
    let small = Limits {
        record_bytes_max: 10_000,
        key_bytes_max: 500,
        header_bytes_max: 600,
        json_depth_max: 7,
        identity_bytes_max: 100,
        version_digits_max: 20,
    };
    for limits in [small, Limits::default()] {
        let (forwarded, letters) = forwarded_and_refused(limits);
        assert_eq!(forwarded, 6, "{letters:?}");
        let of = |bytes: usize| format!("{} bytes, more than the limit of {bytes}", bytes + 1);
        let expected = [
            format!("record_too_large: the record takes {}", of(limits.record_bytes_max)),
            format!("record_too_large: the key takes {}", of(limits.key_bytes_max)),
            format!("record_too_large: the headers take {}", of(limits.header_bytes_max)),
            "value_malformed: the value cannot be read as JSON: nested too deep".to_owned(),
            format!(
                "identity_too_long: the identity up to `value.id` takes more bytes than the limit of {}",
                limits.identity_bytes_max
            ),
            format!("version_malformed: `value.version`, the version, has {} digits", limits.version_digits_max + 1),
        ];
        assert_eq!(letters.len(), expected.len(), "{letters:?}");
        for (letter, expected) in letters.iter().zip(&expected) {
            assert!(letter.starts_with(expected.as_str()), "{letter}, not {expected}");
        }
    }
}

/// How many transactions an instance with little memory needs for records of the same sent size, with this many headers
/// each; by a task that shares transactions, or by one isolated after an output failure.
fn transactions(header_count: usize, is_alone: bool) -> usize {
    const HEADERS_BYTES: usize = 90_000;
    let site = Site::new();
    let mut headers = HeaderBuf::default();
    let value = vec![b'h'; HEADERS_BYTES / header_count - 9];
    (0..header_count).for_each(|_| headers.push(b"h", Some(&value)));
    for number in 0..100 {
        let value = format!(r#"{{"id":"{number}","version":1}}"#);
        let message = Message {
            topic: "orders",
            partition: 0,
            key: None,
            value: Some(value.as_bytes()),
            headers: headers.as_headers(),
            timestamp: Some(1_000),
        };
        site.cluster.append("orders", 0, &[message]).unwrap();
    }
    let topology = topology(Input::Topics(vec!["orders".to_owned()]), "clean");
    let options = Options {
        config: site.config(),
        topologies: vec![topology.clone()],
        handlers: Default::default(),
        until_drained: true,
        stop: Arc::new(AtomicBool::new(false)),
        metrics: Metrics::new(),
        health: Health::new(),
    };
    let faults = Faults { failing_output: is_alone.then_some("clean"), ..Faults::default() };
    run_on(&Faulty { inner: site.cluster.clone(), faults: Arc::new(faults) }, options).unwrap();
    assert_eq!(site.cluster.read_all("clean", 0).unwrap().len(), 100);
    let changelog = site.cluster.read_all(&topology.changelog("orders"), 0).unwrap();
    changelog.iter().filter(|record| record.key.as_deref() == Some(crate::format::POSITION_KEY)).count()
}

#[test]
fn shared_transaction_ends_before_headers_fill_the_memory() {
    let (few, many) = (transactions(10, false), transactions(10_000, false));
    assert!(many >= 3 * few, "{many} transactions, {few} where there are few headers");
}

#[test]
fn isolated_transaction_ends_before_headers_fill_the_memory() {
    let (few, many) = (transactions(10, true), transactions(10_000, true));
    assert!(many >= 3 * few, "{many} transactions, {few} where there are few headers");
}
