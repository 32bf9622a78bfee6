//! Goal: ratchet reads what Apicurio's serializers write, of both versions and however they name a schema, and passes
//! records on byte for byte.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::payments::{FORWARDED, job};
use crate::cluster::{Fresh, Stored};
use crate::job::Job;
use crate::operator::Operator;
use crate::schema_registry::{Ids, Server};
use crate::until::DEADLINE;

const WRITTEN: [(&str, &str); 2] =
    [("2", include_str!("written/apicurio/2.jsonl")), ("3", include_str!("written/apicurio/3.jsonl"))];
/// The ways whose records are invalid, each with a part of the reason.
const UNREAD: [(&str, &str); 2] = [
    ("3 protobuf nothing", "has 2 messages, and the record names none"),
    ("3 avro as JSON", "is not a record of schema"),
];

/// The records forwarded of those in Avro's JSON encoding, which is read without aliases: a record whose schema renames the
/// version has none.
const FORWARDED_AS_JSON: [usize; 5] = [0, 1, 3, 4, 6];

/// The payments as one serializer writes them with certain settings.
struct Way {
    /// Version, format and settings.
    name: String,
    /// The kind of the id: `content` or `global`.
    of: String,
    /// The number of the id's bytes, or the header that holds it.
    place: String,
    /// The records, each with the index of its schema.
    records: Vec<(usize, Fresh)>,
}

fn text(line: &Value, field: &str) -> String {
    line[field].as_str().unwrap_or_else(|| panic!("{line} has no {field}")).to_owned()
}

fn bytes(text: &Value) -> Vec<u8> {
    STANDARD.decode(text.as_str().unwrap()).unwrap()
}

/// Registers a schema with its references.
fn register(registry: &Server, subject: &str, line: &Value) {
    let references = line["references"].as_array().map(Vec::as_slice).unwrap_or_default();
    // A reference may be listed twice.
    let names: BTreeSet<&str> = references.iter().map(|name| name.as_str().unwrap()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    registry.register_with(subject, &text(line, "type"), &text(line, "text"), &names);
}

/// All ways, and the ids of their schemas by version and format.
fn ways(registry: &Server, topic: &str) -> (Vec<Way>, BTreeMap<String, [Ids; 2]>) {
    let mut ways: Vec<Way> = Vec::new();
    let mut ids = BTreeMap::new();
    for (version, lines) in WRITTEN {
        for line in lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            if let Some(name) = line["reference"].as_str() {
                register(registry, name, &line);
                continue;
            }
            let of = format!("{version} {}", text(&line, "format"));
            let subject = format!("{topic}-{}-value", of.replace(' ', "-"));
            if line["value"].is_null() {
                register(registry, &subject, &line);
                continue;
            }
            ids.entry(of.clone()).or_insert_with(|| [1, 2].map(|version| registry.ids(&subject, version)));
            let name = format!("{of} {}", text(&line, "way"));
            if ways.last().is_none_or(|way| way.name != name) {
                ways.push(Way {
                    name: name.clone(),
                    of: text(&line, "of"),
                    place: text(&line, "place"),
                    records: vec![],
                });
            }
            let records = &mut ways.last_mut().unwrap().records;
            let mut record = Fresh::new(0, &format!("{name}/{}", records.len()), bytes(&line["value"]));
            for header in line["headers"].as_array().map(Vec::as_slice).unwrap_or_default() {
                record = record.header(header[0].as_str().unwrap(), &bytes(&header[1]));
            }
            records.push((line["schema"].as_u64().unwrap() as usize - 1, record));
        }
    }
    (ways, ids)
}

impl Way {
    /// The settings of the registry that this way needs besides the address.
    fn settings(&self) -> &'static str {
        match (self.place.as_str(), self.of.as_str()) {
            ("8", "global") => ", id_bytes: 8, ids_of: versions",
            ("8", _) => ", id_bytes: 8",
            ("4", "global") => ", ids_of: versions",
            _ => "",
        }
    }

    /// The records in this partition, with the ids of their schemas replaced by these.
    fn records(self, partition: usize, ids: [Ids; 2]) -> Vec<Fresh> {
        let partition = i32::try_from(partition).unwrap();
        let of = |ids: Ids| if self.of == "global" { ids.global } else { ids.content };
        let placed = |(schema, mut record): (usize, Fresh)| {
            let id = of(ids[schema]).to_be_bytes();
            match self.place.parse::<usize>() {
                Ok(count) => record.value.as_mut().unwrap()[1..=count].copy_from_slice(&id[8 - count..]),
                Err(_) => {
                    let header = record.headers.iter_mut().find(|(name, _)| *name == self.place);
                    header.expect("it has the header").1 = Some(id.to_vec());
                }
            }
            Fresh { partition, ..record }
        };
        self.records.into_iter().map(placed).collect()
    }
}

/// The numbers in the records' keys, by way.
fn by_way<'r>(records: impl IntoIterator<Item = &'r Stored>) -> BTreeMap<String, Vec<usize>> {
    let mut by_way: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for record in records {
        let key = String::from_utf8(record.key.clone().unwrap()).unwrap();
        let (way, number) = key.split_once('/').unwrap();
        by_way.entry(way.to_owned()).or_default().push(number.parse().unwrap());
    }
    by_way.values_mut().for_each(|numbers| numbers.sort_unstable());
    by_way
}

/// Each way has a partition of its own. One job reads all ways that need the same settings.
#[test]
fn what_apicurios_serializers_write_is_read() {
    let registry = Server::shared();
    let (ways, ids) = ways(registry, "by-apicurio");
    assert_eq!(ways.len(), 19 + 27, "all that Write.java has written");
    let mut by_settings: BTreeMap<&str, Vec<Way>> = BTreeMap::new();
    ways.into_iter().for_each(|way| by_settings.entry(way.settings()).or_default().push(way));
    for (settings, ways) in by_settings {
        let partitions = i32::try_from(ways.len()).unwrap();
        let mut job: Job = job(&format!("by-apicurio-{partitions}"), "auto", partitions, &registry.own_url());
        job.instead = job.instead.map(|rules| rules.replace("[value.id]", "[meta.partition, value.id]"));
        let line = job.worker.pop().unwrap();
        job.worker.push(line.replace("\"}", &format!("\"{settings}}}")));
        let names: Vec<String> = ways.iter().map(|way| way.name.clone()).collect();
        let ids_of = |way: &Way| ids[way.name.splitn(3, ' ').take(2).collect::<Vec<_>>().join(" ").as_str()];
        let sent = ways.into_iter().enumerate().flat_map(|(at, way)| {
            let ids = ids_of(&way);
            way.records(at, ids)
        });
        let sent: Vec<Fresh> = sent.collect();
        job.send(sent.clone());
        let mut operator = Operator::start(&job, "a");
        job.await_drained(DEADLINE);
        operator.stop();

        let output = job.output();
        let letters: Vec<Stored> = job.kafka.read_visible(&job.dead_letter()).into_values().flatten().collect();
        let (forwarded, unread) = (by_way(&output), by_way(&letters));
        for name in &names {
            let reason = UNREAD.iter().find(|(way, _)| way == name).map(|(_, reason)| *reason);
            let expected = match reason {
                Some(_) => &[][..],
                None if name.ends_with("as JSON") => &FORWARDED_AS_JSON,
                None => &FORWARDED,
            };
            assert_eq!(forwarded.get(name).map(Vec::as_slice).unwrap_or_default(), expected, "{name}{settings}");
            let expected = if reason.is_some() { &[0, 1, 2, 3, 4, 5, 6][..] } else { &[] };
            assert_eq!(unread.get(name).map(Vec::as_slice).unwrap_or_default(), expected, "{name}{settings}");
        }
        for letter in &letters {
            let (key, said) = (letter.key.clone().unwrap(), letter.header("__ratchet.errors.message").unwrap());
            let (_, reason) = UNREAD.iter().find(|(way, _)| key.starts_with(way.as_bytes())).unwrap();
            assert!(said.contains(reason), "{said}");
        }
        for record in &output {
            let was = sent.iter().find(|sent| sent.key == record.key).unwrap();
            assert_eq!((&record.value, &record.headers), (&was.value, &was.headers), "byte for byte");
        }
    }
}
